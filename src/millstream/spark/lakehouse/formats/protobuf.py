"""protobuf: each value is one message of a type that a descriptor set describes.

Options: ``message`` is the full name of the type. The definition is what ``protoc
--include_imports --descriptor_set_out`` writes. ``evolve`` false leaves out the fields that a
definition has got since the columns were pinned. A field of a message without fields has no column.

The kernel reads the messages by a program (`protobuf_program`); what it leaves is read here, value
by value, and so are all where there is no program or no kernel. The entries of a map come in any
order, as Protobuf has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from millstream.model.errors import ConfigError
from millstream.records.protobuf_kernel import protobuf_library
from millstream.spark.lakehouse.formats.compiled import with_left_ones
from millstream.spark.lakehouse.formats.format import (
    TIMESTAMP,
    Decoded,
    Fields,
    FormatSpec,
    decode_rows,
    typed,
    with_metadata,
)
from millstream.spark.lakehouse.formats.protobuf_program import (
    TIMESTAMP_MESSAGE,
    compile_protobuf,
)

_MOST_FIELDS: Final = 100_000
_TYPES: Final = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT64: pa.decimal128(20, 0),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_ENUM: pa.string(),
}


class ProtobufFormat:
    """Messages to rows."""

    def __init__(self, spec: FormatSpec) -> None:
        descriptor = read_descriptor(spec.definition, spec.option("message"))
        self._message = GetMessageClass(descriptor)
        self._columns = spec.columns if len(spec.columns) else _columns(descriptor)
        library = protobuf_library()
        self._compiled = (
            None if library is None else compile_protobuf(library, descriptor, self._columns)
        )

    def table_schema(self) -> pa.Schema:
        """Return the columns of the fields and of the records' positions."""
        return with_metadata(self._columns)

    @property
    def is_compiled(self) -> bool:
        """True where the kernel reads the messages."""
        return self._compiled is not None

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Read every message."""
        if self._compiled is None or not len(batch):
            return self._decode_slowly(batch)
        found = self._compiled.program.read(batch.column("value"))
        written = dict(zip(self._compiled.written, found.arrays, strict=True))
        count = len(batch) - len(found.left)
        arrays = [
            written[each.name] if each.name in written else pa.nulls(count, each.type)
            for each in self._columns
        ]
        return with_left_ones(arrays, found.left, batch, self._columns, self._decode_slowly)

    def _decode_slowly(self, batch: pa.RecordBatch) -> Decoded:
        return decode_rows(batch, self._columns, self._read)

    def _read(self, value: bytes) -> Fields:
        message = self._message()
        message.ParseFromString(value)
        return _fields(message)


def read_descriptor(definition: bytes, name: str) -> Descriptor:
    """Return a message type's description; ConfigError when the set lacks it."""
    pool = DescriptorPool()
    try:
        for file in FileDescriptorSet.FromString(definition).file:
            pool.Add(file)
        return pool.FindMessageTypeByName(name)
    except KeyError:
        raise ConfigError(f"option message: the descriptor set has no message {name}") from None
    except Exception as error:  # protobuf raises various exceptions for an invalid descriptor set
        raise ConfigError(f"not a Protobuf descriptor set: {error}") from error


def reader_of(definition: bytes, name: str) -> Callable[[bytes], Fields]:
    """Return a function that reads one message of a type as its fields."""
    kind = GetMessageClass(read_descriptor(definition, name))
    return lambda datum: _fields(kind.FromString(datum))


def columns_of(definition: bytes, name: str) -> pa.Schema:
    """Return the columns of a message type."""
    return _columns(read_descriptor(definition, name))


def _columns(descriptor: Descriptor) -> pa.Schema:
    if _size(descriptor, {}) > _MOST_FIELDS:
        raise ConfigError(f"written out, the message has more than {_MOST_FIELDS:,} fields")
    return typed(pa.schema([(field.name, _type(field, ())) for field in descriptor.fields]))


def _size(descriptor: Descriptor, known: dict[str, int]) -> int:
    """Return how many fields a message has in which each message is replaced by its fields."""
    if descriptor.full_name not in known:
        known[descriptor.full_name] = 0  # while it is counted, and so inside of itself
        inside = (each.message_type for each in descriptor.fields)
        sizes = (_size(each, known) for each in inside if each is not None)
        known[descriptor.full_name] = min(len(descriptor.fields) + sum(sizes), 2 * _MOST_FIELDS)
    return known[descriptor.full_name]


def _type(field: FieldDescriptor, inside: tuple[str, ...]) -> pa.DataType:
    if _is_map(field):
        key, value = field.message_type.fields
        return pa.map_(_single(key, inside), _single(value, inside))
    single = _single(field, inside)
    return pa.list_(single) if field.is_repeated else single


def _single(field: FieldDescriptor, inside: tuple[str, ...]) -> pa.DataType:
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return pa.binary() if field.type == FieldDescriptor.TYPE_BYTES else pa.string()
    if field.cpp_type != FieldDescriptor.CPPTYPE_MESSAGE:
        return _TYPES[field.cpp_type]
    message = field.message_type
    if message.full_name == TIMESTAMP_MESSAGE:
        return TIMESTAMP
    if message.full_name in inside:
        raise ConfigError(f"the message {message.full_name} contains itself: it has no columns")
    deeper = (*inside, message.full_name)
    return pa.struct([(each.name, _type(each, deeper)) for each in message.fields])


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _fields(message: Any) -> dict[str, Any]:
    """Return a message's fields; an absent field with presence is None."""
    return {
        field.name: None
        if field.has_presence and not message.HasField(field.name)
        else _value(field, getattr(message, field.name))
        for field in message.DESCRIPTOR.fields
    }


def _value(field: FieldDescriptor, value: Any) -> Any:
    if _is_map(field):
        inner = field.message_type.fields_by_name["value"]
        return [(key, _one(inner, each)) for key, each in value.items()]
    if field.is_repeated:
        return [_one(field, each) for each in value]
    return _one(field, value)


def _one(field: FieldDescriptor, value: Any) -> Any:
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if field.cpp_type != FieldDescriptor.CPPTYPE_MESSAGE:
        return value
    if field.message_type.full_name == TIMESTAMP_MESSAGE:
        return value.ToMicroseconds()
    return _fields(value)
