"""Programs for the kernel (``native/protobuf.c``), made of a message's description and a table's
columns.

A program does what `protobuf` does value by value. There is none for messages with groups or
extensions, for a column of which it is not certain what a field becomes in it, and for descriptions
so deep or so large that nobody wrote them by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from millstream.records.out_columns import OutShape
from millstream.records.protobuf_kernel import (
    NO_COLUMN,
    Absent,
    Holds,
    Into,
    Often,
    ProtobufLibrary,
    ProtobufProgram,
    Step,
)
from millstream.spark.lakehouse.formats.format import MOST_EXACT, TIMESTAMP

TIMESTAMP_MESSAGE: Final = "google.protobuf.Timestamp"

_DEEPEST: Final = 40
_MOST_STEPS: Final = 10_000
_HOLDS: Final = {
    FieldDescriptor.TYPE_INT32: Holds.INT32,
    FieldDescriptor.TYPE_UINT32: Holds.UINT32,
    FieldDescriptor.TYPE_SINT32: Holds.SINT32,
    FieldDescriptor.TYPE_INT64: Holds.INT64,
    FieldDescriptor.TYPE_SINT64: Holds.SINT64,
    FieldDescriptor.TYPE_UINT64: Holds.UINT64,
    FieldDescriptor.TYPE_BOOL: Holds.BOOL,
    FieldDescriptor.TYPE_ENUM: Holds.ENUM,
    FieldDescriptor.TYPE_FIXED32: Holds.FIXED32,
    FieldDescriptor.TYPE_SFIXED32: Holds.SFIXED32,
    FieldDescriptor.TYPE_FIXED64: Holds.FIXED64,
    FieldDescriptor.TYPE_SFIXED64: Holds.SFIXED64,
    FieldDescriptor.TYPE_FLOAT: Holds.FLOAT,
    FieldDescriptor.TYPE_DOUBLE: Holds.DOUBLE,
    FieldDescriptor.TYPE_STRING: Holds.TEXT,
    FieldDescriptor.TYPE_BYTES: Holds.BYTES,
    FieldDescriptor.TYPE_MESSAGE: Holds.MESSAGE,
}
_ONLY: Final = {
    Holds.UINT64: pa.decimal128(20, 0),
    Holds.FIXED64: pa.decimal128(20, 0),
    Holds.BOOL: pa.bool_(),
    Holds.ENUM: pa.string(),
    Holds.TEXT: pa.string(),
    Holds.BYTES: pa.binary(),
    Holds.DOUBLE: pa.float64(),
    Holds.TIMESTAMP: TIMESTAMP,
}
"""What has one type of column."""
_NO_NUMBER: Final = 2**31 - 1
"""Above those of all fields."""


class _NotOursError(Exception):
    """There is no program for this message and these columns."""


@dataclass(frozen=True, slots=True)
class CompiledProtobuf:
    """A program and which columns of the table it writes."""

    program: ProtobufProgram
    written: Sequence[str]


def compile_protobuf(
    library: ProtobufLibrary, descriptor: Descriptor, columns: pa.Schema
) -> CompiledProtobuf | None:
    """Return a program that reads messages of a type into columns; None if there is none."""
    try:
        return _Compiler().compile(library, descriptor, columns)
    except (_NotOursError, TypeError):
        return None


class _Compiler:
    def __init__(self) -> None:
        self._shape = OutShape()
        self._steps = 0

    def compile(
        self, library: ProtobufLibrary, descriptor: Descriptor, columns: pa.Schema
    ) -> CompiledProtobuf:
        names = {each.name for each in descriptor.fields}
        written = [each.name for each in columns if each.name in names]
        places = {name: self._shape.add(columns.field(name).type) for name in written}
        root = Step(holds=Holds.MESSAGE, inside=self._fields(descriptor, places, _DEEPEST))
        return CompiledProtobuf(ProtobufProgram(library, root, self._shape), written)

    def _fields(self, descriptor: Descriptor, places: dict[str, int], left: int) -> list[Step]:
        self._steps += len(descriptor.fields)
        if descriptor.is_extendable or not left or self._steps > _MOST_STEPS:
            raise _NotOursError
        steps: list[Step] = []
        first_members: dict[str, int] = {}
        for each in sorted(descriptor.fields, key=lambda each: each.number):
            step = self._field(each, places.get(each.name, NO_COLUMN), left)
            if each.containing_oneof is not None:
                oneof = each.containing_oneof.full_name
                step.oneof = first_members.setdefault(oneof, len(steps))
            steps.append(step)
        return steps

    def _field(self, field: FieldDescriptor, column: int, left: int) -> Step:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            return self._map(field, column, left)
        if field.is_repeated:
            items = NO_COLUMN
            if column != NO_COLUMN:
                if not pa.types.is_list(self._shape.kind(column)):
                    raise _NotOursError
                (items,) = self._shape.inside(column)
            step = self._value(field, items, left)
            step.often, step.column = Often.REPEATED, column
            return step
        step = self._value(field, column, left)
        if field.is_required:
            step.absent = Absent.UNCERTAIN
        elif not field.has_presence:
            step.absent = Absent.ZERO
        elif column != NO_COLUMN:
            self._shape.let_be_null(column)
        return step

    def _map(self, field: FieldDescriptor, column: int, left: int) -> Step:
        places = [NO_COLUMN, NO_COLUMN]
        if column != NO_COLUMN:
            if not pa.types.is_map(self._shape.kind(column)):
                raise _NotOursError
            places = self._shape.inside(*self._shape.inside(column))
        entry = Step(holds=Holds.MESSAGE, column=column, number=field.number, often=Often.MAP)
        for each, place in zip(field.message_type.fields, places, strict=True):
            step = self._value(each, place, left)
            is_plain = step.holds not in (Holds.MESSAGE, Holds.TIMESTAMP, Holds.ENUM)
            step.absent = Absent.ZERO if is_plain else Absent.UNCERTAIN
            entry.inside.append(step)
        return entry

    def _value(self, field: FieldDescriptor, column: int, left: int) -> Step:
        """Return the step that reads one value of a field into a column."""
        holds = _HOLDS.get(field.type)
        if holds is None:
            raise _NotOursError
        step = Step(holds=holds, column=column, number=field.number)
        kind = None if column == NO_COLUMN else self._shape.kind(column)
        if holds is Holds.MESSAGE:
            if field.message_type.full_name != TIMESTAMP_MESSAGE:
                step.inside = self._message(field.message_type, column, kind, left - 1)
                return step
            step.holds = Holds.TIMESTAMP
        if holds is Holds.ENUM:
            known = field.enum_type.values_by_number
            # Of a number with several names its items give another one.
            step.symbols = {number: known[number].name.encode() for number in known}
        if kind is None:
            return step
        if step.holds not in _ONLY:
            _fit_number(step, kind)
        elif kind != _ONLY[step.holds]:
            raise _NotOursError
        return step

    def _message(
        self, descriptor: Descriptor, column: int, kind: pa.DataType | None, left: int
    ) -> list[Step]:
        if kind is None:
            return self._fields(descriptor, {}, left)
        if not pa.types.is_struct(kind):
            raise _NotOursError
        names = [each.name for each in kind]
        if len(set(names)) != len(names):
            raise _NotOursError
        places = dict(zip(names, self._shape.inside(column), strict=True))
        steps = self._fields(descriptor, places, left)
        for name in places.keys() - {each.name for each in descriptor.fields}:
            self._shape.let_be_null(places[name])
            steps.append(Step(holds=Holds.NOTHING, column=places[name], number=_NO_NUMBER))
        return steps


def _fit_number(step: Step, kind: pa.DataType) -> None:
    """Set how a number goes into a column of this type."""
    if step.holds is Holds.FLOAT:
        if kind not in (pa.float32(), pa.float64()):
            raise _NotOursError
        step.into = Into.BITS_32 if kind == pa.float32() else Into.DOUBLE
    elif kind == pa.float64():
        step.into, step.low, step.high = Into.DOUBLE, -int(MOST_EXACT), int(MOST_EXACT)
    elif kind == pa.int32():
        step.into, step.low, step.high = Into.BITS_32, -(2**31), 2**31 - 1
    elif kind != pa.int64():
        raise _NotOursError
