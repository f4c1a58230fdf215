"""A message class in one version as the tables that ``native/codec.h`` reads.

They are made at first use, from the same fields that :mod:`millstream.protocol.decoding` and
:mod:`millstream.protocol.encoding` compile.
"""

from __future__ import annotations

import ctypes
from ctypes import c_int32, c_int64, c_void_p
from typing import Any, Final

from millstream.native.interpreter import slots_of
from millstream.protocol.decoding import smallest_size
from millstream.protocol.fields import Field
from millstream.protocol.schema import Struct, StructMeta

_KINDS: Final = {
    name: number
    for number, name in enumerate(
        (
            "bool",
            "int8",
            "int16",
            "int32",
            "int64",
            "uint16",
            "uint32",
            "float64",
            "uuid",
            "string",
            "bytes",
            "records",
            "struct",
            "array",
        )
    )
}
_IF_TRUE, _IF_FALSE, _IF_NOT_IT, _IF_UNEQUAL = range(4)
_MAX_TAGGED: Final = 64


class NoTableError(Exception):
    """A class cannot be given to the codec in C."""


class FieldRow(ctypes.Structure):
    """``ms_field``."""

    _fields_ = (
        ("kind", c_int32),
        ("slot", c_int32),
        ("nullable", c_int32),
        ("tag", c_int32),
        ("differs", c_int32),
        ("smallest", c_int32),
        ("default_value", c_void_p),
        ("element", c_void_p),
        ("structure", c_void_p),
    )


class StructRow(ctypes.Structure):
    """``ms_struct``."""

    _fields_ = (
        ("type", c_void_p),
        ("default_type", c_void_p),
        ("fields", c_void_p),
        ("tagged", c_void_p),
        ("others", c_void_p),
        ("checked", c_void_p),
        ("field_count", c_int32),
        ("tagged_count", c_int32),
        ("other_count", c_int32),
        ("checked_count", c_int32),
        ("flexible", c_int32),
        ("spare", c_int32),
    )


class Codec(ctypes.Structure):
    """``ms_codec``."""

    _fields_ = (
        ("body", c_void_p),
        ("fallback", c_void_p),
        ("max_elements", c_int64),
        ("outgoing_type", c_void_p),
        ("pieces_slot", c_int32),
        ("size_slot", c_int32),
        ("merge_below", c_int32),
        ("flexible_header", c_int32),
        ("api_key", c_int32),
        ("version", c_int32),
    )


class HeaderCodec(ctypes.Structure):
    """``ms_header``."""

    _fields_ = (
        ("fallback", c_void_p),
        ("type", c_void_p),
        ("first_flexible", c_void_p),
        ("key_count", c_int32),
        ("key_slot", c_int32),
        ("version_slot", c_int32),
        ("correlation_id_slot", c_int32),
        ("client_id_slot", c_int32),
        ("position_slot", c_int32),
    )


class Table:
    """The tables of a class in one version; they must outlive every function that uses them."""

    def __init__(self, cls: type[Struct], version: int, *, flexible: bool) -> None:
        """NoTableError where the codec in C cannot do what the class asks for."""
        self._version = version
        self._flexible = flexible
        self._kept: list[object] = []
        self.address = ctypes.addressof(self._struct(cls))

    def _keep(self, value: Any) -> Any:
        self._kept.append(value)
        return value

    def _struct(self, cls: type[Struct], default: object = None) -> StructRow:
        names = tuple(field.name for field in cls.FIELDS)
        slots = slots_of(cls, names)
        if slots is None:
            raise NoTableError(f"the slots of {cls.__name__} are not where they are expected")
        fields, tagged, others, checked = [], [], [], []
        for field in cls.FIELDS:
            row = self._field(field, slots[field.name])
            if not field.in_version(self._version):
                others.append(row)
                if not field.ignorable:
                    checked.append(row)
            elif field.tag is None:
                fields.append(row)
            else:
                others.append(row)
                tagged.append(row)
        tagged.sort(key=lambda row: int(row.tag))
        if len(tagged) > _MAX_TAGGED:
            raise NoTableError(f"{cls.__name__} has more than {_MAX_TAGGED} tagged fields")
        made: StructRow = self._keep(
            StructRow(
                type=id(self._keep(cls)),
                default_type=None if default is None else id(type(self._keep(default))),
                flexible=self._flexible,
            )
        )
        for name, rows in (
            ("field", fields), ("tagged", tagged), ("other", others), ("checked", checked),
        ):  # fmt: skip
            array = self._keep((FieldRow * len(rows))(*rows))
            setattr(made, _ARRAYS[name], ctypes.addressof(array))
            setattr(made, f"{name}_count", len(rows))
        return made

    def _field(self, field: Field, slot: int) -> FieldRow:
        row = FieldRow(
            kind=_KINDS[field.kind],
            slot=slot,
            nullable=field.nullable_in(self._version),
            tag=-1 if field.tag is None else field.tag,
            smallest=1,
        )
        default = None
        if field.kind == "array" and field.factory is not None:
            row.differs = _IF_TRUE
        else:
            default = field.default_value()
            row.default_value = id(self._keep(default))
            row.differs = _differs(default)
        if not field.in_version(self._version):
            return row
        if field.tag is not None and _has_records(field):
            raise NoTableError(f"{field.name} is tagged and holds records")
        element = field.element
        if field.kind == "struct":
            assert isinstance(element, StructMeta)
            row.structure = ctypes.addressof(self._struct(element, default))
        elif field.kind == "array":
            assert element is not None
            row.smallest = max(1, smallest_size(element, self._version, flexible=self._flexible))
            if isinstance(element, Field):
                row.element = ctypes.addressof(self._keep(self._field(element, -1)))
            else:
                row.structure = ctypes.addressof(self._struct(element))
        return row


_ARRAYS: Final = {
    "field": "fields",
    "tagged": "tagged",
    "other": "others",
    "checked": "checked",
}


def _differs(default: object) -> int:
    """Return what makes a value another than ``default``, as the encoder in Python has it."""
    if default is None:
        return _IF_NOT_IT
    if isinstance(default, bool):
        return _IF_FALSE if default else _IF_TRUE
    return _IF_UNEQUAL


def _has_records(field: Field) -> bool:
    element = field.element
    if isinstance(element, StructMeta):
        return any(_has_records(each) for each in element.FIELDS)
    return field.kind == "records" or (isinstance(element, Field) and _has_records(element))
