from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.model.errors import CorruptLogError
from millstream.records.batch import HEADER_SIZE, Batch
from millstream.records.builder import BatchOptions, encode_batch
from millstream.records.compression import Codec
from millstream.records.record import Record, iter_records
from millstream.records.rows import decode_rows, encode_rows

pytestmark = pytest.mark.usefixtures("each_kernel")

OPTIONS = BatchOptions(base_offset=5, producer_id=9, producer_epoch=1, base_sequence=77)

cells = st.none() | st.binary(max_size=70)
headers = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=5)), max_size=3)
records = st.lists(
    st.tuples(st.integers(-1, 2**45), cells, cells, st.just([]) | headers), max_size=12
)


@given(records, st.sampled_from([Codec.NONE, Codec.NONE, *Codec]))
@settings(max_examples=100)
def test_a_batch_of_rows_is_the_one_that_the_builder_makes(
    rows: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    codec: Codec,
) -> None:
    options = dataclasses.replace(OPTIONS, codec=codec)
    one_by_one = [Record(0, t, k, v, tuple(h)) for t, k, v, h in rows]
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    data = encode_rows(*columns, options=options)
    assert data == encode_batch(one_by_one, options)
    batch = Batch(memoryview(data))
    batch.ensure_valid()
    found = decode_rows(batch)
    assert [
        Record(*each)
        for each in zip(
            found.offsets, found.timestamps, found.keys, found.values, found.headers, strict=True
        )
    ] == list(iter_records(batch))


def test_keys_and_headers_that_no_record_has() -> None:
    data = encode_rows([1, 2], [None, None], [b"a", b"b"], options=OPTIONS)
    found = decode_rows(Batch(memoryview(data)))
    assert (found.keys, found.values, found.headers) == ([None] * 2, [b"a", b"b"], [()] * 2)
    assert (found.offsets, found.timestamps, len(found)) == ([5, 6], [1, 2], 2)


def test_the_time_at_which_the_broker_appended() -> None:
    options = BatchOptions(log_append_time_ms=44)
    data = encode_rows([1, 2], [None, b"k"], [b"a", None], options=options)
    assert data == encode_batch([Record(0, 1, None, b"a"), Record(0, 2, b"k", None)], options)
    assert decode_rows(Batch(memoryview(data))).timestamps == [44, 44]


def test_columns_of_unequal_lengths() -> None:
    for columns in (([1, 2], [b"k"], [b"a", b"b"]), ([1], [b"k"], [b"a", b"b"])):
        with pytest.raises(ValueError, match="number of records"):
            encode_rows(*columns, options=OPTIONS)
    with pytest.raises(ValueError, match="number of records"):
        encode_rows([1], [None], [None], [[], []], options=OPTIONS)


def test_every_damaged_byte_is_found_or_read_the_same_way() -> None:
    data = encode_rows(
        [1, 300], [b"k", None], [b"v" * 70, b""], [[("h", b"x")], []], options=OPTIONS
    )
    for position in range(HEADER_SIZE, len(data)):
        for flipped in (0x01, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[position] ^= flipped
            batch = Batch(memoryview(damaged))
            try:
                wanted: list[Record] | None = list(iter_records(batch))
            except CorruptLogError:
                wanted = None
            try:
                found = decode_rows(batch)
                columns = (found.offsets, found.timestamps, found.keys, found.values, found.headers)
                assert [Record(*row) for row in zip(*columns, strict=True)] == wanted
            except CorruptLogError:
                assert wanted is None
