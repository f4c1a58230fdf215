"""Protobuf messages read by the kernel are what is read value by value, whatever the bytes."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorSet
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from millstream.records import kernel
from millstream.records.kernel import Library
from millstream.spark.lakehouse.formats import FormatSpec, make_format
from millstream.spark.lakehouse.formats.format import HEADERS
from millstream.spark.lakehouse.formats.protobuf import ProtobufFormat, read_descriptor
from millstream.spark.lakehouse.formats.raw import RAW_COLUMNS

Kinds = FieldDescriptorProto
SCALARS: Final = (
    *(Kinds.TYPE_INT32, Kinds.TYPE_UINT32, Kinds.TYPE_SINT32, Kinds.TYPE_INT64, Kinds.TYPE_UINT64),
    *(Kinds.TYPE_SINT64, Kinds.TYPE_BOOL, Kinds.TYPE_FIXED32, Kinds.TYPE_SFIXED32),
    *(Kinds.TYPE_FIXED64, Kinds.TYPE_SFIXED64, Kinds.TYPE_FLOAT, Kinds.TYPE_DOUBLE),
    *(Kinds.TYPE_STRING, Kinds.TYPE_BYTES),
)
KEYS: Final = (
    *(Kinds.TYPE_STRING, Kinds.TYPE_INT32, Kinds.TYPE_SINT64),
    *(Kinds.TYPE_BOOL, Kinds.TYPE_FIXED64, Kinds.TYPE_UINT32),
)
PACKED: Final = tuple(each for each in SCALARS if each not in (Kinds.TYPE_STRING, Kinds.TYPE_BYTES))
NUMBERS: Final = (*range(1, 19), 100, 2047, 2048, 2**29 - 1)
TEXTS: Final = ("", "a", "plain ascii text", "ü\u2028", "\U0001f600", "x" * 200)
JUNK: Final = (b"", b"\0", b"\1", b"\2", b"\x08", b"\x0a", b"\xff", b"\x80\x80", b"\x7f" * 3)
UNKNOWN: Final = (
    b"\xc0\x3e\x05",  # field 1000: a number, eight bytes, bytes, four bytes, a group
    b"\xc1\x3e" + b"12345678",
    b"\xc2\x3e\x03abc",
    b"\xc5\x3eabcd",
    b"\xc3\x3e\x08\x01\xc4\x3e",
)


class Schemas:
    """Random message types of one file."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._count = 0
        self.is_old = rng.random() < 0.4
        self.files = FileDescriptorSet()
        timestamp_pb2.DESCRIPTOR.CopyToProto(self.files.file.add())
        self._file = self.files.file.add(name="x.proto", package="p")
        self._file.syntax = "proto2" if self.is_old else "proto3"
        self._file.dependency.append("google/protobuf/timestamp.proto")
        self._enum("E")
        self.name = self._message(2)

    @property
    def spec(self) -> FormatSpec:
        return FormatSpec(
            kind="protobuf",
            definition=self.files.SerializeToString(),
            options={"message": f"p.{self.name}"},
        )

    def _enum(self, name: str) -> None:
        made = self._file.enum_type.add(name=name)
        made.options.allow_alias = True
        for number in (0, 1, 2, 2, -1, 50, -(2**31)):
            made.value.add(name=f"{name}{len(made.value)}", number=number)

    def _message(self, left: int) -> str:
        self._count += 1
        name = f"M{self._count}"
        made = DescriptorProto(name=name)
        numbers = self._rng.sample(NUMBERS, self._rng.randint(1, 6))
        members = []
        for place, number in enumerate(numbers):
            field = made.field.add(name=f"f{place}", number=number)
            if self._rng.random() < 0.15:
                self._map(made, field, left)
                continue
            self._kind(field, left)
            chance = self._rng.random()
            field.label = Kinds.LABEL_OPTIONAL
            if chance < 0.3:
                field.label = Kinds.LABEL_REPEATED
                if field.type in PACKED and self._rng.random() < 0.5:
                    field.options.packed = self._rng.random() < 0.5
            elif chance < 0.5:
                field.oneof_index = 0
            elif self.is_old and chance < 0.6:
                field.label = Kinds.LABEL_REQUIRED
            elif not self.is_old and chance < 0.7:
                members.append(field)
        if any(field.HasField("oneof_index") for field in made.field):
            made.oneof_decl.add(name="one")
        for field in members:  # whose oneofs come last
            field.proto3_optional = True
            field.oneof_index = len(made.oneof_decl)
            made.oneof_decl.add(name=f"_{field.name}")
        self._file.message_type.append(made)
        return name

    def _kind(self, field: FieldDescriptorProto, left: int) -> None:
        chance = self._rng.random()
        if chance < 0.1:
            field.type, field.type_name = Kinds.TYPE_ENUM, ".p.E"
        elif chance < 0.2:
            field.type, field.type_name = Kinds.TYPE_MESSAGE, ".google.protobuf.Timestamp"
        elif chance < 0.4 and left:
            field.type, field.type_name = Kinds.TYPE_MESSAGE, f".p.{self._message(left - 1)}"
        else:
            field.type = self._rng.choice(SCALARS)

    def _map(self, message: DescriptorProto, field: FieldDescriptorProto, left: int) -> None:
        entry = message.nested_type.add(name=f"{field.name.capitalize()}Entry")
        entry.options.map_entry = True
        label = Kinds.LABEL_OPTIONAL
        entry.field.add(name="key", number=1, type=self._rng.choice(KEYS), label=label)
        self._kind(entry.field.add(name="value", number=2, label=label), left)
        field.label, field.type = Kinds.LABEL_REPEATED, Kinds.TYPE_MESSAGE
        field.type_name = f".p.{message.name}.{entry.name}"


