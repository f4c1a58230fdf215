"""Programs for the kernel (``native/avro.c``), made of Avro schemas and a table's columns.

A program does what `avro` does value by value. It is made only for pairs of types of which that is
certain, nested ones too: a union of a type with null, any logical type that `avro` knows, numbers
in wider columns, and a reader's schema with fields in another order, fewer fields, other names by
aliases, promoted types and, in the outermost record, defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from fastavro.read import LOGICAL_READERS

from millstream.records.avro_kernel import (
    LEAST,
    MOST,
    NO_COLUMN,
    AvroLibrary,
    AvroProgram,
    Read,
    Step,
)
from millstream.records.out_columns import OutShape
from millstream.spark.lakehouse.formats.format import (
    FIRST_TIME_US,
    LAST_TIME_US,
    LOCAL_TIMESTAMP,
    MOST_EXACT,
    TIMESTAMP,
)

_DEEPEST: Final = 40
_DAY_MS: Final = 86_400_000
_FIRST_DAY: Final = FIRST_TIME_US // (_DAY_MS * 1000)
_LAST_DAY: Final = LAST_TIME_US // (_DAY_MS * 1000)
_MOST_DECIMAL_BYTES: Final = 16
_MOST_DIGITS: Final = 38
_MOST_FIXED_BYTES: Final = 2**31 - 1

_PROMOTED: Final[Mapping[str, tuple[str, ...]]] = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_PRIMITIVE: Final = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
_FRACTIONS: Final = ("float", "double")


@dataclass(frozen=True, slots=True)
class _Logical:
    column: pa.DataType
    read: Read
    low: int = LEAST
    high: int = MOST
    factor: int = 1


def _time(column: pa.DataType, per_us: int) -> _Logical:
    low, high = -(-FIRST_TIME_US // per_us), LAST_TIME_US // per_us
    return _Logical(column, Read.INT_64, low, high, per_us)


_LOGICAL: Final[Mapping[str, _Logical]] = {
    "int-date": _Logical(pa.date32(), Read.INT_32, _FIRST_DAY, _LAST_DAY),
    "int-time-millis": _Logical(pa.time64("us"), Read.INT_64, 0, _DAY_MS - 1, 1000),
    "long-time-micros": _Logical(pa.time64("us"), Read.INT_64, 0, _DAY_MS * 1000 - 1),
    "long-timestamp-millis": _time(TIMESTAMP, 1000),
    "long-timestamp-micros": _time(TIMESTAMP, 1),
    "long-local-timestamp-millis": _time(LOCAL_TIMESTAMP, 1000),
    "long-local-timestamp-micros": _time(LOCAL_TIMESTAMP, 1),
    "string-uuid": _Logical(pa.string(), Read.UUID),
}


class _NotOursError(Exception):
    """There is no program for these types."""


@dataclass(frozen=True, slots=True)
class CompiledAvro:
    """A program and which columns of the table it writes."""

    program: AvroProgram
    written: Sequence[str]
    defaults: Sequence[str]
    """Columns that have the same value in each row: the reader's defaults."""


def compile_avro(
    library: AvroLibrary, writer: Any, reader: Any | None, columns: pa.Schema
) -> CompiledAvro | None:
    """Return a program that reads records of the schema ``writer``, which `avro.read_schema` has
    parsed, by the rules for ``reader`` if that is another one; None if there is no such program.
    """
    try:
        return _Compiler(writer, reader).compile(library, columns)
    except (_NotOursError, AttributeError, KeyError, TypeError, ValueError, OverflowError):
        return None


