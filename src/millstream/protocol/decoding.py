"""Writes the decoder of one class in one version: ``decode(buffer, p, limit, budget)``.

Neighbours of fixed width are read by one ``unpack_from``; the length of the string or array behind
them joins the run. Structs are built inline and arrays are loops, so a message is one function
without calls of our own, except for what is rare: long varints and unknown tagged fields.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct as Format
from typing import Any, Final, NoReturn

from millstream.model.errors import ProtocolError
from millstream.protocol.fields import Field
from millstream.protocol.primitives import decode_uvarint, skip_tags
from millstream.protocol.schema import Struct, StructMeta
from millstream.protocol.source import FORMATS, MAX_STRING_BYTES, NUMBERS, WIDTHS, Source


def compile_decoder(cls: type[Struct], version: int, *, flexible: bool) -> Callable[..., Any]:
    """Return ``decode(buffer, position, limit, budget) -> (message, position)``.

    ``limit`` is where the buffer ends, ``budget`` how many elements and tagged fields the message
    may hold in all. Besides ProtocolError the function lets IndexError, struct.error and
    UnicodeDecodeError out, which :mod:`millstream.protocol.message` turns into ProtocolError.
    """
    return _DecoderWriter(version, flexible=flexible).write(cls)


class _DecoderWriter:
    def __init__(self, version: int, *, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.source = Source()
        self.run: list[tuple[str, str]] = []
        self.formats: dict[str, str] = {}
        for name, value in _NAMES.items():
            self.source.constants[name] = value

    def write(self, cls: type[Struct]) -> Callable[..., Any]:
        source = self.source
        with source.block("def decode(b, p, limit, budget):"):
            message = self.struct(cls)
            self.flush()
            source.line(f"return {message}, p")
        return source.function("decode", f"decode {cls.__name__} v{self.version}")

    def flush(self) -> None:
        """Write the pending run of fixed-width reads."""
        if not self.run:
            return
        targets = [target for _, target in self.run]
        letters = "".join(letter for letter, _ in self.run)
        width = sum(WIDTHS[letter] for letter, _ in self.run)
        self.run.clear()
        if letters == "B":
            self.source.line(f"{targets[0]} = b[p]")
        else:
            if letters not in self.formats:
                unpack = Format(">" + letters).unpack_from
                self.formats[letters] = self.source.constant("unpack", unpack)
            comma = "," if len(targets) == 1 else ""
            self.source.line(f"{', '.join(targets)}{comma} = {self.formats[letters]}(b, p)")
        self.source.line(f"p += {width}")

    def struct(self, cls: type[Struct]) -> str:
        """Write the fields of a struct and return the local name that holds it."""
        source = self.source
        name = source.name("s")
        source.line(f"{name} = new({source.constant(cls.__name__, cls)})")
        tagged = []
        for field in cls.FIELDS:
            target = f"{name}.{field.name}"
            if field.tag is not None or not field.in_version(self.version):
                source.line(f"{target} = {self.default(field)}")
                if field.in_version(self.version):
                    tagged.append(field)
            else:
                self.field(field, target)
        if self.flexible:
            self.tags(name, tagged)
        return name

    def default(self, field: Field) -> str:
        if field.kind == "array" and field.factory is not None:
            return "[]"
        value = field.default_value()
        if value is None or isinstance(value, bool | int | float | str | bytes):
            return repr(value)
        return self.source.constant("default", value)

    def field(self, field: Field, target: str) -> None:
        letter = FORMATS.get(field.kind)
        if letter is not None:
            self.run.append((letter, target))
        elif field.kind == "struct":
            self.nested(field, target)
        elif field.kind == "array":
            self.array(field, target)
        else:
            self.text(field, target)

    def length(self, field: Field) -> str:
        """Write the length in front of a string, bytes or array; -1 is null."""
        count = self.source.name("n")
        if self.flexible:
            self.run.append(("B", count))
            self.flush()
            with self.source.block(f"if {count} > 127:"):
                second = self.source.name("n")
                self.source.line(f"{second} = b[p]")
                with self.source.block(f"if {second} < 128:"):
                    self.source.line(f"{count} = {count} & 127 | {second} << 7; p += 1")
                with self.source.block("else:"):
                    self.source.line(f"{count}, p = uvarint(b, p - 1)")
                if field.kind == "string":
                    self.refuse_longer(field, f"{count} - 1", f"{count} > {MAX_STRING_BYTES + 1}")
            self.source.line(f"{count} -= 1")
        else:
            self.run.append(("h" if field.kind == "string" else "i", count))
            self.flush()
        return count

    def refuse_longer(self, field: Field, count: str, condition: str) -> None:
        """Write the check that a length is not more than there is or may be."""
        with self.source.block(f"if {condition}:"):
            self.source.line(f"refuse_length({field.name!r}, {count})")

    def null(self, field: Field, target: str) -> None:
        if field.nullable_in(self.version):
            self.source.line(f"{target} = None")
        else:
            self.source.line(f"refuse_null({field.name!r})")

    def text(self, field: Field, target: str) -> None:
        source = self.source
        count = self.length(field)
        with source.block(f"if {count} < 0:"):
            self.null(field, target)
        with source.block("else:"):
            end = source.name("e")
            source.line(f"{end} = p + {count}")
            self.refuse_longer(field, count, f"{end} > limit")
            piece = f"b[p:{end}]"
            value = {"string": f"{piece}.tobytes().decode()", "bytes": f"{piece}.tobytes()"}
            source.line(f"{target} = {value.get(field.kind, piece)}")
            source.line(f"p = {end}")

    def nested(self, field: Field, target: str) -> None:
        assert isinstance(field.element, StructMeta)
        source = self.source
        if not field.nullable_in(self.version):
            source.line(f"{target} = {self.struct(field.element)}")
            return
        mark = source.name("n")
        self.run.append(("b", mark))
        self.flush()
        # In front of a tagged struct Kafka writes a varint, 0 for null and 1 for a struct.
        is_null = f"{mark} < 0" if field.tag is None else f"not {mark}"
        with source.block(f"if {is_null}:"):
            source.line(f"{target} = None")
        with source.block("else:"):
            name = self.struct(field.element)
            self.flush()
            source.line(f"{target} = {name}")

    def array(self, field: Field, target: str) -> None:
        source = self.source
        count = self.length(field)
        element = field.element
        assert element is not None
        with source.block(f"if {count} < 0:"):
            self.null(field, target)
        with source.block("else:"):
            smallest = max(1, smallest_size(element, self.version, flexible=self.flexible))
            source.line(f"budget -= {count}")
            with source.block(f"if budget < 0 or {count} * {smallest} > limit - p:"):
                source.line(f"refuse_count({field.name!r}, {count}, budget)")
            letter = FORMATS.get(element.kind) if isinstance(element, Field) else None
            if letter is not None and letter in NUMBERS:
                formats = source.constant("formats", NUMBERS[letter])
                source.line(f"{target} = list({formats}[{count}].unpack_from(b, p))")
                source.line(f"p += {count} * {WIDTHS[letter]}")
                return
            items = source.name("a")
            source.line(f"{target} = {items} = []")
            with source.block(f"for _ in range({count}):"):
                if isinstance(element, Field):
                    item = source.name("i")
                    self.field(element, item)
                else:
                    item = self.struct(element)
                self.flush()
                source.line(f"{items}.append({item})")

    def tags(self, name: str, tagged: list[Field]) -> None:
        """Write the tag buffer that ends every struct of a flexible version."""
        source = self.source
        count = source.name("t")
        self.run.append(("B", count))
        self.flush()
        with source.block(f"if {count}:"):
            if not tagged:
                source.line("p, budget = skip_tags(b, p - 1, limit, budget)")
                return
            source.line(f"{count}, p = uvarint(b, p - 1)")
            source.line(f"budget -= {count}")
            with source.block("if budget < 0:"):
                source.line(f"refuse_count('tagged fields', {count}, budget)")
            with source.block(f"for _ in range({count}):"):
                self.one_tag(name, tagged)

    def one_tag(self, name: str, tagged: list[Field]) -> None:
        """Write what happens for each tagged field: a known one is read, others are skipped."""
        source = self.source
        tag, end = source.name("g"), source.name("e")
        source.line(f"{tag}, p = uvarint(b, p)")
        source.line(f"{end}, p = uvarint(b, p)")
        source.line(f"{end} += p")
        with source.block(f"if {end} > limit:"):
            source.line(f"refuse_length('a tagged field', {end} - p)")
        keyword = "if"
        for field in tagged:
            with source.block(f"{keyword} {tag} == {field.tag}:"):
                self.field(field, f"{name}.{field.name}")
                self.flush()
                with source.block(f"if p != {end}:"):
                    source.line(f"refuse_tag({field.name!r})")
            keyword = "elif"
        source.line(f"p = {end}")


def smallest_size(element: Field | type[Struct], version: int, *, flexible: bool) -> int:
    """Return the fewest bytes that an element of an array can have."""
    if isinstance(element, Field):
        letter = FORMATS.get(element.kind)
        if letter is not None:
            return WIDTHS[letter]
        if element.kind == "struct":
            assert isinstance(element.element, StructMeta)
            if element.nullable_in(version):
                return 1
            return smallest_size(element.element, version, flexible=flexible)
        return 1 if flexible else {"string": 2}.get(element.kind, 4)
    present = (field for field in element.FIELDS if field.tag is None and field.in_version(version))
    sizes = (smallest_size(field, version, flexible=flexible) for field in present)
    return sum(sizes) + (1 if flexible else 0)


def _refuse_null(name: str) -> NoReturn:
    raise ProtocolError(f"{name} is null, which its version does not allow")


def _refuse_length(name: str, length: int) -> NoReturn:
    raise ProtocolError(f"{name} claims {length} bytes, more than there are or may be")


def _refuse_count(name: str, count: int, budget: int) -> NoReturn:
    why = "more than a message may hold" if budget < 0 else "more than the frame has room for"
    raise ProtocolError(f"{name} claims {count} elements, {why}")


def _refuse_tag(name: str) -> NoReturn:
    raise ProtocolError(f"the tagged field {name} has another size than its tag claims")


_NAMES: Final[dict[str, object]] = {
    "new": object.__new__,
    "uvarint": decode_uvarint,
    "skip_tags": skip_tags,
    "refuse_null": _refuse_null,
    "refuse_length": _refuse_length,
    "refuse_count": _refuse_count,
    "refuse_tag": _refuse_tag,
}