def integer(rng: random.Random, bits: int, *, is_signed: bool) -> int:
    edges = [0, 1, 127, 128, 300, 2 ** (bits - 1) - 1]
    edges += [-1, -64, -(2 ** (bits - 1))] if is_signed else [2**bits - 1, 2**53 + 1][: bits // 32]
    chosen: int = rng.choice(edges)
    return chosen


SIGNED: Final = {
    FieldDescriptor.CPPTYPE_INT32: (32, True),
    FieldDescriptor.CPPTYPE_INT64: (64, True),
    FieldDescriptor.CPPTYPE_UINT32: (32, False),
    FieldDescriptor.CPPTYPE_UINT64: (64, False),
}


def scalar(rng: random.Random, field: FieldDescriptor) -> Any:
    if field.cpp_type in SIGNED:
        bits, is_signed = SIGNED[field.cpp_type]
        return integer(rng, bits, is_signed=is_signed)
    if field.cpp_type in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return rng.choice([0.0, -0.0, 1.5, 0.1, float("inf"), float("nan"), -1e30])
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return rng.random() < 0.5
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        return rng.choice([0, 1, 2, -1, 50, -(2**31)])
    text = rng.choice(TEXTS)
    return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text


def fill(rng: random.Random, message: Any) -> None:
    """Set fields of a message; some have others that are not known."""
    if rng.random() < 0.1:
        message.MergeFromString(rng.choice(UNKNOWN[:-1]))
    if message.DESCRIPTOR.full_name == "google.protobuf.Timestamp":
        message.seconds = rng.choice([0, -1, 1_700_000_000, 253402300799, -62135596800])
        message.seconds += rng.choice([0, 0, 0, 1])
        message.nanos = rng.choice([0, 1, 999_999_999, 1000, 1500])
        return
    for field in message.DESCRIPTOR.fields:
        if not field.is_required and rng.random() < 0.2:
            continue
        found = getattr(message, field.name)
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            key, value = kind.fields
            for _ in range(rng.randint(0, 3)):
                place = scalar(rng, key)
                if value.message_type is None:
                    found[place] = scalar(rng, value)
                else:
                    fill(rng, found[place])
        elif field.is_repeated:
            for _ in range(rng.randint(0, 3)):
                if kind is None:
                    found.append(scalar(rng, field))
                else:
                    fill(rng, found.add())
        elif kind is None:
            setattr(message, field.name, scalar(rng, field))
        else:
            found.SetInParent()
            fill(rng, found)


def damaged(rng: random.Random, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(rng.randint(1, 2)):
        place = rng.randint(0, len(found))
        found[place : place + rng.randint(0, 2)] = rng.choice(JUNK)
    return bytes(found)


def written(rng: random.Random, make: Callable[[], Any]) -> list[bytes | None]:
    """Messages: sound, merged of two, with unknown fields, damaged, cut off; and tombstones."""
    found: list[bytes | None] = []
    for _ in range(rng.randint(1, 8)):
        message = make()
        fill(rng, message)
        data = message.SerializeToString()
        chance = rng.random()
        if chance < 0.2:
            data = damaged(rng, data)
        elif chance < 0.3:
            data = data[: rng.randint(0, len(data))]
        elif chance < 0.4:
            other = make()
            fill(rng, other)
            data += other.SerializeToString()
        elif chance < 0.5:
            data = rng.choice([rng.choice(UNKNOWN) + data, data + rng.choice(UNKNOWN)])
        found.append(None if chance > 0.97 else data)
    return found


def of(values: Sequence[bytes | None]) -> pa.RecordBatch:
    size = len(values)
    columns: dict[str, Any] = {
        "key": [None] * size,
        "value": values,
        "topic": ["t"] * size,
        "partition": [0] * size,
        "offset": list(range(size)),
        "timestamp": [0] * size,
        "timestampType": [0] * size,
        "headers": pa.nulls(size, HEADERS),
    }
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[each.name], each.type) for each in RAW_COLUMNS], schema=RAW_COLUMNS
    )


