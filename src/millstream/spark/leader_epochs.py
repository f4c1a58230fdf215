"""The leader epochs of batches that were read (KIP-320). Pure.

A log that was cut by an unclean leader election and written anew has other records at the same
offsets. Their leader epoch tells: what was read under epoch 5 up to offset 150 is still there as
long as the leader says that epoch 5 ends at 150 or later.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from millstream.model.offsets import NO_LEADER_EPOCH, LeaderEpoch, Offset
from millstream.records.batch import HEADER_SIZE, LENGTH_OVERHEAD, MAGIC

_BATCH_HEADER: Final = struct.Struct(">qiib6xi")
"""Base offset, batch length, leader epoch, magic and last offset delta of a batch's header."""

EpochEnd = tuple[LeaderEpoch, Offset]
"""A leader epoch, and the offset behind the last batch that was read of it."""


def epoch_ends(
    data: memoryview, end_offset: Offset, last: EpochEnd = (NO_LEADER_EPOCH, -1)
) -> list[EpochEnd]:
    """Return the epochs of whole batches that begin before ``end_offset``, in their order.

    ``last`` are the epoch and the end of the last batch of ``data`` where they are known: if the
    first one has the same epoch, none in between is looked at, because epochs do not fall.
    """
    found: list[EpochEnd] = []
    position, size_bytes = 0, len(data)
    while size_bytes - position >= HEADER_SIZE:
        base_offset, length, epoch, magic, last_delta = _BATCH_HEADER.unpack_from(data, position)
        if magic != MAGIC or base_offset >= end_offset:
            break
        size = length + LENGTH_OVERHEAD
        if size < HEADER_SIZE or position + size > size_bytes:
            break
        if epoch == last[0]:
            add_epoch(found, (epoch, min(last[1], end_offset)))
            break
        add_epoch(found, (epoch, min(base_offset + last_delta + 1, end_offset)))
        position += size
    return found


def add_epoch(ends: list[EpochEnd], more: EpochEnd) -> None:
    """Add an epoch behind those that were read before; the same one ends later."""
    if ends and ends[-1][0] == more[0]:
        ends[-1] = (more[0], max(ends[-1][1], more[1]))
    else:
        ends.append(more)


def join(parts: Iterable[Iterable[EpochEnd]]) -> list[EpochEnd]:
    """Return the epochs of several reads, each once with its greatest end."""
    ends: dict[LeaderEpoch, Offset] = {}
    for part in parts:
        for epoch, end in part:
            ends[epoch] = max(ends.get(epoch, end), end)
    return sorted(ends.items())
