"""How a record names its schema."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.schemas.framing import (
    Frame,
    FramingError,
    frame,
    read_frame,
    read_indexes,
    write_indexes,
)


def test_an_id_stands_in_front_of_the_datum() -> None:
    assert read_frame(b"\0\0\0\1\2datum", has_indexes=False) == Frame(258, 5)
    assert frame(258, b"datum") == b"\0\0\0\1\2datum"


@pytest.mark.parametrize("value", [b"", b"\0\0\0\1", b"\1\0\0\0\1x", b'{"a": 1}'])
def test_a_value_without_an_id_is_refused(value: bytes) -> None:
    with pytest.raises(FramingError, match="no zero byte and schema id"):
        read_frame(value, has_indexes=False)


def test_the_first_message_is_one_byte_or_written_out() -> None:
    # Confluent: MessageIndexes.toByteArray writes [0] as a single 0.
    assert read_frame(b"\0\0\0\0\7\0m", has_indexes=True) == Frame(7, 6, (0,))
    assert read_frame(b"\0\0\0\0\7\2\0m", has_indexes=True) == Frame(7, 7, (0,))
    assert read_frame(b"\0\0\0\0\7\4\2\0m", has_indexes=True) == Frame(7, 8, (1, 0))
    assert frame(7, b"m", [1, 0]) == b"\0\0\0\0\7\4\2\0m"


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=100))
def test_message_indexes_round_trip(indexes: list[int]) -> None:
    written = write_indexes(indexes)
    assert read_indexes(b"xx" + written + b"rest", 2) == (tuple(indexes), 2 + len(written))


@given(st.binary(max_size=20))
def test_any_bytes_are_indexes_or_refused(data: bytes) -> None:
    try:
        _, end = read_indexes(data, 0)
    except FramingError:
        return
    assert 0 < end <= len(data)


def test_a_header_has_the_id_or_the_guid_of_the_schema() -> None:
    guid = uuid.uuid4()
    assert read_frame(b"d", has_indexes=False, header=b"\1" + guid.bytes) == Frame(guid, 0)
    assert read_frame(b"d", has_indexes=False, header=b"\0\0\0\0\7") == Frame(7, 0)
    in_header = read_frame(b"d", has_indexes=True, header=b"\1" + guid.bytes + b"\4\2\0")
    assert in_header == Frame(guid, 0, (1, 0))
    with pytest.raises(FramingError, match="neither an id nor a GUID"):
        read_frame(b"d", has_indexes=False, header=b"\1abc")