def ordered(value: Any) -> Any:
    """Return a value in which the entries of maps, which Arrow has as pairs, are in an order."""
    if isinstance(value, dict):
        return {name: ordered(each) for name, each in value.items()}
    if isinstance(value, list):
        found = [ordered(each) for each in value]
        return sorted(found, key=str) if found and isinstance(found[0], tuple) else found
    if isinstance(value, tuple):
        return tuple(ordered(each) for each in value)
    return value


@pytest.fixture(scope="module", autouse=True)
def _library() -> Iterator[None]:
    """Use the kernel that the environment names (``native/sanitize.py``), or the installed one."""
    path = os.environ.get("MILLSTREAM_FUZZ_KERNEL")
    with pytest.MonkeyPatch.context() as patch:
        if path:
            patch.setattr(kernel, "_loaded", Library(Path(path)))
        elif kernel.library() is None:
            pytest.skip(kernel.describe())
        yield


def compare(spec: FormatSpec, values: Sequence[bytes | None]) -> int:
    """Read values with the kernel and without; return how many the kernel left, tombstones too."""
    form = make_format(spec)
    assert isinstance(form, ProtobufFormat)
    assert form.is_compiled
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "_loaded", None)
        plain = make_format(spec)
    assert isinstance(plain, ProtobufFormat)
    assert not plain.is_compiled
    batch = of([b"\0", *values]).slice(1)
    found, expected = form.decode(batch), plain.decode(batch)
    found.rows.validate(full=True)
    # As text: a NaN is no other NaN.
    assert str(ordered(found.rows.to_pylist())) == str(ordered(expected.rows.to_pylist()))
    assert found.rows.schema == expected.rows.schema
    assert list(found.rejected) == list(expected.rejected)
    assert form._compiled is not None
    return len(form._compiled.program.read(batch.column("value")).left)


@given(st.integers(0, 2**40))
def test_both_ways_agree(seed: int) -> None:
    rng = random.Random(seed)
    schemas = Schemas(rng)
    descriptor = read_descriptor(schemas.spec.definition, f"p.{schemas.name}")
    compare(schemas.spec, written(rng, GetMessageClass(descriptor)))


@given(st.integers(0, 2**40))
def test_what_is_sound_is_not_left(seed: int) -> None:
    """But for what the kernel leaves in any case: a required field, and a time out of range."""
    rng = random.Random(seed)
    schemas = Schemas(rng)
    kind = GetMessageClass(read_descriptor(schemas.spec.definition, f"p.{schemas.name}"))
    messages = []
    for _ in range(5):
        messages.append(kind())
        fill(rng, messages[-1])
    values = [each.SerializeToString() for each in messages]
    is_late = any("253402300800" in str(each) for each in messages)
    assert compare(schemas.spec, values) == 0 or is_late


