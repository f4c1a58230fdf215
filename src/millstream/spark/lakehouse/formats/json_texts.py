"""JSON values with the texts that they were read from.

What is taken out of a JSON value and read again by itself keeps its text: a decimal that went
through a double would have lost digits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

_SPACE: Final = " \t\n\r"


@dataclass(frozen=True, slots=True)
class Json:
    """One value and its text."""

    value: Any
    """As ``json`` reads it, but for fractions, which are decimals."""
    text: str

    @property
    def is_object(self) -> bool:
        """True for an object."""
        return isinstance(self.value, dict)

    @property
    def is_null(self) -> bool:
        """True for a null."""
        return self.value is None

    def encoded(self) -> bytes:
        """Return the text in UTF-8; halves of surrogate pairs stay what they were."""
        return self.text.encode("utf-8", "surrogatepass")

    def members(self) -> Mapping[str, Json]:
        """Return the fields of an object, the last of each name; {} for another value."""
        if not self.is_object:
            return {}
        found: dict[str, Json] = {}
        text, place = self.text, _behind_space(self.text, 1)
        while text[place] == '"':
            name, place = _DECODER.raw_decode(text, place)
            start = _behind_space(text, _behind_space(text, place) + 1)
            value, end = _DECODER.raw_decode(text, start)
            found[name] = Json(value, text[start:end])
            place = _behind_space(text, end)
            if text[place] == ",":
                place = _behind_space(text, place + 1)
        return found


def parse(value: bytes) -> Json:
    """Read a value; ValueError where it is none."""
    text = value.decode(json.detect_encoding(value), "surrogatepass")
    start = _behind_space(text, 0)
    found, end = _DECODER.raw_decode(text, start)
    if _behind_space(text, end) < len(text):
        raise json.JSONDecodeError("Extra data", text, end)
    return Json(found, text[start:end])


def of_text(text: str) -> Json:
    """Return a text as a JSON value."""
    return Json(text, json.dumps(text))


def object_of(fields: Mapping[str, Json]) -> bytes:
    """Return an object of these fields."""
    members = ",".join(f"{json.dumps(name)}:{each.text}" for name, each in fields.items())
    return f"{{{members}}}".encode("utf-8", "surrogatepass")


def _fraction(text: str) -> Decimal | float:
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent of very many digits
        return float(text)


_DECODER: Final = json.JSONDecoder(parse_float=_fraction)


def _behind_space(text: str, place: int) -> int:
    while place < len(text) and text[place] in _SPACE:
        place += 1
    return place
