from __future__ import annotations

import dataclasses
import gc
import sys
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from millstream.model.errors import CorruptLogError
from millstream.records import kernel, rows
from millstream.records.batch import HEADER_SIZE, Batch
from millstream.records.builder import BatchOptions, encode_batch
from millstream.records.compression import Codec
from millstream.records.kernel_decoder import FIRST_OFFSET
from millstream.records.record import Header, Record, iter_records
from millstream.records.rows import RecordShape, decode_batches, encode_rows

pytestmark = pytest.mark.usefixtures("each_kernel")


class Row(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    leader_epoch: int


SHAPE = RecordShape(Row, "clicks", 3)


def decode(data: bytes | bytearray, start_offset: int = FIRST_OFFSET) -> list[Row]:
    return decode_batches([Batch(memoryview(data))], SHAPE, start_offset=start_offset)


def records_of(rows: list[Row]) -> list[Record]:
    return [Record(*row[2:4], *row[5:8]) for row in rows]


OPTIONS = BatchOptions(base_offset=5, producer_id=9, producer_epoch=1, base_sequence=77)

cells = st.none() | st.binary(max_size=70)
headers = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=5)), max_size=3)
records = st.lists(
    st.tuples(st.integers(-1, 2**45), cells, cells, st.just([]) | headers), max_size=12
)


@given(records, st.sampled_from([Codec.NONE, Codec.NONE, *Codec]))
@settings(max_examples=examples(100))
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
    found = decode(data)
    assert records_of(found) == list(iter_records(batch))
    assert {each[:2] for each in found} <= {("clicks", 3)}
    assert decode(data, 7) == found[2:]


def test_keys_and_headers_that_no_record_has() -> None:
    data = encode_rows([1, 2], [None, None], [b"a", b"b"], options=OPTIONS)
    found = decode(data)
    assert found == [
        Row("clicks", 3, 5, 1, 0, None, b"a", (), -1),
        Row("clicks", 3, 6, 2, 0, None, b"b", (), -1),
    ]


def test_many_batches_each_with_its_own_epoch_and_kind_of_timestamp() -> None:
    first = encode_rows([1], [b"k"], [b"a"], options=BatchOptions(leader_epoch=4))
    options = BatchOptions(base_offset=9, log_append_time_ms=77, leader_epoch=6, codec=Codec.ZSTD)
    second = encode_rows(
        [1, 2], None, [b"b", None], [[("h", b"x"), ("", None)], []], options=options
    )
    found = decode_batches([Batch(memoryview(each)) for each in (first, second, first)], SHAPE)
    assert found == [
        Row("clicks", 3, 0, 1, 0, b"k", b"a", (), 4),
        Row("clicks", 3, 9, 77, 1, None, b"b", (("h", b"x"), ("", None)), 6),
        Row("clicks", 3, 10, 77, 1, None, None, (), 6),
        Row("clicks", 3, 0, 1, 0, b"k", b"a", (), 4),
    ]
    assert all(type(each) is Row for each in found)


def test_a_header_whose_name_is_no_utf_8() -> None:
    data = encode_rows([1], None, [b"a"], [[("name", b"x")]], options=OPTIONS)
    damaged = bytes(data).replace(b"name", b"n\xffme")
    assert decode(damaged)[0].headers == (("n\ufffdme", b"x"),)


@pytest.mark.parametrize("hashes_hold", [True, False])
def test_records_are_found_in_sets(hashes_hold: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    library = kernel.library()
    if library is not None and not hashes_hold:
        # As on Python 3.14.
        monkeypatch.setattr(rows, "_hashes_hold", lambda library: False)
    data = encode_rows([1, 2], [b"k", None], [b"a", None], [[("h", b"x")], []], options=OPTIONS)
    found = decode(data)
    assert {type(row) for row in found} == {Row}
    assert found == [tuple(row) for row in found]
    assert [hash(row) for row in found] == [hash((*row,)) for row in found]
    assert set(found) == {tuple(row) for row in found}
    assert decode(data, 6) == found[1:]


def test_nothing_is_kept_alive() -> None:
    topic = "a topic of its own " + str(id(object()))
    shape = RecordShape(Row, topic, 300)
    data = encode_rows([1] * 50, None, [b"a"] * 50, [[("h", None)]] * 50, options=OPTIONS)
    batch = Batch(memoryview(data))
    counted = (topic, Row, shape.partition)
    before = [sys.getrefcount(each) for each in counted]
    for _ in range(100):
        decode_batches([batch], shape)
    gc.collect()
    after = [sys.getrefcount(each) for each in counted]
    assert all(abs(now - then) < 1000 for now, then in zip(after, before, strict=True))


def test_the_time_at_which_the_broker_appended() -> None:
    options = BatchOptions(log_append_time_ms=44)
    data = encode_rows([1, 2], [None, b"k"], [b"a", None], options=options)
    assert data == encode_batch([Record(0, 1, None, b"a"), Record(0, 2, b"k", None)], options)
    assert [(each.timestamp, each.timestamp_type) for each in decode(data)] == [(44, 1)] * 2


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
                assert records_of(decode(damaged)) == wanted
            except CorruptLogError:
                assert wanted is None