class _Compiler:
    def __init__(self, writer: Any, reader: Any | None) -> None:
        self._writer, self._reader = writer, reader
        self._written: dict[str, Any] = {}
        self._wanted: dict[str, Any] = {}
        _collect(writer, self._written)
        _collect(reader, self._wanted)
        self._shape = OutShape()
        self._deep = 0

    def compile(self, library: AvroLibrary, columns: pa.Schema) -> CompiledAvro:
        reader = self._reader
        if reader is not None and _last_name(self._writer) != _last_name(reader):
            raise _NotOursError
        pairs = _pair_fields(self._writer, reader)
        read = {name for _, name, _ in pairs}
        missing = [
            each for each in (reader or {"fields": ()})["fields"] if each["name"] not in read
        ]
        if any("default" not in each for each in missing):
            raise _NotOursError
        defaults = [e["name"] for e in missing if columns.get_field_index(e["name"]) >= 0]
        written = [each.name for each in columns if each.name in read]
        places = {name: self._shape.add(columns.field(name).type) for name in written}
        root = Step(Read.RECORD)
        for kind, name, wanted in pairs:
            place = NO_COLUMN if name is None else places.get(name, NO_COLUMN)
            root.inside.append(self._step(kind, wanted, place))
        return CompiledAvro(AvroProgram(library, root, self._shape), written, defaults)

    def _step(self, writer: Any, reader: Any | None, column: int) -> Step:
        self._deep += 1
        if self._deep > _DEEPEST:
            raise _NotOursError
        try:
            if isinstance(writer, list):
                return self._union(writer, reader, column)
            if isinstance(reader, list):
                reader = _only_choice(reader)
            return self._single(
                _resolved(writer, self._written), _resolved(reader, self._wanted), column
            )
        finally:
            self._deep -= 1

    def _union(self, writer: list[Any], reader: Any | None, column: int) -> Step:
        choice = _only_choice(writer)
        null = writer.index("null") if "null" in writer else -1
        if isinstance(reader, list):
            null = null if "null" in reader else -1
            reader = _only_choice(reader)
        elif reader is not None:
            null = -1
        if null >= 0 and column != NO_COLUMN:
            self._shape.let_be_null(column)
        inside = self._step(choice, reader, column)
        return Step(Read.UNION, column, low=writer.index(choice), high=null, inside=[inside])

    def _single(self, writer: Any, reader: Any | None, column: int) -> Step:
        kind = writer if isinstance(writer, str) else writer["type"]
        wanted = reader if reader is None or isinstance(reader, str) else reader["type"]
        if not isinstance(kind, str) or not (wanted is None or isinstance(wanted, str)):
            raise _NotOursError
        if wanted not in (None, kind) and wanted not in _PROMOTED.get(kind, ()):
            raise _NotOursError
        logical = None if isinstance(writer, str) else writer.get("logicalType")
        if logical is not None and f"{kind}-{logical}" in LOGICAL_READERS:
            return self._logical(f"{kind}-{logical}", writer, column)
        if kind in _PRIMITIVE:
            return self._primitive(kind, wanted, column)
        if kind == "array":
            return self._array(writer, reader, column)
        if kind == "map":
            return self._map(writer, reader, column)
        return self._named(kind, writer, reader, column)

    def _named(
        self, kind: str, writer: dict[str, Any], reader: dict[str, Any] | None, column: int
    ) -> Step:
        if reader is not None and writer["name"] != reader["name"]:
            raise _NotOursError
        if kind == "record":
            return self._record(writer, reader, column)
        if kind == "enum":
            return self._enum(writer, reader, column)
        is_same = reader is None or writer["size"] == reader["size"]
        if kind == "fixed" and is_same and 0 <= writer["size"] <= _MOST_FIXED_BYTES:
            self._expect(column, pa.binary())
            return Step(Read.FIXED, column, size=writer["size"])
        raise _NotOursError

    def _kind(self, column: int) -> pa.DataType | None:
        return None if column == NO_COLUMN else self._shape.kind(column)

    def _expect(self, column: int, *kinds: pa.DataType) -> None:
        found = self._kind(column)
        if found is not None and found not in kinds:
            raise _NotOursError

    def _logical(self, name: str, writer: dict[str, Any], column: int) -> Step:
        if name in ("bytes-decimal", "fixed-decimal"):
            digits, scale, size = writer["precision"], writer.get("scale", 0), writer.get("size", 0)
            if size > _MOST_DECIMAL_BYTES or not 1 <= digits <= _MOST_DIGITS:
                raise _NotOursError
            self._expect(column, pa.decimal128(digits, scale))
            read = Read.FIXED_DECIMAL if name == "fixed-decimal" else Read.DECIMAL
            return Step(read, column, high=digits, size=size)
        found = _LOGICAL.get(name)
        if found is None:
            raise _NotOursError
        self._expect(column, found.column)
        return Step(found.read, column, low=found.low, high=found.high, factor=found.factor)

    def _primitive(self, kind: str, wanted: str | None, column: int) -> Step:
        if kind == "null":
            if column != NO_COLUMN:
                raise _NotOursError
            return Step(Read.NULL)
        if kind == "boolean":
            self._expect(column, pa.bool_())
            return Step(Read.BOOLEAN, column)
        if kind in ("int", "long"):
            return self._integer(wanted, column)
        found = self._kind(column)
        if kind == "float":
            self._expect(column, pa.float32(), pa.float64())
            return Step(Read.FLOAT if found == pa.float32() else Read.FLOAT_DOUBLE, column)
        if kind == "double":
            self._expect(column, pa.float64())
            return Step(Read.DOUBLE, column)
        to_text = (wanted or kind) == "string"
        self._expect(column, pa.string() if to_text else pa.binary())
        # A string that becomes bytes has to be one, too.
        return Step(Read.TEXT if to_text or kind == "string" else Read.BYTES, column)

    def _integer(self, wanted: str | None, column: int) -> Step:
        found = self._kind(column)
        if found == pa.float64():
            return Step(Read.INT_DOUBLE, column, low=-int(MOST_EXACT), high=int(MOST_EXACT))
        if wanted in _FRACTIONS and found is not None:
            raise _NotOursError
        if found == pa.int32():
            return Step(Read.INT_32, column, low=-(2**31), high=2**31 - 1)
        self._expect(column, pa.int64())
        return Step(Read.INT_64, column)

    def _enum(self, writer: dict[str, Any], reader: dict[str, Any] | None, column: int) -> Step:
        self._expect(column, pa.string())
        known = writer["symbols"] if reader is None else reader["symbols"]
        symbols = [each.encode() if each in known else None for each in writer["symbols"]]
        return Step(Read.ENUM, column, symbols=symbols)

    def _array(self, writer: dict[str, Any], reader: dict[str, Any] | None, column: int) -> Step:
        items = NO_COLUMN
        if column != NO_COLUMN:
            if not pa.types.is_list(self._shape.kind(column)):
                raise _NotOursError
            (items,) = self._shape.inside(column)
        wanted = None if reader is None else reader["items"]
        return Step(Read.ARRAY, column, inside=[self._step(writer["items"], wanted, items)])

    def _map(self, writer: dict[str, Any], reader: dict[str, Any] | None, column: int) -> Step:
        items = NO_COLUMN
        if column != NO_COLUMN:
            kind = self._shape.kind(column)
            if not pa.types.is_map(kind) or kind.key_type != pa.string():
                raise _NotOursError
            (entries,) = self._shape.inside(column)
            _, items = self._shape.inside(entries)
        wanted = None if reader is None else reader["values"]
        return Step(Read.MAP, column, inside=[self._step(writer["values"], wanted, items)])

    def _record(self, writer: dict[str, Any], reader: dict[str, Any] | None, column: int) -> Step:
        pairs = _pair_fields(writer, reader)
        read = {name for _, name, _ in pairs}
        if reader is not None and any(each["name"] not in read for each in reader["fields"]):
            raise _NotOursError
        places: dict[str, int] = {}
        if column != NO_COLUMN:
            kind = self._shape.kind(column)
            if not pa.types.is_struct(kind):
                raise _NotOursError
            names = [each.name for each in kind]
            if len(set(names)) != len(names):
                raise _NotOursError
            places = dict(zip(names, self._shape.inside(column), strict=True))
        step = Step(Read.RECORD, column)
        for kind, name, wanted in pairs:
            place = NO_COLUMN if name is None else places.pop(name, NO_COLUMN)
            step.inside.append(self._step(kind, wanted, place))
        for place in places.values():
            self._shape.let_be_null(place)
            step.inside.append(Step(Read.ABSENT, place))
        return step


