"""Keys that name their schemas: option ``key`` as ``avro``, ``protobuf`` or ``json``.

The column ``_key`` has the type of the schema that the table was made with: a number, a text, a
record. A key of another schema is read with its own and fits by name; one that has more than the
column holds makes its record a dead letter, because keys without a part of theirs would be equal
that are not. A null stays null.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from millstream.model.errors import ConfigError
from millstream.schemas.avro_bounds import bounds_of, parse_avro
from millstream.schemas.registry import open_registry
from millstream.schemas.schema import SchemaType, named
from millstream.schemas.values import Definition
from millstream.spark.lakehouse.formats.format import (
    Decoded,
    Format,
    FormatSpec,
    Rejected,
    reason_of,
)
from millstream.spark.lakehouse.formats.frames import Framed, read_frames
from millstream.spark.lakehouse.formats.registered import (
    NotThisSchemaError,
    definition,
)
from millstream.spark.lakehouse.widening import wider

_KEY: Final = "_key"

Read = Callable[[bytes], Any]


class FramedKeys:
    """A format whose keys name their schemas."""

    def __init__(self, inner: Format, spec: FormatSpec) -> None:
        self._inner = inner
        self._kind = spec.option("key")
        if spec.registry is None:
            raise ConfigError(f"key {self._kind} needs a registry (--schema-registry URL or FILE)")
        if spec.key_type is None:
            raise ConfigError("the type of the keys is not known")
        self._type = spec.key_type
        self._registry = open_registry(spec.registry)
        self._readers: dict[object, Read | str] = {}

    def table_schema(self) -> pa.Schema:
        """Return the format's columns; ``_key`` has the type of the keys."""
        schema = self._inner.table_schema()
        return pa.schema([e.with_type(self._type) if e.name == _KEY else e for e in schema])

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Decode values and keys. Raises RegistryAwayError and RegistryRefusedError."""
        found = self._inner.decode(batch)
        keys, reasons = self._keys(batch)
        gone = {each.row for each in found.rejected}
        kept = [row for row in range(len(batch)) if row not in gone]
        good = [place for place, row in enumerate(kept) if row not in reasons]
        rows = found.rows
        if len(good) < len(kept):
            rows = rows.take(pa.array(good, pa.int32()))
        index = rows.schema.get_field_index(_KEY)
        values = pa.array([keys[kept[place]] for place in good], self._type)
        rejected = [*found.rejected]
        rejected += [Rejected(row, why) for row, why in reasons.items() if row not in gone]
        rejected.sort(key=lambda each: each.row)
        return Decoded(
            rows.set_column(index, pa.field(_KEY, self._type), values), rejected, found.wider
        )

    def _keys(self, batch: pa.RecordBatch) -> tuple[list[Any], dict[int, str]]:
        """Return the keys of all rows, and why some of them cannot be read."""
        frames = read_frames(batch, has_indexes=self._kind == "protobuf", is_key=True)
        keys: list[Any] = [None] * len(batch)
        reasons = {each.row: f"the key: {each.reason}" for each in frames.rejected}
        for group in frames.groups:
            read = self._reader(group)
            for row, datum in zip(group.rows.tolist(), group.data.to_pylist(), strict=True):
                if isinstance(read, str):
                    reasons[row] = read
                    continue
                try:
                    keys[row] = read(datum)
                    pa.scalar(keys[row], self._type)
                except Exception as error:  # libraries raise various exceptions for invalid bytes
                    reasons[row] = f"the key: {reason_of(error)}"
        return keys, reasons

    def _reader(self, group: Framed) -> Read | str:
        place = (group.key, group.indexes)
        if place not in self._readers:
            try:
                found = definition(self._registry, group.key, group.indexes, self._kind)
                self._check(found, group)
                self._readers[place] = _reader(found)
            except (NotThisSchemaError, ConfigError) as error:
                self._readers[place] = f"the key: {error}"
        return self._readers[place]

    def _check(self, found: Definition, group: Framed) -> None:
        own = key_type(found)
        if wider(self._type, own) != self._type:
            raise NotThisSchemaError(
                f"{named(group.key)} is {own}, which the column _key, {self._type}, does not hold"
            )


def key_type(found: Definition) -> pa.DataType:
    """Return the type of a key's schema; ConfigError where it has none."""
    if found.kind is SchemaType.AVRO:
        from millstream.spark.lakehouse.formats import avro

        return avro.type_of(found.content)
    if found.kind is SchemaType.PROTOBUF:
        from millstream.spark.lakehouse.formats import protobuf

        return pa.struct(list(protobuf.columns_of(found.content, found.message)))
    from millstream.spark.lakehouse.formats import json_schema

    return json_schema.type_of(found.schema)


def _reader(found: Definition) -> Read:
    if found.kind is SchemaType.AVRO:
        return _avro_reader(found.content)
    if found.kind is SchemaType.PROTOBUF:
        from millstream.spark.lakehouse.formats import protobuf

        return protobuf.reader_of(found.content, found.message)
    return json.loads


def _avro_reader(content: bytes) -> Read:
    from fastavro import schemaless_reader

    from millstream.spark.lakehouse.formats.avro import plain_value

    parsed = parse_avro(content)
    check = bounds_of(parsed).check

    def read(datum: bytes) -> Any:
        if check is not None:
            check(datum)
        stream = io.BytesIO(datum)
        value = schemaless_reader(stream, parsed, None)
        if stream.tell() != len(datum):
            raise ValueError(f"{len(datum) - stream.tell()} bytes are left behind the datum")
        return plain_value(value)

    return read
