"""Registered schemas that nobody wrote by hand, and datums that ask for endless memory or stack:
their records are rejected, and the load goes on.
"""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet

from millstream.model.errors import ConfigError
from millstream.schemas.complete import CompleteSchema
from millstream.schemas.framing import frame
from millstream.schemas.registry import StaticSchemas
from millstream.schemas.schema import Schema, SchemaType
from millstream.schemas.values import definition_of
from millstream.spark.lakehouse.formats import (
    Decoded,
    FormatSpec,
    json_schema,
    make_format,
    protobuf,
)
from millstream.spark.lakehouse.formats import avro as avro_format
from millstream.spark.lakehouse.formats.avro import AvroFormat
from millstream.spark.lakehouse.formats.format import HEADERS
from millstream.spark.lakehouse.formats.framed_keys import _reader
from millstream.spark.lakehouse.formats.raw import RAW_COLUMNS

NODE = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "next", "type": ["null", "Node"]}],
}


def record(**kinds: Any) -> bytes:
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    return json.dumps({"type": "record", "name": "R", "fields": fields}).encode()


def of(*values: bytes | None) -> pa.RecordBatch:
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


def outcome(found: Decoded, *names: str) -> tuple[list[Any], dict[int, str]]:
    rows = found.rows.select(list(names)).to_pylist()
    return rows, {each.row: each.reason for each in found.rejected}


@pytest.mark.parametrize("depth", [1_000, 1_000_000])
def test_a_field_that_is_left_out_may_contain_itself_but_not_without_end(depth: int) -> None:
    """fastavro ends the process with a datum of some thousand levels."""
    spec = FormatSpec(kind="avro", definition=record(a="int"), writer=record(a="int", node=NODE))
    form = make_format(spec)
    assert isinstance(form, AvroFormat)
    assert not form.is_compiled
    values = (b"\x0a" + b"\2" * 20 + b"\0", b"\x0a" + b"\2" * depth + b"\0", b"\x0e\0", b"\x0e")
    rows, rejected = outcome(form.decode(of(*values)), "a")
    assert rows == [{"a": 5}, {"a": 7}]
    assert rejected == {1: "nested more than 200 deep", 3: "the datum is cut off"}


@pytest.mark.parametrize("items", ["null", {"type": "record", "name": "E", "fields": []}])
def test_items_that_take_no_bytes_are_not_read_without_end(items: Any) -> None:
    definition = record(a="int", empty={"type": "array", "items": items})
    form = make_format(FormatSpec(kind="avro", definition=definition))
    assert isinstance(form, AvroFormat)
    assert not form.is_compiled
    rows, rejected = outcome(form.decode(of(b"\2\4\0", b"\2" + b"\x80" * 8 + b"\1\0", None)), "a")
    assert rows == [{"a": 1}, {"a": None}]
    assert rejected == {1: "more than 1,000,000 values that take no bytes"}


def test_a_decimal_of_many_bytes_is_not_read() -> None:
    """It would take half a minute; no column holds it."""
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    form = make_format(FormatSpec(kind="avro", definition=record(d=kind, a="int")))
    assert isinstance(form, AvroFormat)
    assert form.is_compiled
    long = b"\xc0\xcf\x24" + bytes(300_000)
    rows, rejected = outcome(form.decode(of(b"\2\7\2", long + b"\2")), "d", "a")
    assert rows == [{"d": Decimal("0.07"), "a": 1}]
    assert rejected == {1: "a decimal of 300000 bytes"}


def test_keys_are_looked_at_too() -> None:
    text = json.dumps({"type": "array", "items": "null"})
    read = _reader(definition_of(CompleteSchema(SchemaType.AVRO, text)))
    assert read(b"\4\0") == [None, None]
    with pytest.raises(ValueError, match="take no bytes"):
        read(b"\x80" * 8 + b"\1\0")


