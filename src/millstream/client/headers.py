"""Record headers in the forms that users may pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from millstream.client.errors import SerializationError
from millstream.records.record import Header

GivenHeaders: TypeAlias = Iterable[Header] | Mapping[str, bytes | None]
"""Pairs of a name and bytes or None; a mapping if no name occurs twice."""


def header_pairs(headers: GivenHeaders) -> tuple[Header, ...]:
    """Return headers as pairs; SerializationError if they are invalid."""
    pairs = tuple(headers.items() if isinstance(headers, Mapping) else headers)
    for pair in pairs:
        name, content = pair
        if not isinstance(name, str) or not isinstance(content, bytes | None):
            raise SerializationError(f"a header is a str and bytes or None, not {pair!r}")
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise SerializationError(f"the name of a header: {error}") from None
    return pairs
