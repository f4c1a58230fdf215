"""A short Avro datum that asks for endless memory, or stack, is refused; others are read."""

from __future__ import annotations

import io
import json
import random
from typing import Any, Final

import pytest

from millstream.schemas.avro_bounds import MOST_TYPES, bounds_of, parse_avro
from millstream.schemas.complete import CompleteSchema
from millstream.schemas.schema import InvalidSchemaError, SchemaType
from millstream.schemas.values import Definition, definition_of, reader_of

fastavro = pytest.importorskip("fastavro")

NODE: Final = {
    "type": "record",
    "name": "Node",
    "fields": [
        {"name": "value", "type": "long"},
        {"name": "next", "type": ["null", "Node"]},
        {"name": "more", "type": {"type": "map", "values": {"type": "array", "items": "Node"}}},
    ],
}
EMPTY: Final = {"type": "record", "name": "Empty", "fields": [{"name": "n", "type": "null"}]}
NO_BYTES: Final = (
    "null",
    EMPTY,
    {"type": "fixed", "name": "F", "size": 0},
    {**EMPTY, "name": "Outer", "fields": [{"name": "a", "type": EMPTY}]},
)


def record(*kinds: Any) -> dict[str, Any]:
    fields = [{"name": f"f{place}", "type": kind} for place, kind in enumerate(kinds)]
    return {"type": "record", "name": "R", "fields": fields}


