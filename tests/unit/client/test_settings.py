"""Addresses as people write them."""

from __future__ import annotations

import pytest

from millstream.client.settings import Address, parse_bootstrap_servers
from millstream.model.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("a:1, b:2,", [("a", 1), ("b", 2)]),
        ("kafka.example.org", [("kafka.example.org", 9092)]),
        ("[::1]:5", [("::1", 5)]),
        ("[::1]", [("::1", 9092)]),
    ],
)
def test_addresses(text: str, expected: list[tuple[str, int]]) -> None:
    assert parse_bootstrap_servers(text) == tuple(Address(*each) for each in expected)


@pytest.mark.parametrize("text", ["", ",", "a:", ":1", "a:0", "a:65536", "a:x", "::1:9092"])
def test_no_addresses(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_bootstrap_servers(text)


def test_an_address_is_printed_as_it_is_written() -> None:
    assert str(Address("::1", 5)) == "[::1]:5"
    assert str(Address("a", 5)) == "a:5"
