"""Sizes, rates and durations as people write them, and as they are shown to them. Pure.

=========  ====================================  ======================================
what       written as                            units
=========  ====================================  ======================================
size       ``512``, ``64K``, ``128MB``, ``1.5G``  K, M, G are powers of 1024; the B is free
rate       a size, ``50MB/s``                    bytes per second
duration   ``500ms``, ``90s``, ``15m``, ``7d``   ms, s, m, h, d
=========  ====================================  ======================================
"""

from __future__ import annotations

import re
from typing import Final

from millstream.model.errors import ConfigError

_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMG]?)B?", re.IGNORECASE | re.ASCII)
_FACTORS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_DURATION: Final = re.compile(r"(\d+)(ms|s|m|h|d)", re.ASCII)
_MILLISECONDS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_size(text: str) -> int:
    """Return a size in bytes, at least 1; ConfigError otherwise."""
    size = _bytes(text)
    if not size:
        raise ConfigError(f"{text!r} is not a size, such as 128MB or 1G")
    return size


def parse_rate(text: str) -> int:
    """Return a rate in bytes per second, at least 1; ConfigError otherwise."""
    rate = _bytes(text.strip().removesuffix("/s"))
    if not rate:
        raise ConfigError(f"{text!r} is not a rate, such as 50MB/s")
    return rate


def parse_duration_ms(text: str) -> int:
    """Return a duration in milliseconds; ConfigError otherwise."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"{text!r} is not a duration, such as 500ms, 90s, 15m, 2h or 7d")
    return int(match[1]) * _MILLISECONDS[match[2]]


def is_duration(text: str) -> bool:
    """Tell whether a text is written as a duration."""
    return _DURATION.fullmatch(text.strip()) is not None


def _bytes(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    return 0 if match is None else int(float(match[1]) * _FACTORS[match[2].upper()])


def human_bytes(size: float) -> str:
    """Return a size as people write it: ``512 B``, ``2.4 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def human_duration(seconds: float) -> str:
    """Return a duration as people write it: ``0.8 s``, ``3 m 20 s``, ``2 h 5 m``, ``4 d 1 h``."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds else "0 s"
    units = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
    remaining = int(seconds)
    parts: list[str] = []
    for length, unit in units:
        count, remaining = divmod(remaining, length)
        if count or parts:
            parts.append(f"{count} {unit}")
    return " ".join(part for part in parts[:2] if not part.startswith("0 "))


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: ``1 segment``, ``3 segments``, ``2 entries``,
    ``1,000 rows``.
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"
