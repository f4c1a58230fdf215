"""Sizes, rates and durations as people write them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from millstream.config.quantities import is_duration, parse_duration_ms, parse_rate, parse_size
from millstream.model.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("512", 512),
        ("1b", 1),
        ("64K", 65_536),
        ("128MB", 128 << 20),
        (" 2 g ", 2 << 30),
        ("1.5k", 1536),
    ],
)
def test_sizes(text: str, expected: int) -> None:
    assert parse_size(text) == expected


def test_rates() -> None:
    assert parse_rate("50MB/s") == parse_rate("50M") == 50 << 20


@pytest.mark.parametrize(
    ("text", "expected"),
    [("500ms", 500), ("2s", 2000), ("3m", 180_000), ("1h", 3_600_000), ("7d", 604_800_000)],
)
def test_durations(text: str, expected: int) -> None:
    assert parse_duration_ms(text) == expected
    assert is_duration(text)


@pytest.mark.parametrize(
    ("parse", "texts"),
    [
        (parse_size, ["", "0", "0K", "-1", "1T", "a", "1.M", "1 0", "٣", "10MB/s"]),
        (parse_rate, ["", "0/s", "MB/s", "10MB/m", "fast"]),
        (parse_duration_ms, ["", "10", "s", "1.5s", "-1s", "1 s", "1w", "٣s"]),
    ],
)
def test_what_is_refused_is_named(parse: Callable[[str], int], texts: list[str]) -> None:
    for text in texts:
        with pytest.raises(ConfigError) as raised:
            parse(text)
        assert str(raised.value).startswith(repr(text))
