"""The region of a condition: what of it the indexes of a topic can answer. Pure.

Understood are comparisons of the columns of partition, offset and time with constants, IN lists of
them, AND and OR. Everything else may be true anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.query.expression import (
    Call,
    Field,
    Literal,
    Node,
    UnknownExpressionError,
    read_expression,
)
from millstream.query.region import (
    EVERYWHERE,
    NOWHERE,
    Box,
    Interval,
    Region,
    intersection,
    union,
)

_FLIPPED: Final[Mapping[str, str]] = {
    "equal": "equal",
    "less": "greater",
    "less_equal": "greater_equal",
    "greater": "less",
    "greater_equal": "less_equal",
}


@dataclass(frozen=True, slots=True)
class PositionColumns:
    """The names of a table's columns that say where a record is."""

    partition: str
    offset: str
    timestamp: str


def region_of(condition: pc.Expression | None, columns: PositionColumns) -> Region:
    """Return where records may be for which ``condition`` is true."""
    if condition is None:
        return EVERYWHERE
    try:
        node = read_expression(condition)
    except UnknownExpressionError:
        return EVERYWHERE
    return _region(node, columns)


def _region(node: Node, columns: PositionColumns) -> Region:
    match node:
        case Literal(value):
            is_false = pa.types.is_boolean(value.type) and not value.as_py()  # null is not true
            return NOWHERE if is_false else EVERYWHERE
        case Call("and_kleene" | "and", arguments):
            return intersection(_region(each, columns) for each in arguments)
        case Call("or_kleene" | "or", arguments):
            return union(_region(each, columns) for each in arguments)
        case Call("if_else", (_, one, other)):
            return union((_region(one, columns), _region(other, columns)))
        case Call("is_in", (Field(name),), options) if options is not None:
            values = options["value_set"].values
            return union(_compared("equal", name, each, columns) for each in values)
        case Call(function, (Field(name), Literal(value))) if function in _FLIPPED:
            return _compared(function, name, value, columns)
        case Call(function, (Literal(value), Field(name))) if function in _FLIPPED:
            return _compared(_FLIPPED[function], name, value, columns)
    return EVERYWHERE


def _compared(
    function: str, name: str | None, value: pa.Scalar, columns: PositionColumns
) -> Region:
    if name not in (columns.partition, columns.offset, columns.timestamp):
        return EVERYWHERE
    if not value.is_valid:
        return NOWHERE  # a comparison with null is not true
    number = _microseconds(value) if name == columns.timestamp else _whole_number(value)
    if number is None:
        return EVERYWHERE
    interval = {
        "equal": Interval(number, number),
        "less": Interval(high=number - 1),
        "less_equal": Interval(high=number),
        "greater": Interval(low=number + 1),
        "greater_equal": Interval(low=number),
    }[function]
    if name == columns.partition:
        return (Box(partitions=interval),)
    if name == columns.offset:
        return (Box(offsets=interval),)
    return (Box(times=interval),)


def _whole_number(value: pa.Scalar) -> int | None:
    return int(value.as_py()) if pa.types.is_integer(value.type) else None


def _microseconds(value: pa.Scalar) -> int | None:
    kind = value.type
    if not pa.types.is_timestamp(kind) or kind.tz is None or kind.unit != "us":
        return None
    return int(value.value)
