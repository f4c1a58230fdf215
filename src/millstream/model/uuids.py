"""Random ids of sixteen bytes."""

from __future__ import annotations

from collections.abc import Callable


def random_uuid(random_bytes: Callable[[int], bytes]) -> bytes:
    """Return a UUID of version 4 (RFC 9562) made of what ``random_bytes`` answers."""
    raw = bytearray(random_bytes(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    return bytes(raw)