def bomb(levels: int = 40) -> Any:
    """Types of two fields of the next one each."""
    kind: Any = "int"
    for level in range(levels):
        names = {"a": kind, "b": f"L{level - 1}" if level else "int"}
        fields = [{"name": name, "type": each} for name, each in names.items()]
        kind = {"type": "record", "name": f"L{level}", "fields": fields}
    return kind


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (bomb(), "written out, the schema has more than 100,000 types"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 2},
            "that has no columns: precision should be between 1 and 38",
        ),
        ({"type": "bytes", "logicalType": "decimal"}, "that has no columns: 'precision'"),
        ({"type": "int", "logicalType": ["date"]}, "that has no columns: unhashable"),
    ],
)
def test_an_avro_schema_without_columns_rejects_its_own_records(kind: Any, reason: str) -> None:
    """And only these: another error would end the task, again and again."""
    definition = record(a="int", b=kind)
    with pytest.raises(ConfigError, match=reason):
        avro_format.columns_of(definition)
    schemas = StaticSchemas(
        {
            1: Schema(SchemaType.AVRO, record(a="int").decode()),
            2: Schema(SchemaType.AVRO, definition.decode()),
        }
    )
    columns = pa.schema([("a", pa.int32())])
    form = make_format(FormatSpec(kind="avro", columns=columns, registry=schemas))
    rows, rejected = outcome(form.decode(of(frame(1, b"\2"), frame(2, b"\2\2\0"))), "a")
    assert rows == [{"a": 1}]
    assert list(rejected) == [1]
    assert "schema id 2: " in rejected[1]


@pytest.mark.parametrize("precision", [39, 50])
def test_a_decimal_that_is_left_out_may_have_any_number_of_digits(precision: int) -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": precision}
    writer = record(d=kind, a="int")
    form = make_format(FormatSpec(kind="avro", definition=record(a="int"), writer=writer))
    rows, rejected = outcome(form.decode(of(b"\2\x05\x0e", b"\0")), "a")
    assert rows == [{"a": 7}]
    assert list(rejected) == [1]


@pytest.mark.parametrize("size", [-1, 2**31, 2**64 + 1])
def test_a_fixed_value_of_an_impossible_size(size: int) -> None:
    """2**64 + 1 is 1 in 64 bits."""
    kind = {"type": "fixed", "name": "F", "size": size}
    form = make_format(FormatSpec(kind="avro", definition=record(a="int", f=kind, b="int")))
    assert isinstance(form, AvroFormat)
    assert not form.is_compiled
    assert list(outcome(form.decode(of(b"\2\2\2")), "a")[1]) == [0]


@pytest.mark.slow
def test_a_json_schema_that_grows_with_every_reference_has_no_columns() -> None:
    def level(number: int) -> dict[str, Any]:
        deeper = {"$ref": f"#/$defs/L{number - 1}"} if number else {"type": "integer"}
        return {"type": "object", "properties": {"a": deeper, "b": deeper}}

    parts = {f"L{number}": level(number) for number in range(24)}
    schema = {"$defs": parts, "$ref": "#/$defs/L23"}
    with pytest.raises(ConfigError, match="written out, the JSON Schema has more than 100,000"):
        json_schema.columns_of(CompleteSchema(SchemaType.JSON, json.dumps(schema)))
    small = {"$defs": parts, "$ref": "#/$defs/L3"}
    columns = json_schema.columns_of(CompleteSchema(SchemaType.JSON, json.dumps(small)))
    assert columns.names == ["a", "b"]


def test_a_message_that_grows_with_every_field_has_no_columns() -> None:
    files = FileDescriptorSet()
    file = files.file.add(name="x.proto", package="p", syntax="proto3")
    kinds = FieldDescriptorProto
    for level in range(40):
        message = file.message_type.add(name=f"L{level}")
        for number in (1, 2):
            field = message.field.add(
                name=f"f{number}", number=number, type=kinds.TYPE_INT32, label=kinds.LABEL_OPTIONAL
            )
            if level:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".p.L{level - 1}"
    definition = files.SerializeToString()
    with pytest.raises(ConfigError, match="written out, the message has more than 100,000 fields"):
        protobuf.columns_of(definition, "p.L39")
    assert protobuf.columns_of(definition, "p.L3").names == ["f1", "f2"]


def test_what_fastavro_writes_of_such_schemas_is_read() -> None:
    schema = json.loads(record(a="int", nodes={"type": "array", "items": NODE}))
    value = {"a": 3, "nodes": [{"next": None}, {"next": {"next": {"next": None}}}]}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    writer = json.dumps(schema).encode()
    form = make_format(FormatSpec(kind="avro", definition=record(a="int"), writer=writer))
    assert outcome(form.decode(of(out.getvalue())), "a") == ([{"a": 3}], {})
