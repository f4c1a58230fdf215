from __future__ import annotations

import pytest

from millstream.model.errors import ProtocolError
from millstream.protocol.api import ApiKey
from millstream.protocol.headers import (
    MAX_HEADER_TAGS,
    decode_request_header,
    response_header_is_flexible,
)


def header(data: str) -> memoryview:
    return memoryview(bytes.fromhex(data))


def test_header_v1_ends_with_the_client_id() -> None:
    read = decode_request_header(header("0003 0008 0000002a 0003 6b6361 ff"))
    assert (read.key, read.version, read.correlation_id) == (ApiKey.METADATA, 8, 42)
    assert read.client_id == "kca"
    assert read.body_position == 13


def test_header_v2_keeps_the_long_client_id_and_adds_tags() -> None:
    read = decode_request_header(header("0003 0009 0000002a 0003 6b6361 00 ff"))
    assert read.client_id == "kca"
    assert read.body_position == 14


def test_unknown_tags_of_a_header_are_skipped() -> None:
    read = decode_request_header(header("0003 0009 0000002a 0000 02 07 02 abcd 09 00 ff"))
    assert read.client_id == ""
    assert read.body_position == 17


@pytest.mark.parametrize("length", ["ffff", "8000"])
def test_a_client_id_may_be_null(length: str) -> None:
    read = decode_request_header(header(f"0003 0009 80000000 {length} 00"))
    assert read.client_id is None
    assert read.correlation_id == -(2**31)


def test_a_version_that_nobody_knows_is_still_a_header() -> None:
    """ApiVersions is answered in every version, so its header must be readable in every one."""
    assert decode_request_header(header("0012 7fff 00000001 ffff 00")).version == 0x7FFF
    assert decode_request_header(header("0012 ffff 00000001 ffff")).version == -1


def test_sasl_handshake_has_header_v1_in_every_version() -> None:
    assert decode_request_header(header("0011 0001 00000001 ffff")).body_position == 10


@pytest.mark.parametrize("key", ["0004", "0007", "ffff", "7fff", "0049"])
def test_an_unknown_key_is_no_header(key: str) -> None:
    with pytest.raises(ProtocolError, match="no API with key"):
        decode_request_header(header(f"{key} 0000 00000001 ffff 00"))


@pytest.mark.parametrize(
    "data",
    [
        "",
        "0003",
        "0003 0009 0000002a 00",
        "0003 0009 0000002a 0005 61626364",
        "0003 0009 0000002a 7fff 61626364",
        "0003 0008 0000002a 0005 61626364",
        "0003 0009 0000002a 0001 61",
        "0003 0009 0000002a 0001 61 01 00 05 0000",
        "0003 0009 0000002a 0001 61 01",
        "0003 0009 0000002a 0001 61 ffffffffff",
        "0003 0009 0000002a 0002 c328 00",
    ],
)
def test_bytes_that_are_no_header_are_refused(data: str) -> None:
    with pytest.raises(ProtocolError):
        decode_request_header(header(data))


def test_a_header_of_too_many_tags_is_refused() -> None:
    tags = "8102" + "0000" * (MAX_HEADER_TAGS + 1)
    with pytest.raises(ProtocolError, match="tagged fields"):
        decode_request_header(header(f"0003 0009 0000002a ffff {tags}"))


def test_the_response_header_has_tags_in_flexible_versions_but_never_for_api_versions() -> None:
    assert response_header_is_flexible(ApiKey.METADATA, 9)
    assert not response_header_is_flexible(ApiKey.METADATA, 8)
    assert not response_header_is_flexible(ApiKey.API_VERSIONS, 3)
    assert not response_header_is_flexible(ApiKey.API_VERSIONS, 4)
