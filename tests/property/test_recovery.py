"""After any cut of the last segment and any garbage behind it, the log ends with a whole batch."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.storage.support import (
    NOW_MS,
    append,
    close,
    create_log,
    look_up_time,
    read_values,
    reopen,
)

from millstream.config.topic import TopicConfig
from millstream.records.compression import Codec

pytestmark = pytest.mark.usefixtures("each_kernel")

CONFIG = TopicConfig({"internal.segment.bytes": "2000", "index.interval.bytes": "200"})

batches = st.lists(
    st.tuples(
        st.lists(st.binary(max_size=100), min_size=1, max_size=4),
        st.sampled_from(list(Codec)),
        st.booleans(),
    ),
    min_size=1,
    max_size=20,
)


def write(root: Path, written: list[tuple[list[bytes], Codec, bool]]) -> list[tuple[int, int]]:
    """Write the batches and leave the log as a crash does; return (segment, end) of each."""
    log = create_log(root, CONFIG)
    ends = []
    sequence = 0
    for values, codec, idempotent in written:
        if idempotent:
            append(
                log, *values, codec=codec, producer_id=1, producer_epoch=0, base_sequence=sequence
            )
            sequence += len(values)
        else:
            append(log, *values, codec=codec)
        base = log.segment_base_offsets[-1]
        ends.append((base, (root / "orders-0" / f"{base:020d}.log").stat().st_size))
    return ends


@settings(max_examples=examples(60), deadline=None)
@given(written=batches, cut=st.floats(0, 1), garbage=st.binary(max_size=200), data=st.data())
def test_any_cut_and_any_garbage(
    written: list[tuple[list[bytes], Codec, bool]], cut: float, garbage: bytes, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        ends = write(root, written)
        last = ends[-1][0]
        path = root / "orders-0" / f"{last:020d}.log"
        content = path.read_bytes()
        left = int(cut * len(content))
        image = content[:left] + garbage
        path.write_bytes(image)
        # Garbage may begin with just what was cut off.
        same = (a == b for a, b in zip(content, image, strict=False))
        left = sum(itertools.takewhile(bool, same))
        kept = [
            values
            for (values, _, _), (base, end) in zip(written, ends, strict=True)
            if base < last or end <= left
        ]
        records = [value for values in kept for value in values]
        point = data.draw(st.sampled_from([0, last, len(records)]))
        log = reopen(root, CONFIG, clean=False, recovery_point=point)
        assert read_values(log) == list(enumerate(records))
        assert path.stat().st_size == max(
            (e for b, e in ends if b == last and e <= left), default=0
        )
        append(log, b"next")
        close(log)
        log = reopen(root, CONFIG)
        assert read_values(log) == list(enumerate([*records, b"next"]))
        found = look_up_time(log, NOW_MS)
        assert found is not None
        assert found.offset == 0


@settings(max_examples=examples(60), deadline=None)
@given(written=batches, place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_any_flipped_byte_costs_its_batch_and_what_follows(
    written: list[tuple[list[bytes], Codec, bool]], place: float, flip: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        ends = write(root, written)
        bases = sorted({base for base, _ in ends})
        base = bases[int(place * len(bases))]
        path = root / "orders-0" / f"{base:020d}.log"
        content = bytearray(path.read_bytes())
        position = int(place * len(bases) % 1 * len(content))
        content[position] ^= flip
        path.write_bytes(content)
        log = reopen(root, CONFIG, clean=False)
        records = [value for values, _, _ in written for value in values]
        # The leader epoch lies outside the CRC, and a base offset may rise unnoticed: such a flip
        # changes no value.
        start = max((end for b, end in ends if b == base and end <= position), default=0)
        if position - start not in range(8) and position - start not in range(12, 16):
            sound = sum(
                len(values)
                for (values, _, _), (b, end) in zip(written, ends, strict=True)
                if b < base or (b == base and end <= position)
            )
            assert log.log_end_offset == sound
            assert read_values(log) == list(enumerate(records[:sound]))
