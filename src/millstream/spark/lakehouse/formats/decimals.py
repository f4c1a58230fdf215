"""Decimals of values that are text: none is rounded, and none is larger than its column holds.

Arrow's readers of JSON and CSV compare the digits that are written with the column's precision, and
do not look again after they have added the zeros of its scale. 99999 in a ``decimal(5, 2)`` would
be written to a file as another number.
"""

from __future__ import annotations

import json
import re
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from typing import Any, Final

import pyarrow as pa

_NUMBER: Final = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_EXACT: Final = Context(prec=76, Emax=9999, Emin=-9999, traps=[Inexact, InvalidOperation])


class WrittenFloat(float):
    """A number of JSON that is not whole, and how it was written."""

    __slots__ = ("text",)

    def __new__(cls, text: str) -> WrittenFloat:
        """Keep the text."""
        number = super().__new__(cls, text)
        number.text = text
        return number

    text: str


def are_in_range(array: pa.Array) -> bool:
    """Tell whether the decimals of a column, at any depth, have no more digits than their types."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def to_decimal(value: Any, kind: pa.DataType) -> Decimal:
    """Return a number, or a text that is one, with the scale of ``kind``; ValueError for anything
    else, and where digits would be lost.
    """
    if isinstance(value, WrittenFloat):
        text = value.text
    else:
        text = value if isinstance(value, str) else json.dumps(value)
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text} is not a valid {kind}")
    try:
        number = Decimal(text).quantize(Decimal((0, (1,), -kind.scale)), context=_EXACT)
    except DecimalException:
        raise ValueError(f"{text} is not a valid {kind}") from None
    if len(number.as_tuple().digits) > kind.precision:
        raise ValueError(f"{text} is not a valid {kind}")
    return number
