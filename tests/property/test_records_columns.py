"""Columns agree with the record-by-record path on random batches, in both directions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.arrow_batches import encode_columns
from tests.examples import examples

from millstream.model.errors import CorruptLogError
from millstream.records.batch import iter_batches
from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.records.columns import decode_columns
from millstream.records.compression import Codec
from millstream.records.record import Record, iter_records

pytestmark = pytest.mark.usefixtures("each_kernel")

# Lengths around the edges of one, two and three bytes of varint.
fields = st.none() | st.binary(max_size=20) | st.sampled_from([63, 64, 8190, 8192]).map(bytes)
headers = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=5)), max_size=3)
timestamps = st.integers(-1, 2**45)


@st.composite
def logs(draw: st.DrawFn) -> list[bytes]:
    """Draw up to 60 batches of one log: data and control, every codec, with gaps."""
    log, offset = [], draw(st.integers(0, 2**40))
    patterns = draw(
        st.lists(
            st.tuples(timestamps, fields, fields, st.just([]) | headers), min_size=1, max_size=6
        )
    )
    for _ in range(draw(st.integers(0, 60))):
        kind = draw(st.sampled_from(["data"] * 6 + ["append time", "control"]))
        builder = BatchBuilder(
            BatchOptions(
                base_offset=offset,
                codec=draw(st.sampled_from([Codec.NONE] * 5 + list(Codec))),
                is_control=kind == "control",
                log_append_time_ms=5 if kind == "append time" else None,
            )
        )
        delta = -1
        for index in range(draw(st.integers(0, 9))):
            delta += draw(st.sampled_from([1, 1, 1, 70]))
            timestamp, key, value, extra = patterns[index % len(patterns)]
            builder.append(timestamp, key, value, extra, offset_delta=delta)
        log.append(builder.build())
        offset += max(delta, 0) + 1
    return log


def one_by_one(log: bytes) -> list[Record]:
    return [
        record
        for batch in iter_batches(log)
        if batch.count and not batch.is_control
        for record in iter_records(batch)
    ]


@pytest.mark.slow
@given(logs(), st.data())
@settings(max_examples=examples(40))
def test_decoding_agrees(log: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(log)
    buffers = [whole] if data.draw(st.booleans()) else log
    assert list(decode_columns(buffers).iter_records()) == one_by_one(whole)
    offsets = [record.offset for record in one_by_one(whole)] or [0]
    start, end = sorted(data.draw(st.tuples(*[st.sampled_from(offsets)] * 2)))
    some = decode_columns(buffers, start_offset=start, end_offset=end)
    wanted = [record for record in one_by_one(whole) if start <= record.offset < end]
    assert list(some.iter_records()) == wanted


@pytest.mark.slow
@given(logs(), st.data())
@settings(max_examples=examples(40))
def test_damage_is_found_by_both_or_by_neither(log: list[bytes], data: st.DataObject) -> None:
    whole = bytearray(b"".join(log))
    if not whole:
        return
    for _ in range(data.draw(st.integers(1, 3))):
        # Drawn without regard to the length, which a codec may make differ from run to run.
        position = data.draw(st.integers(0, 2**20)) % len(whole)
        whole[position] ^= data.draw(st.integers(1, 255))
    try:
        loop: list[Record] | None = one_by_one(bytes(whole))
    except CorruptLogError:
        loop = None
    try:
        columns = decode_columns([bytes(whole)], start_offset=-(2**63), check_crcs=False)
        assert list(columns.iter_records()) == loop
    except CorruptLogError:
        assert loop is None


rows = st.lists(
    st.tuples(timestamps, fields, fields, st.just([]) | headers), min_size=1, max_size=30
)


@given(rows, st.sampled_from(list(Codec)), st.integers(100, 5000))
@settings(max_examples=examples(40))
def test_encoding_agrees(
    rows: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    codec: Codec,
    max_batch_bytes: int,
) -> None:
    times, keys, values, heads = zip(*rows, strict=True)
    batches = encode_columns(
        timestamp_ms=np.array(times, np.int64),
        key=pa.array(keys, pa.binary()),
        value=pa.array(values, pa.binary()),
        headers=pa.array(
            [[{"key": k, "value": v} for k, v in head] for head in heads],
            pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        ),
        options=BatchOptions(codec=codec),
        max_batch_bytes=max_batch_bytes,
    )
    written = [(t, k, v, tuple(h)) for t, k, v, h in rows]
    assert [tuple(record[1:]) for record in one_by_one(b"".join(batches))] == written