def described(text: Sequence[tuple[str, int, Any, int]], *, syntax: str = "proto3") -> FormatSpec:
    """Return the format of a message ``p.R``: of each field name, number, kind and label."""
    files = FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    file = files.file.add(name="x.proto", package="p", syntax=syntax)
    file.dependency.append("google/protobuf/timestamp.proto")
    enum = file.enum_type.add(name="E")
    for number in (0, 1, 5, -3):
        enum.value.add(name=f"E{number}".replace("-", "_"), number=number)
    inner = file.message_type.add(name="S")
    inner.field.add(name="x", number=1, type=Kinds.TYPE_INT32, label=Kinds.LABEL_OPTIONAL)
    inner.field.add(name="y", number=2, type=Kinds.TYPE_STRING, label=Kinds.LABEL_OPTIONAL)
    message = file.message_type.add(name="R")
    entry = message.nested_type.add(name="MEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=Kinds.TYPE_STRING, label=Kinds.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=Kinds.TYPE_INT32, label=Kinds.LABEL_OPTIONAL)
    if any(name.startswith("one_") for name, *_ in text):
        message.oneof_decl.add(name="one")
    for name, number, kind, label in text:
        field = message.field.add(name=name, number=number, label=label)
        if isinstance(kind, str):
            field.type = Kinds.TYPE_ENUM if kind == ".p.E" else Kinds.TYPE_MESSAGE
            field.type_name = kind
        else:
            field.type = kind
        if name.startswith("one_"):
            field.oneof_index = 0
    return FormatSpec(
        kind="protobuf", definition=files.SerializeToString(), options={"message": "p.R"}
    )


ONE, MANY = Kinds.LABEL_OPTIONAL, Kinds.LABEL_REPEATED
FIELDS: Final = (
    ("i", 1, Kinds.TYPE_INT32, ONE),
    ("s", 2, Kinds.TYPE_STRING, ONE),
    ("r", 3, Kinds.TYPE_INT32, MANY),
    ("e", 4, ".p.E", ONE),
    ("m", 5, ".p.R.MEntry", MANY),
    ("b", 6, Kinds.TYPE_BOOL, ONE),
    ("t", 7, ".google.protobuf.Timestamp", ONE),
    ("u", 8, ".p.S", ONE),
    ("one_a", 9, Kinds.TYPE_INT32, ONE),
    ("one_b", 10, Kinds.TYPE_STRING, ONE),
    ("f", 11, Kinds.TYPE_FLOAT, MANY),
    ("l", 12, Kinds.TYPE_INT64, ONE),
    ("n", 13, Kinds.TYPE_UINT32, ONE),
    ("z", 14, Kinds.TYPE_SINT32, ONE),
)


def many_keys(count: int) -> bytes:
    return b"".join(
        b"\x2a\x06\x0a\x02" + bytes([40 + n // 64, 40 + n % 64]) + b"\x10\x01" for n in range(count)
    )


@pytest.mark.parametrize("syntax", ["proto2", "proto3"])
@pytest.mark.parametrize(
    ("data", "is_left"),
    [
        (b"", False),
        (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", False),  # -1 as it is written
        (b"\x08\xff\xff\xff\xff\x0f", False),  # -1 in 32 bits
        (b"\x08\x80\x80\x80\x80\x20\x10", True),  # cut off
        (b"\x08\x85\x80\x80\x80\x80\x80\x80\x80\x80\x00", False),  # longer than it has to be
        (b"\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02", True),  # a bit that 64 do not hold
        (b"\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", True),
        (b"\x88\x00\x05", True),  # a tag that is longer than it has to be
        (b"\x88\x80\x80\x80\x80\x00\x05", True),
        (b"\x00\x05", True),  # field 0
        (b"\x08\x01\x08\x02", True),  # twice: the last
        (b"\x0a\x01a", True),  # text for a number: unknown
        (b"\x0d\x01\x02\x03\x04", True),
        (b"\x12\x01\xff", True),
        (b"\x12\x81\x00a", True),
        (b"\x12\x03ab", True),
        (b"\x12\xff\xff\xff\xff\x0f", True),
        (b"\x1a\x03\x01\x96\x01", False),
        (b"\x18\x01\x1a\x02\x02\x03\x18\x04", False),  # packed and not
        (b"\x18\x01\x08\x09\x18\x02", False),  # others between
        (b"\x1a\x02\x01\x96", True),
        (b"\x1a\x00", False),
        (b"\x1d\x01\x00\x00\x00", True),
        (b"\x20\x05", False),
        (b"\x20\xfd\xff\xff\xff\xff\xff\xff\xff\xff\x01", False),
        (b"\x20\x07", True),  # no such symbol
        (b"\x20\x85\x80\x80\x80\x10", True),
        (b"\x2a\x05\x0a\x01a\x10\x01", False),
        (b"\x2a\x05\x10\x01\x0a\x01a", False),
        (b"\x2a\x05\x0a\x01a\x10\x01\x2a\x05\x0a\x01b\x10\x02", False),
        (b"\x2a\x05\x0a\x01a\x10\x01\x2a\x05\x0a\x01a\x10\x02", True),  # a key twice
        (b"\x2a\x03\x0a\x01a", False),
        (b"\x2a\x02\x10\x01", False),
        (b"\x2a\x00", False),
        (b"\x2a\x07\x0a\x01a\x10\x01\x18\x01", True),  # with a further field
        (b"\x30\x02", False),  # true
        (b"\x30\x80\x80\x80\x80\x10", False),
        (b"\x3a\x00", False),
        (b"\x3a\x02\x08\x01", False),
        (b"\x3a\x02\x10\x01", False),
        (b"\x3a\x04\x08\x01\x18\x01", False),
        (b"\x3a\x04\x08\x01\x08\x02", True),
        (b"\x3a\x0b\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", True),  # nanos below 0
        (b"\x3a\x06\x10\x80\x94\xeb\xdc\x03", True),
        (b"\x3a\x07\x08\xff\xff\xff\xff\xff\x7f", True),
        (b"\x3a\x02\x0a\x00", True),
        (b"\x42\x00", False),
        (b"\x42\x02\x08\x01\x42\x03\x12\x01y", True),  # two that are merged
        (b"\x42\x03\x12\x01\xff", True),
        (b"\x48\x01", False),
        (b"\x48\x01\x52\x01x", True),  # two of a oneof
        (b"\x5a\x08\x00\x00\x80\x3f\x00\x00\xc0\x7f", False),
        (b"\x5a\x05\x00\x00\x80\x3f\x00", True),
        (b"\x60\xff\xff\xff\xff\xff\xff\xff\xff\x7f", False),
        (b"\x68\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", False),
        (b"\x70\xff\xff\xff\xff\x1f", False),
        (b"\x0b\x0c", True),
        (b"\x0c", True),
        (b"\x0e", True),
        (b"\xfa\xff\xff\xff\x0f\x01a", False),  # the highest number
        (b"\xfa\xff\xff\xff\x1f\x01a", True),
        (b"\xc3\x3e\xc4\x3e", True),  # an unknown group
        (many_keys(256), False),
        (many_keys(300), True),
    ],
)
def test_at_the_edges(data: bytes, is_left: bool, syntax: str) -> None:
    spec = described(FIELDS, syntax=syntax)
    assert compare(spec, [data]) == is_left
    compare(spec, [data + b"\0", data[:-1], b"\x08\x07" + data])


def test_other_columns_than_the_messages_own() -> None:
    """Wider, narrower, missing and new ones, at any depth."""
    spec = described(FIELDS)
    columns = pa.schema(
        [
            ("new", pa.string()),
            ("l", pa.int32()),
            ("i", pa.float64()),
            ("n", pa.float64()),
            ("z", pa.int64()),
            ("u", pa.struct([("z", pa.list_(pa.string())), ("x", pa.int64())])),
            ("f", pa.list_(pa.float64())),
            ("r", pa.list_(pa.int64())),
            ("m", pa.map_(pa.string(), pa.float64())),
        ]
    )
    kind = GetMessageClass(read_descriptor(spec.definition, "p.R"))
    rng = random.Random(4)
    values = written(rng, kind) + written(rng, kind)
    sub = kind(i=-5, n=2**32 - 1, l=7, u={"x": 3, "y": "left out"}, f=[0.1], r=[4], m={"k": -1})
    values += [sub.SerializeToString(), kind(l=2**40).SerializeToString()]
    wide = FormatSpec(
        **{**{n: getattr(spec, n) for n in ("kind", "definition", "options")}, "columns": columns}
    )
    compare(wide, values)
    form = make_format(wide)
    rows = form.decode(of([sub.SerializeToString()])).rows.select(columns.names).to_pylist()
    assert rows == [
        {
            "new": None,
            "l": 7,
            "i": -5.0,
            "n": 4294967295.0,
            "z": 0,
            "u": {"z": None, "x": 3},
            "f": [0.10000000149011612],
            "r": [4],
            "m": [("k", -1.0)],
        }
    ]


@pytest.mark.parametrize(
    "column", [("i", pa.string()), ("r", pa.int32()), ("l", pa.float32()), ("u", pa.string())]
)
def test_columns_that_are_left_to_python(column: tuple[str, pa.DataType]) -> None:
    spec = described(FIELDS)
    form = make_format(
        FormatSpec(
            kind="protobuf",
            definition=spec.definition,
            options=spec.options,
            columns=pa.schema([column]),
        )
    )
    assert isinstance(form, ProtobufFormat)
    assert not form.is_compiled


def test_extensions_are_left_to_python() -> None:
    files = FileDescriptorSet.FromString(described(FIELDS, syntax="proto2").definition)
    message = next(each for each in files.file[1].message_type if each.name == "R")
    message.extension_range.add(start=100, end=200)
    form = make_format(
        FormatSpec(
            kind="protobuf", definition=files.SerializeToString(), options={"message": "p.R"}
        )
    )
    assert isinstance(form, ProtobufFormat)
    assert not form.is_compiled


def test_columns_grow() -> None:
    """Text, and items of lists, are far more than there was room for."""
    spec = described(FIELDS)
    kind = GetMessageClass(read_descriptor(spec.definition, "p.R"))
    keys = {str(n): n for n in range(200)}
    value = kind(s="x" * 5000, r=range(3000), m=keys, one_b="").SerializeToString()
    large = kind(s="y" * 90_000, r=range(9), m=keys).SerializeToString()
    assert compare(spec, [*[value, b"\x08", large] * 3, None]) == 4


@pytest.mark.slow
def test_items_that_lie_far_apart_in_many_fields_are_left() -> None:
    """The kernel would go through the message once for each field."""
    count = 40
    spec = described([(f"r{n}", n + 1, Kinds.TYPE_FIXED64, MANY) for n in range(count)])
    tags = [n + 1 << 3 | 1 for n in range(count)]
    one = [bytes([t] if t < 128 else [t & 127 | 128, t >> 7]) + bytes(8) for t in tags]
    between = b"\xc0\x3e\x05" * 5_000
    assert compare(spec, [b"".join([*one, between, *one])]) == 1
    assert compare(spec, [b"".join([each * 2_000 for each in one])]) == 0
    assert compare(spec, [b"".join(one[:4] * 2_000)]) == 0
    assert compare(spec, [b"".join([one[0], between, one[0], *one[1:] * 2])]) == 0


def test_values_that_are_written_down_here() -> None:
    spec = described(FIELDS)
    kind = GetMessageClass(read_descriptor(spec.definition, "p.R"))
    message = kind(i=-7, s="ü", r=[1, -2], e=-3, m={"k": 4}, b=True, u={"x": 5}, one_a=0, f=[0.5])
    message.t.FromDatetime(datetime(1969, 12, 31, 23, 59, 59, 999000, UTC))
    form = make_format(spec)
    assert isinstance(form, ProtobufFormat)
    assert form.is_compiled
    names = [name for name, *_ in FIELDS]
    (row,) = form.decode(of([message.SerializeToString()])).rows.select(names).to_pylist()
    assert row == {
        "i": -7,
        "s": "ü",
        "r": [1, -2],
        "e": "E_3",
        "m": [("k", 4)],
        "b": True,
        "t": datetime(1969, 12, 31, 23, 59, 59, 999000, UTC),
        "u": {"x": 5, "y": ""},
        "one_a": 0,
        "one_b": None,
        "f": [0.5],
        "l": 0,
        "n": 0,
        "z": 0,
    }


def test_whole_numbers_of_64_bits_without_a_sign() -> None:
    spec = described((("a", 1, Kinds.TYPE_UINT64, ONE), ("b", 2, Kinds.TYPE_FIXED64, MANY)))
    kind = GetMessageClass(read_descriptor(spec.definition, "p.R"))
    data = kind(a=2**64 - 1, b=[0, 2**63]).SerializeToString()
    assert compare(spec, [data]) == 0
    rows = make_format(spec).decode(of([data])).rows.select(["a", "b"]).to_pylist()
    assert rows == [{"a": Decimal(2**64 - 1), "b": [Decimal(0), Decimal(2**63)]}]