def _pair_fields(writer: Any, reader: Any | None) -> list[tuple[Any, str | None, Any | None]]:
    """Return of each field of the writer its type, and the name and the type of the reader's field;
    no name where the reader has none.
    """
    if reader is None:
        pairs = [(each["type"], each["name"], None) for each in writer["fields"]]
    else:
        by_name = {each["name"]: each for each in reader["fields"]}
        by_alias = {name: each for each in reader["fields"] for name in each.get("aliases", ())}
        pairs = []
        for each in writer["fields"]:
            found = by_name.get(each["name"], by_alias.get(each["name"]))
            pairs.append(
                (each["type"], None, None)
                if found is None
                else (each["type"], found["name"], found["type"])
            )
    names = [name for _, name, _ in pairs if name is not None]
    if len(set(names)) != len(names):
        raise _NotOursError
    return pairs


def _only_choice(union: list[Any]) -> Any:
    choices = [each for each in union if each != "null"]
    if len(choices) != 1:
        raise _NotOursError
    return choices[0]


def _resolved(schema: Any, known: Mapping[str, Any]) -> Any:
    if isinstance(schema, str) and schema not in _PRIMITIVE:
        return known[schema]
    return schema


def _last_name(schema: dict[str, Any]) -> str:
    name: str = schema["name"].rpartition(".")[2]
    return name


def _collect(schema: Any, known: dict[str, Any]) -> None:
    """Find all named types of a schema."""
    if isinstance(schema, list):
        for each in schema:
            _collect(each, known)
    elif isinstance(schema, dict):
        if "name" in schema:
            known[schema["name"]] = schema
        for each in schema.get("fields", ()):
            _collect(each["type"], known)
        for inside in ("items", "values"):
            _collect(schema.get(inside), known)
