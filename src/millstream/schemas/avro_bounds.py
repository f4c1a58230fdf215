"""Avro schemas as fastavro takes them, and how much a short datum may ask of its reader.

fastavro calls itself in C for each level of a datum, and looks at no limit: a schema that contains
itself and some thousand bytes end the process. An array whose items take no bytes has as many as
its first bytes say. The digits of a decimal take a time that grows with the square of its bytes,
half a minute for 300 KB. A schema may also name a type often, whose fields name the next one often:
few of them written out are more than any memory holds.

Datums with which one of this can happen, which are rare, are gone through once before they are
read. Those that cannot be of their schema are refused, so that fastavro goes the same way.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

MOST_TYPES: Final = 100_000
"""As many types as a schema may have that is written out, each name by what it stands for."""

_MOST_DEEP: Final = 200
"""Levels of a datum; a record in a union, or in an array, takes two."""
_MOST_EMPTY: Final = 1_000_000
"""Values that take no bytes in the arrays of a datum."""
_MOST_DECIMAL_BYTES: Final = 1_000
_LONGEST_NUMBER: Final = 10
_PARSED: Final = ("__fastavro_parsed", "__named_schemas")
"""What fastavro writes into schemas that it has parsed, and takes its word for."""
_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}

Check = Callable[[bytes], None]


def parse_avro(definition: bytes) -> Any:
    """Parse an Avro schema. ValueError for one that is too large when it is written out; fastavro
    raises various exceptions for an invalid one.
    """
    from fastavro import parse_schema

    text: Any = json.loads(definition)
    if isinstance(text, dict):
        text = {name: each for name, each in text.items() if name not in _PARSED}
    parsed: Any = parse_schema(text)
    if _Shape(parsed).size(parsed) > MOST_TYPES:
        raise ValueError(f"written out, the schema has more than {MOST_TYPES:,} types")
    return parsed


@dataclass(frozen=True, slots=True)
class Bounds:
    """What datums of a schema may ask for."""

    check: Check | None
    """Raises ValueError for a datum that asks too much, or is not of its schema; None where none of
    them asks too much."""
    is_endless: bool
    """True where a datum may be nested as deep, or have as many items, as it says."""


def bounds_of(parsed: Any) -> Bounds:
    """Return the bounds of a schema that :func:`parse_avro` returned."""
    shape = _Shape(parsed)
    shape.size(parsed)
    is_endless = shape.contains_itself or shape.has_empty_items

    def check(datum: bytes) -> None:
        if is_endless or len(datum) > _MOST_DECIMAL_BYTES:
            _Datum(datum, shape).check(parsed)

    return Bounds(check if is_endless or shape.has_decimals else None, is_endless)


class _Shape:
    """The named types of a schema, and what is true of each."""

    def __init__(self, parsed: Any) -> None:
        self.named: dict[str, Any] = {}
        self._sizes: dict[str, int] = {}
        self._empty: dict[str, bool] = {}
        self._items: list[Any] = []
        self.contains_itself = self.has_decimals = False
        self._collect(parsed)
        self.has_empty_items = any(self.is_empty(each) for each in self._items)

    def size(self, schema: Any) -> int:
        """Return how many types a schema has that is written out; a type inside of itself is one,
        and what is far too much is not counted to its end.
        """
        name = self._name(schema)
        if name in self._sizes:
            # 0 while it is being counted.
            self.contains_itself |= not self._sizes[name]
            return self._sizes[name] or 1
        if name:
            self._sizes[name] = 0
            schema = self.named[name]
        found = min(1 + sum(map(self.size, _inside(schema))), 2 * MOST_TYPES)
        if name:
            self._sizes[name] = found
        return found

    def is_empty(self, schema: Any) -> bool:
        """Tell whether a value takes no bytes."""
        name = self._name(schema)
        if name in self._empty:
            return self._empty[name]
        if name:
            self._empty[name] = False  # of one that contains itself there is no value
            schema = self.named[name]
        kind = _kind(schema)
        if isinstance(kind, dict):
            found = self.is_empty(kind)
        elif kind in ("record", "error"):
            found = all(self.is_empty(each) for each in _inside(schema))
        else:
            found = kind == "null" or (kind == "fixed" and not schema["size"])
        if name:
            self._empty[name] = found
        return found

    def resolved(self, schema: Any) -> Any:
        """Return what a name stands for, and else the schema itself."""
        return self.named[schema] if isinstance(schema, str) and schema in self.named else schema

    def _name(self, schema: Any) -> str:
        if isinstance(schema, dict):
            schema = schema.get("name")
        return schema if isinstance(schema, str) and schema in self.named else ""

    def _collect(self, schema: Any) -> None:
        if isinstance(schema, dict):
            if isinstance(schema.get("name"), str):
                self.named[schema["name"]] = schema
            if schema["type"] == "array":
                self._items.append(schema["items"])
            self.has_decimals |= schema.get("logicalType") == "decimal"
        for each in _inside(schema):
            self._collect(each)


def _kind(schema: Any) -> Any:
    """Return the name of a kind, ``union``, or a further description."""
    if isinstance(schema, list):
        return "union"
    return schema["type"] if isinstance(schema, dict) else schema


def _inside(schema: Any) -> list[Any]:
    """Return the schemas right inside of one."""
    if isinstance(schema, list):
        return schema
    if not isinstance(schema, Mapping):
        return []
    if "fields" in schema:
        return [each["type"] for each in schema["fields"]]
    found = [schema[each] for each in ("items", "values") if each in schema]
    return found or [schema["type"]] * isinstance(schema["type"], dict | list)


class _Datum:
    """A datum that is gone through."""

    def __init__(self, data: bytes, shape: _Shape) -> None:
        self._data = data
        self._shape = shape
        self._at = 0
        self._empty = 0

    def check(self, schema: Any) -> None:
        """Raise ValueError unless it is one of the schema, and asks no more than it may."""
        self._value(schema, _MOST_DEEP)

    def _value(self, schema: Any, left: int) -> None:
        if not left:
            raise ValueError(f"nested more than {_MOST_DEEP} deep")
        schema = self._shape.resolved(schema)
        kind = _kind(schema)
        if not isinstance(kind, str):
            self._value(kind, left - 1)
        elif kind in ("array", "map"):
            self._blocks(schema, left - 1, is_map=kind == "map")
        elif kind == "union":
            self._value(self._branch(schema), left - 1)
        elif kind in ("record", "error"):
            for each in schema["fields"]:
                self._value(each["type"], left - 1)
        else:
            self._plain_value(schema, kind)

    def _plain_value(self, schema: Any, kind: str) -> None:
        if kind in ("bytes", "string"):
            self._bytes(schema, self._number())
        elif kind == "fixed":
            self._bytes(schema, schema["size"])
        elif kind in ("int", "long", "enum"):
            self._number()
        else:
            self._skip(_SIZES[kind])

    def _branch(self, union: list[Any]) -> Any:
        branch = self._number()
        if not 0 <= branch < len(union):
            raise ValueError(f"there is no branch {branch} of a union")
        return union[branch]

    def _bytes(self, schema: Any, size: int) -> None:
        is_decimal = isinstance(schema, dict) and schema.get("logicalType") == "decimal"
        if is_decimal and size > _MOST_DECIMAL_BYTES:
            raise ValueError(f"a decimal of {size} bytes")
        self._skip(size)

    def _blocks(self, schema: Any, left: int, *, is_map: bool) -> None:
        item = schema["values" if is_map else "items"]
        is_empty = not is_map and self._shape.is_empty(item)
        while count := self._number():
            if count < 0:
                count = -count
                self._number()
            if is_empty:
                self._empty += count * self._shape.size(item)
                if self._empty > _MOST_EMPTY:
                    raise ValueError(f"more than {_MOST_EMPTY:,} values that take no bytes")
                continue
            for _ in range(count):
                if is_map:
                    self._skip(self._number())
                self._value(item, left)

    def _number(self) -> int:
        value = 0
        for shift in range(0, 7 * _LONGEST_NUMBER, 7):
            self._skip(1)
            byte = self._data[self._at - 1]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> 64:
                    break
                return (value >> 1) ^ -(value & 1)
        raise ValueError("a number of more than 64 bits")

    def _skip(self, size: int) -> None:
        if not 0 <= size <= len(self._data) - self._at:
            raise ValueError("the datum is cut off")
        self._at += size
