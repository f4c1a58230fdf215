"""avro: each value is one Avro datum without a file header.

It is read with the schema that it was written with, into the fields of ``definition`` by the rules
of Avro if that is another one. Values that name their schemas by id (option ``framing``) are
`framed`: without a registry ``schema_id`` says which ids there are, ``7`` that of ``definition``,
and ``5=FILE`` that of another schema; several with commas between them.

``evolve`` false leaves out the fields that a schema has got since the columns were pinned. Fields
that hold nothing (null, a record without fields) have no column. ``local-timestamp-*`` are times
without a zone.

A datum that asks its reader for too much is rejected (`millstream.schemas.avro_bounds`).

The kernel reads the datums by a program (`avro_program`); what it leaves is read here, value by
value, and so are all where there is no program or no kernel.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import numpy as np
import pyarrow as pa
from fastavro import schemaless_reader

from millstream.model.errors import ConfigError
from millstream.records.avro_kernel import avro_library
from millstream.schemas.avro_bounds import bounds_of, parse_avro
from millstream.spark.lakehouse.formats.avro_program import compile_avro
from millstream.spark.lakehouse.formats.compiled import with_left_ones
from millstream.spark.lakehouse.formats.format import (
    LOCAL_TIMESTAMP,
    TIMESTAMP,
    Decoded,
    Fields,
    FormatSpec,
    decode_rows,
    typed,
    with_metadata,
)

_PRIMITIVES: Final = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL: Final = {
    "date": pa.date32(),
    "time-millis": pa.time64("us"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": TIMESTAMP,
    "timestamp-micros": TIMESTAMP,
    "local-timestamp-millis": LOCAL_TIMESTAMP,
    "local-timestamp-micros": LOCAL_TIMESTAMP,
    "uuid": pa.string(),
}


class AvroFormat:
    """Datums to rows."""

    def __init__(self, spec: FormatSpec) -> None:
        self._schema = read_schema(spec.definition)
        self._columns = spec.columns if len(spec.columns) else columns_of(spec.definition)
        is_other = spec.writer and spec.writer != spec.definition
        self._writer = read_schema(spec.writer) if is_other else self._schema
        self._reader = self._schema if is_other else None
        bounds = bounds_of(self._writer)
        self._check = bounds.check
        library = avro_library()
        self._compiled = (
            None
            if library is None or bounds.is_endless
            else compile_avro(library, self._writer, self._reader, self._columns)
        )

    def table_schema(self) -> pa.Schema:
        """Return the columns of the fields and of the records' positions."""
        return with_metadata(self._columns)

    @property
    def is_compiled(self) -> bool:
        """True where the kernel reads the datums."""
        return self._compiled is not None

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Read every datum."""
        if self._compiled is None or not len(batch):
            return self._decode_slowly(batch)
        found = self._compiled.program.read(batch.column("value"))
        constants: dict[str, pa.Array] = {}
        count = len(batch) - len(found.left)
        if count and self._compiled.defaults:
            # What a default is, the plain path says.
            is_left = np.zeros(len(batch), np.bool_)
            is_left[found.left] = True
            sample = self._decode_slowly(batch.slice(int(np.argmin(is_left)), 1))
            if sample.rejected:
                return self._decode_slowly(batch)
            constants = {name: sample.rows.column(name) for name in self._compiled.defaults}
        written = dict(zip(self._compiled.written, found.arrays, strict=True))
        arrays = [
            written[each.name]
            if each.name in written
            else constants[each.name].take(pa.array(np.zeros(count, np.int64)))
            if each.name in constants
            else pa.nulls(count, each.type)
            for each in self._columns
        ]
        return with_left_ones(arrays, found.left, batch, self._columns, self._decode_slowly)

    def _decode_slowly(self, batch: pa.RecordBatch) -> Decoded:
        return decode_rows(batch, self._columns, self._read)

    def _read(self, value: bytes) -> Fields:
        if self._check is not None:
            self._check(value)
        stream = io.BytesIO(value)
        try:
            found: Any = schemaless_reader(stream, self._writer, self._reader)
        except EOFError as error:  # whose text has the address of an object, another each time
            told = str(error).partition(" from <")[0]
            raise ValueError(f"the datum is cut off{told and ': '}{told}") from None
        if stream.tell() != len(value):
            raise ValueError(f"{len(value) - stream.tell()} bytes are left behind the datum")
        return {name: plain_value(each) for name, each in found.items()}


def read_writers(text: str, definition: bytes) -> dict[int, bytes]:
    """Return the schemas of an option ``schema_id`` by their ids; ConfigError for a wrong one."""
    found = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        number, equals, path = part.partition("=")
        if not number.strip().isdecimal() or int(number) >= 1 << 31:
            raise ConfigError(f"option schema_id takes ID or ID=FILE, not {part!r}")
        try:
            schema = Path(path.strip()).expanduser().read_bytes() if equals else definition
        except OSError as error:
            raise ConfigError(f"option schema_id: {path}: {error.strerror}") from None
        found[int(number)] = schema
    if not found:
        raise ConfigError("option schema_id names no id")
    return found


def read_schema(definition: bytes) -> Any:
    """Parse an Avro schema; ConfigError unless it is that of a record."""
    parsed = _parsed(definition)
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise ConfigError("the Avro schema is not that of a record")
    return parsed


def type_of(definition: bytes) -> pa.DataType:
    """Return the type of an Avro schema of any kind; ConfigError where it has none."""
    return typed(pa.schema([("key", _whole_type(_parsed(definition)))])).field(0).type


def columns_of(definition: bytes) -> pa.Schema:
    """Return the columns of an Avro record; ConfigError where it has none."""
    return typed(pa.schema(list(_whole_type(read_schema(definition)))))


def _parsed(definition: bytes) -> Any:
    try:
        return parse_avro(definition)
    except Exception as error:  # fastavro raises various exceptions for an invalid schema
        raise ConfigError(f"not an Avro schema: {error}") from error


def _whole_type(parsed: Any) -> pa.DataType:
    try:
        return _type(parsed, _Names({}))
    except (
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
        OverflowError,
        RecursionError,
    ) as error:
        # fastavro does not look at all of a description: a decimal of 50 digits.
        raise ConfigError(f"an Avro schema that has no columns: {error}") from None


@dataclass(frozen=True, slots=True)
class _Names:
    """The named types, and the types that enclose the present one."""

    known: dict[str, Any]
    inside: tuple[str, ...] = ()

    def into(self, name: str) -> _Names:
        if name in self.inside:
            raise ConfigError(f"the Avro record {name} contains itself: it has no columns")
        return _Names(self.known, (*self.inside, name))


def _type(avro: Any, names: _Names) -> pa.DataType:
    """Return the type of an Avro schema: a union, a name, or a description."""
    if isinstance(avro, list):
        choices = [each for each in avro if each != "null"]
        if len(choices) != 1:
            raise ConfigError(f"an Avro union of several types is not supported: {avro}")
        return _type(choices[0], names)
    if isinstance(avro, str):
        if avro not in _PRIMITIVES and avro not in names.known:
            raise ConfigError(f"an Avro type that is not supported: {avro}")
        return _PRIMITIVES[avro] if avro in _PRIMITIVES else _type(names.known[avro], names)
    return _described_type(avro, names)


def _described_type(avro: dict[str, Any], names: _Names) -> pa.DataType:
    kind = avro["type"]
    if "name" in avro:
        names.known[avro["name"]] = avro
    if avro.get("logicalType") == "decimal":
        return pa.decimal128(avro["precision"], avro.get("scale", 0))
    if avro.get("logicalType") in _LOGICAL:
        return _LOGICAL[avro["logicalType"]]
    if kind == "record":
        inner = names.into(avro["name"])
        return pa.struct([(each["name"], _type(each["type"], inner)) for each in avro["fields"]])
    if kind == "array":
        return pa.list_(_type(avro["items"], names))
    if kind == "map":
        return pa.map_(pa.string(), _type(avro["values"], names))
    return _type(kind, names)


def plain_value(value: Any) -> Any:
    """Return a value in a form that Arrow accepts: Arrow creates maps from pairs, UUIDs are
    text.
    """
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, dict):
        return {name: plain_value(each) for name, each in value.items()}
    if isinstance(value, list):
        return [plain_value(each) for each in value]
    return value
