"""Leader epochs of batches that were read."""

from __future__ import annotations

import struct

from millstream.records.builder import BatchBuilder
from millstream.spark.leader_epochs import epoch_ends, join


def batches(*epochs: int) -> memoryview:
    """Return batches of two records each, one for each leader epoch."""
    data = b""
    for number, epoch in enumerate(epochs):
        builder = BatchBuilder()
        builder.append(1, None, b"a")
        builder.append(1, None, b"b")
        batch = bytearray(builder.build())
        struct.pack_into(">q", batch, 0, 2 * number)
        struct.pack_into(">i", batch, 12, epoch)
        data += batch
    return memoryview(data)


def test_each_epoch_and_its_end() -> None:
    assert epoch_ends(batches(3, 3, 5), 100) == [(3, 4), (5, 6)]
    assert epoch_ends(batches(3, 3, 5), 100, (5, 6)) == [(3, 4), (5, 6)]


def test_what_is_behind_the_range_does_not_count() -> None:
    assert epoch_ends(batches(3, 3, 5), 4, (5, 6)) == [(3, 4)]
    assert epoch_ends(batches(3, 3, 5), 3, (5, 6)) == [(3, 3)]
    assert epoch_ends(batches(3, 3, 3), 3, (3, 6)) == [(3, 3)]


def test_half_a_batch_and_nothing() -> None:
    assert epoch_ends(batches(3, 4)[:-1], 100) == [(3, 2)]
    assert epoch_ends(memoryview(b""), 100) == []


def test_several_reads() -> None:
    assert join([[(3, 4), (5, 6)], [(5, 9)], []]) == [(3, 4), (5, 9)]
