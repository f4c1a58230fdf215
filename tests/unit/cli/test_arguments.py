"""Moments, durations and settings as people type them."""

from __future__ import annotations

import pytest
import typer

from millstream.cli.arguments import duration_ms, key_values, timestamp_ms
from millstream.cli.output import human_bytes, human_duration


def test_moments() -> None:
    now = 1_700_000_000_000
    assert timestamp_ms("@12", "-", now_ms=now) == 12
    assert timestamp_ms("15m", "-", now_ms=now) == now - 900_000
    assert timestamp_ms("1970-01-01T00:00:01", "-", now_ms=now) == 1000
    assert timestamp_ms("1970-01-01T01:00:01+01:00", "-", now_ms=now) == 1000
    assert timestamp_ms("1970-01-02", "-", now_ms=now) == 86_400_000


@pytest.mark.parametrize("text", ["", "yesterday", "@x", "15", "-1h"])
def test_no_moment(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        timestamp_ms(text, "--since", now_ms=0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("500ms", 500), ("2s", 2000), ("3m", 180_000), ("1h", 3_600_000), ("7d", 604_800_000)],
)
def test_durations(text: str, expected: int) -> None:
    assert duration_ms(text, "-") == expected


def test_settings() -> None:
    assert key_values(["a=1", "b = x=y", "c="], "-") == {"a": "1", "b": "x=y", "c": ""}
    with pytest.raises(typer.BadParameter, match="KEY=VALUE"):
        key_values(["a"], "--config")


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0 s"),
        (0.84, "0.8 s"),
        (60, "1 m"),
        (200, "3 m 20 s"),
        (7500, "2 h 5 m"),
        (350_000, "4 d 1 h"),
    ],
)
def test_durations_for_people(seconds: float, expected: str) -> None:
    assert human_duration(seconds) == expected


@pytest.mark.parametrize(
    ("size", "expected"), [(0, "0 B"), (999, "999 B"), (2_370_789, "2.4 MB"), (5e12, "5.0 TB")]
)
def test_sizes_for_people(size: float, expected: str) -> None:
    assert human_bytes(size) == expected
