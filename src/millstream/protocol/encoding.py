"""Writes the encoder of one class in one version: ``encode(message, out, pieces)``.

Neighbours of fixed width are written by one ``pack``; lengths join the run where they have a fixed
width. ``out`` is the bytearray being filled; a records field is put into ``pieces`` behind it and
a new ``out`` begins, so the function returns the one that is last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct as Format
from typing import Any, Final, NoReturn

from millstream.model.errors import MillstreamError
from millstream.protocol.fields import Field
from millstream.protocol.outgoing import IN_MEMORY, MERGE_BELOW_BYTES
from millstream.protocol.primitives import encode_uvarint
from millstream.protocol.schema import Struct, StructMeta
from millstream.protocol.source import FORMATS, MAX_STRING_BYTES, NUMBERS, Source


class MessageError(MillstreamError, ValueError):
    """A message has a value that the version to be sent cannot represent."""


def compile_encoder(cls: type[Struct], version: int, *, flexible: bool) -> Callable[..., Any]:
    """Return ``encode(message, out, pieces) -> out``."""
    return _EncoderWriter(version, flexible=flexible).write(cls)


class _EncoderWriter:
    def __init__(self, version: int, *, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.source = Source()
        self.run: list[tuple[str, str]] = []
        self.formats: dict[str, str] = {}
        self.out = "out"
        for name, value in _NAMES.items():
            self.source.constants[name] = value

    def write(self, cls: type[Struct]) -> Callable[..., Any]:
        source = self.source
        with source.block("def encode(message, out, pieces):"):
            self.struct(cls, "message")
            self.flush()
            source.line("return out")
        return source.function("encode", f"encode {cls.__name__} v{self.version}")

    def packed(self, run: list[tuple[str, str]]) -> str:
        """Return the expression that packs a run."""
        letters = "".join(letter for letter, _ in run)
        if letters == "x":
            return "b'\\0'"
        if letters not in self.formats:
            self.formats[letters] = self.source.constant("pack", Format(">" + letters).pack)
        values = ", ".join(value for letter, value in run if letter != "x")
        return f"{self.formats[letters]}({values})"

    def flush(self) -> None:
        """Write the pending run of fixed-width values."""
        if self.run:
            self.source.line(f"{self.out} += {self.packed(self.run)}")
            self.run.clear()

    def struct(self, cls: type[Struct], name: str) -> None:
        """Write the fields of the struct that the local ``name`` holds."""
        tagged = []
        for field in cls.FIELDS:
            value = f"{name}.{field.name}"
            if not field.in_version(self.version):
                self.absent(cls, field, value)
            elif field.tag is not None:
                tagged.append(field)
            else:
                self.field(field, value)
        if self.flexible:
            self.tags(name, tagged)

    def absent(self, cls: type[Struct], field: Field, value: str) -> None:
        """Write the check that a field which this version lacks has its default value."""
        if field.ignorable:
            return
        with self.source.block(f"if {self.differs(field, value)}:"):
            self.source.line(f"refuse('{cls.__name__}.{field.name}', {self.version})")

    def differs(self, field: Field, value: str) -> str:
        """Return the condition that a field has another value than its default."""
        if field.kind == "array" and field.factory is not None:
            return value
        default = field.default_value()
        if default is None:
            return f"{value} is not None"
        if isinstance(default, bool):
            return f"not {value}" if default else value
        if isinstance(default, int | float | str | bytes):
            return f"{value} != {default!r}"
        shared = self.source.constant("default", default)
        return f"{value} is not {shared} and {value} != {shared}"

    def field(self, field: Field, value: str) -> None:
        letter = FORMATS.get(field.kind)
        if letter is not None:
            self.run.append((letter, value))
        elif field.kind == "struct":
            self.nested(field, value)
        elif field.kind == "array":
            self.array(field, value)
        elif field.kind == "records":
            self.records(field, value)
        else:
            self.text(field, value)

    def length(self, field: Field, count: str) -> None:
        """Write the length ``count`` (-1 is null) together with the pending run."""
        if not self.flexible:
            self.run.append(("h" if field.kind == "string" else "i", count))
            self.flush()
            return
        source = self.source
        with source.block(f"if {count} < 127:"):
            if self.run:
                source.line(f"{self.out} += {self.packed([*self.run, ('B', f'{count} + 1')])}")
            else:
                source.line(f"{self.out}.append({count} + 1)")
        with source.block("else:"):
            if field.kind == "string":
                with source.block(f"if {count} > {MAX_STRING_BYTES}:"):
                    source.line(f"refuse_long({field.name!r}, {count})")
            if self.run:
                source.line(f"{self.out} += {self.packed(self.run)}")
            source.line(f"{self.out} += uvarint({count} + 1)")
        self.run.clear()

    @contextmanager
    def unless_null(self, field: Field, value: str) -> Iterator[None]:
        """Write the length of a null, where there may be one, and inside the ``with`` the rest."""
        if not field.nullable_in(self.version):
            yield
            return
        pending = list(self.run)
        with self.source.block(f"if {value} is None:"):
            letter = "h" if field.kind == "string" else "i"
            self.run.append(("x", "") if self.flexible else (letter, "-1"))
            self.flush()
        with self.source.block("else:"):
            self.run = pending
            yield

    def text(self, field: Field, value: str) -> None:
        source = self.source
        data, count = source.name("d"), source.name("n")
        source.line(f"{data} = {value}")
        with self.unless_null(field, data):
            if field.kind == "string":
                source.line(f"{data} = {data}.encode()")
            source.line(f"{count} = len({data})")
            self.length(field, count)
            source.line(f"{self.out} += {data}")

    def records(self, field: Field, value: str) -> None:
        source = self.source
        data, count = source.name("d"), source.name("n")
        source.line(f"{data} = {value}")
        source.line(f"{count} = -1 if {data} is None else len({data})")
        self.length(field, count)
        with source.block(f"if {count} > 0:"):
            with source.block(
                f"if {count} < {MERGE_BELOW_BYTES} and isinstance({data}, IN_MEMORY):"
            ):
                source.line(f"out += {data}")
            with source.block("else:"):
                source.line(f"pieces += (out, {data})")
                source.line("out = bytearray()")

    def nested(self, field: Field, value: str) -> None:
        assert isinstance(field.element, StructMeta)
        source = self.source
        name = source.name("s")
        source.line(f"{name} = {value}")
        if not field.nullable_in(self.version):
            self.struct(field.element, name)
            return
        self.flush()
        with source.block(f"if {name} is None:"):
            # In front of a tagged struct Kafka writes a varint, 0 for null and 1 for a struct.
            null = r"b'\xff'" if field.tag is None else r"b'\0'"
            source.line(f"{self.out} += {null}")
        with source.block("else:"):
            self.run.append(("b", "1"))
            self.struct(field.element, name)
            self.flush()

    def array(self, field: Field, value: str) -> None:
        source = self.source
        items, count = source.name("a"), source.name("n")
        element = field.element
        assert element is not None
        source.line(f"{items} = {value}")
        with self.unless_null(field, items):
            source.line(f"{count} = len({items})")
            self.length(field, count)
            self.elements(element, items, count)

    def elements(self, element: Field | type[Struct], items: str, count: str) -> None:
        """Write the elements of an array, after its length."""
        source = self.source
        letter = FORMATS.get(element.kind) if isinstance(element, Field) else None
        if letter is not None and letter in NUMBERS:
            formats = source.constant("formats", NUMBERS[letter])
            with source.block(f"if {items}:"):
                source.line(f"{self.out} += {formats}[{count}].pack(*{items})")
            return
        item = source.name("i")
        with source.block(f"for {item} in {items}:"):
            if isinstance(element, Field):
                self.field(element, item)
            else:
                self.struct(element, item)
            self.flush()

    def tags(self, name: str, tagged: list[Field]) -> None:
        """Write the tag buffer that ends every struct of a flexible version."""
        if not tagged:
            self.run.append(("x", ""))
            return
        self.flush()
        source = self.source
        tagged = sorted(tagged, key=lambda field: field.tag or 0)
        count, buffer = source.name("t"), source.name("o")
        conditions = [f"({self.differs(field, f'{name}.{field.name}')})" for field in tagged]
        with source.block(f"if {' or '.join(conditions)}:"):
            source.line(f"{count} = 0")
            source.line(f"{buffer} = bytearray()")
            for field, condition in zip(tagged, conditions, strict=True):
                with source.block(f"if {condition}:"):
                    outer, self.out = self.out, source.name("o")
                    source.line(f"{self.out} = bytearray()")
                    self.field(field, f"{name}.{field.name}")
                    self.flush()
                    value, self.out = self.out, outer
                    source.line(f"{count} += 1")
                    source.line(f"{buffer} += uvarint({field.tag}) + uvarint(len({value}))")
                    source.line(f"{buffer} += {value}")
            source.line(f"{self.out} += uvarint({count})")
            source.line(f"{self.out} += {buffer}")
        with source.block("else:"):
            source.line(f"{self.out} += b'\\0'")


def _refuse(name: str, version: int) -> NoReturn:
    raise MessageError(f"{name} has a value, and version {version} has no such field")


def _refuse_long(name: str, size: int) -> NoReturn:
    raise MessageError(f"{name} has {size} bytes; a string may have {MAX_STRING_BYTES}")


_NAMES: Final[dict[str, object]] = {
    "uvarint": encode_uvarint,
    "refuse": _refuse,
    "refuse_long": _refuse_long,
    "IN_MEMORY": IN_MEMORY,
}
