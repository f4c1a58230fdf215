from __future__ import annotations

import pytest

from millstream.model.errors import ProtocolError
from millstream.protocol.primitives import decode_uvarint, encode_uvarint, skip_tags


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (2**14 - 1, "ff7f"),
        (2**14, "808001"),
        (2**21 - 1, "ffff7f"),
        (2**21, "80808001"),
        (2**28 - 1, "ffffff7f"),
        (2**28, "8080808001"),
        (2**31 - 1, "ffffffff07"),
        (2**32 - 1, "ffffffff0f"),
    ],
)
def test_a_varint_has_seven_bits_in_each_byte(value: int, encoded: str) -> None:
    assert encode_uvarint(value).hex() == encoded
    data = b"\xee" + bytes.fromhex(encoded) + b"\xee"
    assert decode_uvarint(memoryview(data), 1) == (value, 1 + len(encoded) // 2)


@pytest.mark.parametrize("encoded", ["ffffffff10", "8080808080", "ffffffffff01", "80808080808000"])
def test_a_varint_of_more_than_32_bits_is_refused(encoded: str) -> None:
    with pytest.raises(ProtocolError, match="varint"):
        decode_uvarint(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize("encoded", ["", "80", "8080", "808080", "80808080"])
def test_a_varint_that_is_cut_off_is_an_index_error_for_the_decoder(encoded: str) -> None:
    with pytest.raises(IndexError):
        decode_uvarint(bytes.fromhex(encoded), 0)


def test_unknown_tags_are_skipped_and_cost_budget() -> None:
    data = bytes.fromhex("02 05 03 616263 8001 00 ff")
    assert skip_tags(data, 0, len(data), 10) == (len(data) - 1, 8)


def test_more_tags_than_the_budget_are_refused() -> None:
    with pytest.raises(ProtocolError, match="3 tagged fields"):
        skip_tags(bytes.fromhex("03 0000 0100 0200"), 0, 7, 2)


def test_a_tag_that_claims_more_than_there_is_is_refused() -> None:
    with pytest.raises(ProtocolError, match="claims 4 bytes"):
        skip_tags(bytes.fromhex("01 00 04 616263"), 0, 6, 2)
