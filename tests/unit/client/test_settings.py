"""Addresses as people write them, and values that stand elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.client import Admin, Consumer, Producer, ShareConsumer
from millstream.client.core.settings import AdminSettings
from millstream.client.references import read_given
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


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("http://127.0.0.1:9092", "'http://127.0.0.1:9092' is a URL: write HOST:PORT"),
        ("::1:9092", "an IPv6 address is written in brackets"),
        ("a:x", "'a:x' is not of the form HOST:PORT"),
    ],
)
def test_what_is_wrong_with_an_address(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse_bootstrap_servers(text)


def test_an_address_is_printed_as_it_is_written() -> None:
    assert str(Address("::1", 5)) == "[::1]:5"
    assert str(Address("a", 5)) == "a:5"


def test_values_that_stand_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "password").write_text("of-a-file\n")
    (tmp_path / "more.properties").write_text("name = ann\n")
    monkeypatch.setenv("SERVERS", "here:1")
    found = read_given(
        AdminSettings,
        {
            "bootstrap.servers": "${env:SERVERS}",
            "sasl.password": f"${{directory:{tmp_path}:password}}",
        },
        {"sasl_username": f"${{file:{tmp_path}/more.properties:name}}"},
    )
    assert str(found.bootstrap_servers[0]) == "here:1"
    assert (found.sasl_username, found.sasl_password) == ("ann", "of-a-file")
    with pytest.raises(ConfigError, match="there is no environment variable NOT_THERE"):
        read_given(AdminSettings, {"bootstrap.servers": "${env:NOT_THERE}"}, {})


@pytest.mark.parametrize("kind", [Admin, Consumer, Producer, ShareConsumer])
def test_every_client_looks_them_up(kind: type) -> None:
    with pytest.raises(ConfigError, match="NOT_THERE"):
        kind({"bootstrap.servers": "${env:NOT_THERE}"})
    with pytest.raises(ConfigError, match="NOT_THERE"):
        kind(bootstrap_servers="${env:NOT_THERE}")
