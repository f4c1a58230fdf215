"""Hostile frames: a clear refusal, and no memory for what is only claimed."""

from __future__ import annotations

import tracemalloc

import pytest

from millstream.model.errors import ProtocolError
from millstream.protocol.api import ApiKey
from millstream.protocol.codec import (
    MAX_REQUEST_ELEMENTS,
    RequestHeader,
    decode_request,
    decode_response,
)
from millstream.protocol.compile import decode
from millstream.protocol.messages.delete_groups import DeleteGroupsRequest
from millstream.protocol.messages.fetch import FetchRequest
from millstream.protocol.messages.metadata import MetadataRequest
from millstream.protocol.messages.offset_delete import OffsetDeleteRequest
from millstream.protocol.messages.produce import ProduceRequest

MIB = 1024 * 1024


def refuse(cls: type, version: int, data: str, match: str) -> None:
    """The bytes raise ProtocolError, and the attempt takes less than a MiB."""
    body = bytes.fromhex(data)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match=match):
            cls.decode_body(version, body)
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


def test_an_array_count_of_two_to_the_31_is_refused() -> None:
    refuse(MetadataRequest, 1, "7fffffff 0001 61", "2147483647 elements")


def test_a_compact_array_count_of_two_to_the_32_is_refused() -> None:
    refuse(MetadataRequest, 9, "ffffffff0f 02 61 00", "4294967294 elements")


def test_an_array_of_numbers_is_measured_before_it_is_read() -> None:
    refuse(OffsetDeleteRequest, 0, "0001 67 7fffffff", "elements")
    refuse(
        FetchRequest, 7, "00000000" * 3 + "7fffffff 00 " + "00000000" * 3 + "7fffffff", "elements"
    )


def test_a_count_is_measured_by_the_smallest_element() -> None:
    topics = "0001 61 " * 3
    MetadataRequest.decode_body(1, bytes.fromhex("00000003" + topics))
    refuse(MetadataRequest, 1, "00000005" + topics, "room")


def test_a_string_longer_than_the_frame_is_refused() -> None:
    refuse(MetadataRequest, 1, "00000001 7fff 61", "32767 bytes")
    refuse(MetadataRequest, 9, "02 10 61 00 00 00 00", "15 bytes")


def test_a_compact_string_of_two_gib_is_refused() -> None:
    refuse(MetadataRequest, 9, "02 8080808008 61 00 00 00 00", "claims 2147483647 bytes")


def test_a_string_above_32767_bytes_is_refused_though_it_is_there() -> None:
    body = bytes.fromhex("02 818002") + b"x" * 40_000
    with pytest.raises(ProtocolError, match="32768 bytes"):
        DeleteGroupsRequest.decode_body(2, body)


def test_records_of_two_gib_are_refused() -> None:
    refuse(
        ProduceRequest,
        3,
        "ffff 0001 00000000 00000001 0001 61 00000001 00000000 7fffffff 00",
        "claims",
    )


def test_an_over_long_varint_is_refused() -> None:
    refuse(MetadataRequest, 9, "ffffffffff01", "varint")


def test_null_is_refused_where_the_version_has_none() -> None:
    refuse(MetadataRequest, 0, "ffffffff", "topics is null")
    refuse(MetadataRequest, 1, "00000001 ffff", "name is null")
    refuse(ProduceRequest, 9, "00 0000 00000000 00", "topic_data is null")


def test_text_that_is_no_utf_8_is_refused() -> None:
    refuse(MetadataRequest, 1, "00000001 0002 c328", "UTF-8")
    refuse(MetadataRequest, 1, "00000001 0003 eda080", "UTF-8")


def test_a_tagged_field_that_is_longer_or_shorter_than_it_claims_is_refused() -> None:
    rest = "00000000 00000000 00000000 00 00000000 00000000 01 01 01 "
    FetchRequest.decode_body(12, bytes.fromhex("ffffffff" + rest + "01 00 02 02 61"))
    refuse(FetchRequest, 12, "ffffffff" + rest + "01 00 03 02 61 00", "another size")
    refuse(FetchRequest, 12, "ffffffff" + rest + "01 00 01 02 61", "another size")
    refuse(FetchRequest, 12, "ffffffff" + rest + "01 00 7f 02 61", "claims")


def test_the_number_of_tagged_fields_is_bounded() -> None:
    refuse(MetadataRequest, 9, "01 00 00 00 ffffffff0f", "tagged fields")
    refuse(MetadataRequest, 9, "01 00 00 00 05 0000", "cut off")


@pytest.mark.slow
def test_a_request_may_hold_only_so_many_elements() -> None:
    count = MAX_REQUEST_ELEMENTS
    header = RequestHeader(ApiKey.METADATA, 1, 0, None, 0)
    frame = memoryview(count.to_bytes(4, "big") + b"\x00\x00" * count)
    request = decode_request(header, frame)
    assert isinstance(request, MetadataRequest)
    assert request.topics is not None
    assert len(request.topics) == count
    count += 1
    frame = memoryview(count.to_bytes(4, "big") + b"\x00\x00" * count)
    with pytest.raises(ProtocolError, match="more than a message may hold"):
        decode_request(header, frame)


def test_elements_are_counted_over_the_whole_message() -> None:
    data = bytes.fromhex("00000002 0001 61 0001 62")
    decode(MetadataRequest, 1, data, 0, 2)
    with pytest.raises(ProtocolError, match="more than a message may hold"):
        decode(MetadataRequest, 1, data, 0, 1)


def test_a_version_that_is_not_served_is_refused() -> None:
    frame = memoryview(bytes(100))
    for key, version in ((0, 2), (0, 14), (1, 3), (3, -1), (18, 5)):
        with pytest.raises(ProtocolError, match=f"no version {version}"):
            decode_request(RequestHeader(key, version, 0, None, 0), frame)


def test_bytes_behind_the_body_are_left_alone_as_kafka_does() -> None:
    assert MetadataRequest.decode_body(1, bytes.fromhex("00000000 c0ffee")).topics == []


@pytest.mark.parametrize(
    "data", ["", "00", "000000", "00000001", "0000000105", "00000001ffffffffff"]
)
def test_a_response_that_is_cut_off_is_refused(data: str) -> None:
    with pytest.raises(ProtocolError):
        decode_response(ApiKey.METADATA, 9, bytes.fromhex(data))