def number(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def reader(schema: Any) -> Any:
    text = json.dumps(schema)
    whole = CompleteSchema(SchemaType.AVRO, text, ())
    return reader_of(Definition(SchemaType.AVRO, text.encode(), whole))


def parsed(schema: Any) -> Any:
    return parse_avro(json.dumps(schema).encode())


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def test_ordinary_schemas_are_read_without_a_look() -> None:
    kinds = ["int", "string", ["null", "long"], {"type": "array", "items": ["null", "int"]}]
    assert bounds_of(parsed(record(*kinds, {"type": "map", "values": EMPTY}, "null"))).check is None


def some_node(rng: random.Random, left: int) -> dict[str, Any]:
    deeper = left > 0 and rng.random() < 0.8
    return {
        "value": rng.choice([0, -1, 64, 2**63 - 1, -(2**63)]),
        "next": some_node(rng, left - 1) if deeper else None,
        "more": {
            name: [some_node(rng, left - 2) for _ in range(rng.randrange(3))]
            for name in rng.sample(["", "a", "ü"], rng.randrange(3) if left > 0 else 0)
        },
    }


@pytest.mark.slow
def test_what_may_be_read_is_read_to_the_same_value() -> None:
    schema, rng = parsed(NODE), random.Random(5)
    check = bounds_of(schema).check
    assert check is not None
    read = reader(NODE)
    for _ in range(50):
        node = some_node(rng, 6)
        data = written(schema, node)
        check(data)
        assert read(data) == node
        for end in range(0, len(data), 7):
            with pytest.raises(ValueError, match=r"cut off|branch"):
                read(data[:end])


def test_every_kind_of_value_is_gone_through() -> None:
    kinds = [
        *("boolean", "int", "float", "double", "bytes", "string"),
        {"type": "enum", "name": "E", "symbols": ["A", "B"]},
        {"type": "fixed", "name": "F", "size": 3},
        {"type": "long", "logicalType": "timestamp-millis"},
        {"type": "array", "items": "null"},
        {"type": "array", "items": "string"},
    ]
    schema = parsed(record(*kinds))
    value = [True, -70, 0.5, -0.25, b"xy", "ü", "B", b"abc", 5_000, [None] * 1000, ["", "a"]]
    data = written(schema, {f"f{n}": each for n, each in enumerate(value)})
    check = bounds_of(schema).check
    assert check is not None
    check(data)
    for end in range(len(data)):
        with pytest.raises(ValueError, match="cut off"):
            check(data[:end])
    # In blocks that tell their size.
    check(data[: -len(b"\x04\x00\x02a\x00")] + b"\x01\x02\x00" + b"\x01\x04\x02a" + b"\x00")


@pytest.mark.parametrize("depth", [150, 5_000, 1_000_000])
def test_a_datum_that_is_nested_without_end_is_refused(depth: int) -> None:
    """fastavro ends the process with some thousand levels."""
    schema = record("int", ["null", "R"])
    data = b"\x02\x02" * depth + b"\x02\x00"
    with pytest.raises(ValueError, match="nested more than 200 deep"):
        reader(schema)(data)
    assert reader(schema)(b"\x02\x02" * 90 + b"\x02\x00")["f0"] == 1


@pytest.mark.parametrize(
    ("kind", "front"),
    [
        ({"type": "bytes", "logicalType": "decimal", "precision": 9}, number(300_000)),
        ({"type": "fixed", "name": "D", "size": 300_000, "logicalType": "decimal"}, b""),
    ],
)
def test_a_decimal_of_many_bytes_is_refused(kind: dict[str, Any], front: bytes) -> None:
    """It would take half a minute."""
    schema = record("string", {**kind, "precision": 9, "scale": 2})
    assert not bounds_of(parsed(schema)).is_endless
    with pytest.raises(ValueError, match="a decimal of 300000 bytes"):
        reader(schema)(b"\x02x" + front + bytes(300_000))


def test_a_long_datum_with_a_short_decimal_is_read() -> None:
    schema = record("string", {"type": "bytes", "logicalType": "decimal", "precision": 4})
    data = number(5_000) + b"x" * 5_000 + b"\x04\x03\xe8"
    assert reader(schema)(data) == {"f0": "x" * 5_000, "f1": 1000}
    assert reader(schema)(b"\0" + data[5_002:])["f1"] == 1000


def test_a_record_that_is_inside_of_itself_has_no_value() -> None:
    with pytest.raises(ValueError, match="nested"):
        reader(record("R"))(b"")


@pytest.mark.parametrize("kind", NO_BYTES, ids=["null", "record", "fixed", "nested"])
@pytest.mark.parametrize("count", [2**40, 2**62, 2_000_000])
def test_items_that_take_no_bytes_are_counted(kind: Any, count: int) -> None:
    schema = record({"type": "array", "items": kind}, "int")
    for data in (number(count) + b"\0\2", number(-count) + b"\0\0\2"):
        with pytest.raises(ValueError, match="1,000,000 values that take no bytes"):
            reader(schema)(data)
    assert len(reader(schema)(number(100) + number(20) + b"\0\2")["f0"]) == 120


def test_many_blocks_of_such_items_are_too_many_as_well() -> None:
    schema = record({"type": "array", "items": "null"})
    with pytest.raises(ValueError, match="take no bytes"):
        reader(schema)(number(1000) * 1001 + b"\0")


@pytest.mark.parametrize(
    "data",
    [
        b"\x02\x01",  # branch -1, which fastavro takes for the last one
        b"\x02\x04",
        b"\x02\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02\x00",  # a number of 65 bits
        b"\x80" * 11,
        b"",
    ],
)
def test_what_is_not_of_such_a_schema_is_refused_before_it_is_read(data: bytes) -> None:
    check = bounds_of(parsed(record("long", ["null", "R"]))).check
    assert check is not None
    with pytest.raises(ValueError, match=r"branch|64 bits|cut off"):
        check(data)


def test_a_schema_that_grows_with_every_name_is_refused() -> None:
    kind: Any = "int"
    for level in range(40):
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": f"L{level - 1}"}]
        kind = {"type": "record", "name": f"L{level}", "fields": fields[: 1 + bool(level)]}
    with pytest.raises(ValueError, match=f"more than {MOST_TYPES:,} types"):
        parsed(kind)
    with pytest.raises(InvalidSchemaError, match="more than"):
        reader(kind)


def test_a_schema_cannot_say_that_it_was_parsed_already() -> None:
    hidden = {"__fastavro_parsed": True, "__named_schemas": {"Node": NODE}}
    schema = {**record("Node"), **hidden}
    with pytest.raises(InvalidSchemaError, match="Node"):
        reader(schema)


def test_definitions_of_registered_schemas_are_refused_in_the_same_way() -> None:
    text = json.dumps(record({"type": "array", "items": "null"}))
    found = definition_of(CompleteSchema(SchemaType.AVRO, text, ()))
    with pytest.raises(ValueError, match="take no bytes"):
        reader_of(found)(number(2**50) + b"\0")
