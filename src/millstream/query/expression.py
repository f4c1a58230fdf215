"""Arrow's expressions as a tree.

DuckDB hands the conditions that it leaves to a scan over as a ``pyarrow.compute.Expression``, which
has no public view of its parts. What it is pickled as has: an Arrow file whose schema's metadata
lists the nodes in prefix order, and whose columns are the literals (Arrow:
``compute::Serialize(const Expression&)``)::

    call and_kleene · call greater_equal · field_ref _offset · literal 0 · end greater_equal · …

Anything that does not read so raises UnknownExpressionError.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

_INT: Final = struct.Struct("=i")


class UnknownExpressionError(Exception):
    """An expression that is not written as this module reads it."""


@dataclass(frozen=True, slots=True)
class Field:
    """A column of the table by its name; None for a part of one."""

    name: str | None


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant."""

    value: pa.Scalar


@dataclass(frozen=True, slots=True)
class Call:
    """A function of Arrow with its arguments, and its options as a struct."""

    function: str
    arguments: tuple[Node, ...]
    options: pa.Scalar | None = None


Node: TypeAlias = Field | Literal | Call


def read_expression(expression: pc.Expression) -> Node:
    """Return the tree of an expression; raises UnknownExpressionError."""
    try:
        _, (buffer, *_) = expression.__reduce__()[:2]
        batch = pa.ipc.open_file(buffer).get_batch(0)
        steps = iter(_metadata(batch.schema))
        node = _read(next(steps), steps, batch)
    except (pa.ArrowException, LookupError, TypeError, ValueError, StopIteration) as error:
        raise UnknownExpressionError(str(error)) from error
    if next(steps, None) is not None:
        raise UnknownExpressionError("it goes on behind its end")
    return node


def _read(first: tuple[str, str], steps: Iterator[tuple[str, str]], batch: pa.RecordBatch) -> Node:
    kind, text = first
    match kind:
        case "literal":
            return Literal(batch.column(int(text))[0])
        case "field_ref":
            return Field(text)
        case "nested_field_ref":
            for _ in range(int(text)):
                next(steps)
            return Field(None)
        case "call":
            return _read_call(text, steps, batch)
    raise UnknownExpressionError(f"there is no node {kind}")


def _read_call(function: str, steps: Iterator[tuple[str, str]], batch: pa.RecordBatch) -> Call:
    arguments: list[Node] = []
    options = None
    while True:
        kind, text = next(steps)
        if kind == "end":
            return Call(function, tuple(arguments), options)
        if kind == "options":
            options = batch.column(int(text))[0]
        else:
            arguments.append(_read((kind, text), steps, batch))


class _ArrowSchema(ctypes.Structure):
    """The beginning of Arrow's C data interface's ``ArrowSchema``."""

    _fields_ = (
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("metadata", ctypes.c_void_p),
    )


def _metadata(schema: pa.Schema) -> list[tuple[str, str]]:
    """Return the metadata's keys and values in order; ``schema.metadata`` keeps one of each key."""
    capsule: Any = schema.__arrow_c_schema__()
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    address = pointer_of(capsule, b"arrow_schema")
    metadata = _ArrowSchema.from_address(address).metadata
    if not metadata:
        return []
    position = metadata

    def number() -> int:
        nonlocal position
        (found,) = _INT.unpack(ctypes.string_at(position, _INT.size))
        position += _INT.size
        return int(found)

    def text() -> str:
        nonlocal position
        size = number()
        found = ctypes.string_at(position, size)
        position += size
        return found.decode()

    return [(text(), text()) for _ in range(number())]
