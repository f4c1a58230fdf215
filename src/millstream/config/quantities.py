"""Sizes, rates and durations as people write them. Pure.

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
