"""Single records to Python values by their schemas: what consoles and consumers show.

Loads and queries make columns instead, from the same definitions (:func:`definition_of`).
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from millstream.schemas.avro_bounds import bounds_of, parse_avro
from millstream.schemas.avro_text import avro_text
from millstream.schemas.complete import CompleteSchema
from millstream.schemas.framing import (
    KEY_HEADER,
    VALUE_HEADER,
    Frame,
    read_frame,
)
from millstream.schemas.registry import SchemaRegistry
from millstream.schemas.schema import InvalidSchemaError, SchemaKey, SchemaType, named

Headers = Iterable[tuple[str, bytes | None]]
_MOST_READERS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Definition:
    """A schema that needs nothing further: an Avro schema's JSON, a Protobuf descriptor set, or a
    JSON Schema with its imports in ``schema``.
    """

    kind: SchemaType
    content: bytes
    schema: CompleteSchema
    message: str = ""
    """The full name of the Protobuf message."""


def definition_of(schema: CompleteSchema, indexes: tuple[int, ...] = (0,)) -> Definition:
    """Return the definition of a schema; ``indexes`` are a Protobuf message's place in it.

    InvalidSchemaError where it cannot be used.
    """
    if schema.kind is SchemaType.AVRO:
        return Definition(schema.kind, avro_text(schema).encode(), schema)
    if schema.kind is SchemaType.PROTOBUF:
        from millstream.schemas.protoc import descriptor_set, message_name

        content, file = descriptor_set(schema)
        return Definition(schema.kind, content, schema, message_name(content, file, indexes))
    return Definition(schema.kind, schema.text.encode(), schema)


def header_of(headers: Headers | None, *, is_key: bool) -> bytes | None:
    """Return the header that names the schema, None where there is none."""
    name = KEY_HEADER if is_key else VALUE_HEADER
    found = None
    for key, value in headers or ():
        if key == name:
            found = value
    return found


class ValueDecoder:
    """Reads values, or keys, that name their schemas."""

    def __init__(self, registry: SchemaRegistry, kind: SchemaType | None = None) -> None:
        """``kind`` is needed for Protobuf in a header or a value: message indexes follow there."""
        self._registry = registry
        self._kind = kind
        self._readers: dict[tuple[SchemaKey, tuple[int, ...]], Callable[[bytes], Any]] = {}

    def decode(self, value: bytes, headers: Headers | None = None, *, is_key: bool = False) -> Any:
        """Return what JSON has for it, and besides: ``bytes``, times, ``Decimal`` of Avro.

        ValueError for bytes that are not of their schema; UnknownSchemaError, InvalidSchemaError;
        RegistryAwayError and RegistryRefusedError.
        """
        header = header_of(headers, is_key=is_key)
        first = read_frame(value, has_indexes=False, header=header)
        schema = self._registry.schema(first.key)
        if self._kind is not None and schema.kind is not self._kind:
            raise InvalidSchemaError(f"{named(first.key)} is {schema.kind}, not {self._kind}")
        has_indexes = schema.kind is SchemaType.PROTOBUF
        found = read_frame(value, has_indexes=True, header=header) if has_indexes else first
        return self._reader(found, schema)(value[found.position :])

    def _reader(self, found: Frame, schema: CompleteSchema) -> Callable[[bytes], Any]:
        place = (found.key, found.indexes)
        if place not in self._readers:
            if len(self._readers) >= _MOST_READERS:
                self._readers.clear()
            self._readers[place] = reader_of(definition_of(schema, found.indexes or (0,)))
        return self._readers[place]


def reader_of(definition: Definition) -> Callable[[bytes], Any]:
    """Return a function that reads one datum; it raises ValueError."""
    if definition.kind is SchemaType.AVRO:
        return _avro_reader(definition)
    if definition.kind is SchemaType.PROTOBUF:
        return _protobuf_reader(definition)
    return json.loads


def _avro_reader(definition: Definition) -> Callable[[bytes], Any]:
    from fastavro import schemaless_reader

    try:
        parsed = parse_avro(definition.content)
        check = bounds_of(parsed).check
    except Exception as error:  # fastavro raises various exceptions for an invalid schema
        raise InvalidSchemaError(f"not an Avro schema: {error}") from error

    def read(datum: bytes) -> Any:
        if check is not None:
            check(datum)
        stream = io.BytesIO(datum)
        try:
            found: Any = schemaless_reader(stream, parsed, None)
        except Exception as error:  # fastavro raises various exceptions for invalid bytes
            raise ValueError(f"not of its Avro schema: {error!r}") from error
        if stream.tell() != len(datum):
            raise ValueError(f"{len(datum) - stream.tell()} bytes are left behind the datum")
        return found

    return read


def _protobuf_reader(definition: Definition) -> Callable[[bytes], Any]:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass

    pool = DescriptorPool()
    try:
        for file in FileDescriptorSet.FromString(definition.content).file:
            pool.Add(file)
        kind = GetMessageClass(pool.FindMessageTypeByName(definition.message))
    except Exception as error:  # protobuf raises various exceptions for an invalid descriptor set
        raise InvalidSchemaError(f"not a Protobuf schema: {error}") from error

    def read(datum: bytes) -> Any:
        try:
            message = kind.FromString(datum)
        except DecodeError as error:
            raise ValueError(f"not of its Protobuf schema: {error}") from None
        return MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool)

    return read
