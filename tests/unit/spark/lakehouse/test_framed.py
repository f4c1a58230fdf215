"""Values and keys that name their schemas: each is read with its own, none is lost."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

from millstream.model.errors import ConfigError
from millstream.records.avro_kernel import avro_library
from millstream.schemas.complete import CompleteSchema
from millstream.schemas.framing import frame, read_frame
from millstream.schemas.registry import StaticSchemas
from millstream.schemas.schema import (
    Reference,
    Registered,
    RegistryAwayError,
    Schema,
    SchemaKey,
    SchemaType,
)
from millstream.schemas.values import ValueDecoder, definition_of
from millstream.spark.lakehouse.formats import Decoded, FormatSpec, framed, make_format
from millstream.spark.lakehouse.formats.avro import AvroFormat
from millstream.spark.lakehouse.formats.format import METADATA, TIMESTAMP
from millstream.spark.lakehouse.formats.framed_keys import key_type
from millstream.spark.lakehouse.formats.frames import read_frames
from millstream.spark.lakehouse.formats.raw import HEADERS, RAW_COLUMNS
from millstream.spark.lakehouse.formats.registered import columns_of, definition
from millstream.spark.lakehouse.registered_columns import columns_of_records, newest_columns

ID = "id"
OLD = {"type": "record", "name": "Order", "fields": [{"name": ID, "type": "int"}]}
NEW = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "note", "type": ["null", "string"]}, {"name": ID, "type": "long"}],
}
CLASH = {"type": "record", "name": "Order", "fields": [{"name": "ID", "type": "int"}]}
TEXT = {"type": "record", "name": "Order", "fields": [{"name": ID, "type": "string"}]}
ROW = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": "a", "type": "double"}, {"name": "b", "type": "string"}],
}
PROTO = """syntax = "proto3";
import "money.proto";
import "google/protobuf/timestamp.proto";
message Other { string x = 1; message Inner { int32 y = 1; } }
message Order { int64 id = 1; Money price = 2; google.protobuf.Timestamp at = 3; }
"""
MONEY = 'syntax = "proto3"; message Money { string currency = 1; int64 units = 2; }'
JSON = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "at": {"oneOf": [{"type": "null"}, {"type": "string", "format": "date-time"}]},
        "tags": {"type": "object", "additionalProperties": {"type": "string"}},
        "home": {"$ref": "address.json#/definitions/Address"},
        "open": {},
    },
}
ADDRESS = {
    "definitions": {"Address": {"type": "object", "properties": {"zip": {"type": "string"}}}}
}


def schema(value: Any, kind: SchemaType = SchemaType.AVRO, *references: Reference) -> Schema:
    return Schema(kind, value if isinstance(value, str) else json.dumps(value), references)


def place() -> StaticSchemas:
    money = Reference("money.proto", "money", 1)
    address = Reference("address.json", "address", 1)
    schemas: dict[SchemaKey, Schema] = {
        1: schema(OLD),
        2: schema(NEW),
        3: schema(CLASH),
        4: schema(TEXT),
        5: schema(PROTO, SchemaType.PROTOBUF, money),
        6: schema(JSON, SchemaType.JSON, address),
        7: schema('"long"'),
        8: schema("not a schema"),
    }
    subjects = {
        "money": {1: Registered("money", 1, 50, schema(MONEY, SchemaType.PROTOBUF))},
        "address": {1: Registered("address", 1, 60, schema(ADDRESS, SchemaType.JSON))},
        "t-value": {2: Registered("t-value", 2, 2, schema(NEW))},
    }
    return StaticSchemas(schemas, subjects)


def datum(definition: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(definition), value)
    return out.getvalue()


def old(number: int) -> bytes:
    return frame(1, datum(OLD, {ID: number}))


def new(number: int, note: str | None) -> bytes:
    return frame(2, datum(NEW, {ID: number, "note": note}))


def source(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Any] | None = None,
) -> pa.RecordBatch:
    rows = len(values)
    arrays = [
        pa.array(keys or [None] * rows, pa.binary()),
        pa.array(values, pa.binary()),
        pa.array(["t"] * rows),
        pa.array([3] * rows, pa.int32()),
        pa.array(range(100, 100 + rows), pa.int64()),
        pa.array([1000] * rows, TIMESTAMP),
        pa.array([0] * rows, pa.int32()),
        pa.array(headers or [None] * rows, HEADERS),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=RAW_COLUMNS)


def avro(columns: list[tuple[str, pa.DataType]], **more: Any) -> FormatSpec:
    return FormatSpec(kind="avro", columns=pa.schema(columns), registry=place(), **more)


def rows(decoded: Decoded) -> list[dict[str, Any]]:
    names = [name for name in decoded.rows.schema.names if name not in METADATA.names]
    return decoded.rows.select(names).to_pylist()


def reasons(decoded: Decoded) -> dict[int, str]:
    return {each.row: each.reason for each in decoded.rejected}


def test_each_record_is_read_with_its_own_schema_and_stays_in_its_place() -> None:
    form = make_format(avro([(ID, pa.int64()), ("note", pa.string())]))
    values = [new(1, "a"), old(2), None, b"rubbish", new(3, None), frame(9, b"x"), old(4)]
    found = form.decode(source(values))
    assert rows(found) == [
        {ID: 1, "note": "a"},
        {ID: 2, "note": None},
        {ID: None, "note": None},
        {ID: 3, "note": None},
        {ID: 4, "note": None},
    ]
    assert found.rows["_offset"].to_pylist() == [100, 101, 102, 104, 106]
    assert reasons(found) == {
        3: "no zero byte and schema id in front of the datum",
        5: "schema id 9 is not in the schema file",
    }
    assert found.wider is None


def test_a_field_that_the_table_lacks_is_told_with_the_records_that_need_it() -> None:
    narrow = [(ID, pa.int32())]
    found = make_format(avro(narrow)).decode(source([old(1), new(2, "b")]))
    assert found.wider == pa.schema([(ID, pa.int64()), ("note", pa.string())])
    assert make_format(avro(narrow)).decode(source([old(1)])).wider is None
    fixed = avro(narrow, fixed=frozenset([ID])), avro(narrow, options={"evolve": "false"})
    assert make_format(fixed[0]).decode(source([new(1, "a")])).wider == pa.schema(
        [(ID, pa.int32()), ("note", pa.string())]
    )
    assert make_format(fixed[1]).decode(source([new(1, "a")])).wider is None


def test_a_batch_that_is_read_again_does_not_fit_values_into_columns_that_get_wider(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One by one they would take twenty times as long as the batch with the columns it needs."""
    if avro_library() is None:
        pytest.skip("without the kernel all is read one by one")

    def slowly(self: object, batch: pa.RecordBatch) -> Decoded:
        raise AssertionError("read one by one")

    monkeypatch.setattr(AvroFormat, "_decode_slowly", slowly)
    narrow = avro([(ID, pa.int32()), ("kept", pa.string())], is_read_again=True)
    found = make_format(narrow).decode(source([old(1), new(2**40, "b"), old(3)]))
    assert found.wider == pa.schema(
        [(ID, pa.int64()), ("kept", pa.string()), ("note", pa.string())]
    )
    assert rows(found) == [{ID: 1, "kept": None}, {ID: None, "kept": None}, {ID: 3, "kept": None}]
    nested = {"type": "record", "name": "Order", "fields": [{"name": "row", "type": ROW}]}
    value = {"row": {"a": 1.5, "b": "x"}}
    registry = StaticSchemas({1: schema(nested)})
    spec = FormatSpec(
        kind="avro",
        columns=pa.schema([("row", pa.struct([("a", pa.int64()), ("b", pa.string())]))]),
        registry=registry,
        is_read_again=True,
    )
    form = framed.FramedFormat(spec, rows_in="row")
    found = form.decode(source([frame(1, datum(nested, value))]))
    assert rows(found) == [{"row": {"a": None, "b": "x"}}]
    assert found.wider == pa.schema([("a", pa.float64()), ("b", pa.string())])


def test_message_indexes_are_found_as_record_by_record() -> None:
    indexes = ([0], [1], [7, 3], [0, 0], [63], [64], [1, 200, 2], [1])
    values = [frame(each % 2, b"datum", place) for each, place in enumerate(indexes * 2)]
    values += [frame(1, b"", [5]), b"\0\0\0\0\1\0rest", b"\0\0\0\0\1\2\0"]
    wrong = [b"\0\0\0\0\1\3\2", b"\0\0\0\0\1\4\2", b"\0\0\0\0\1\xff\xff\2", b"\1\0\0\0\1\2\2"]
    found = read_frames(source([*wrong, *values, None]), has_indexes=True)
    assert [each.row for each in found.rejected] == list(range(len(wrong)))
    assert found.nulls.tolist() == [len(wrong) + len(values)]
    read = {
        row: (group.key, group.indexes, data)
        for group in found.groups
        for row, data in zip(group.rows.tolist(), group.data.to_pylist(), strict=True)
    }
    for row, value in enumerate(values, start=len(wrong)):
        expected = read_frame(value, has_indexes=True)
        assert read.pop(row) == (expected.key, expected.indexes, value[expected.position :])
    assert not read


def test_what_cannot_be_a_column_is_rejected_with_its_id() -> None:
    found = make_format(avro([(ID, pa.int32())])).decode(
        source(
            [
                frame(3, datum(CLASH, {"ID": 1})),
                frame(4, datum(TEXT, {ID: "x"})),
                frame(5, b"\0"),
                frame(8, b""),
                frame(1, datum(OLD, {ID: 1}) + b"!"),
            ]
        )
    )
    said = reasons(found)
    assert said[0] == "schema id 3: field ID: there is a column id already"
    assert said[1].startswith("column id: ")
    assert said[2] == "schema id 5 is PROTOBUF, not AVRO"
    assert said[3].startswith("schema id 8: the schema is not JSON")
    assert said[4] == "1 bytes are left behind the datum"
    assert not found.rows


def test_a_registry_that_is_away_rejects_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Away:
        def schema(self, key: SchemaKey) -> Any:
            raise RegistryAwayError("the schema registry is away")

    monkeypatch.setattr(framed, "open_registry", lambda place: Away())
    with pytest.raises(RegistryAwayError):
        make_format(avro([(ID, pa.int32())])).decode(source([old(1)]))


def test_a_definition_reads_by_avros_rules() -> None:
    reader = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "number", "aliases": [ID], "type": "double"},
            {"name": "state", "type": "string", "default": "open"},
        ],
    }
    spec = FormatSpec(kind="avro", definition=json.dumps(reader).encode(), registry=place())
    found = make_format(spec).decode(source([old(1), new(2, "b")]))
    assert rows(found) == [{"number": 1.0, "state": "open"}, {"number": 2.0, "state": "open"}]
    assert found.wider is None


def order_message() -> bytes:
    money = b"\x0a\x03EUR\x10\x05"
    return b"\x08\x07" + b"\x12" + bytes([len(money)]) + money


def test_protobuf_messages_are_found_by_their_place_with_imports() -> None:
    columns = columns_of_records(
        FormatSpec(kind="protobuf", registry=place()), [source([frame(5, b"", [1])])]
    )
    assert columns is not None
    assert columns.names == ["id", "price", "at"]
    assert columns.field("at").type == TIMESTAMP
    spec = FormatSpec(kind="protobuf", columns=columns, registry=place())
    values = [
        frame(5, order_message(), [1]),
        frame(5, b"\x0a\x01x", [0]),
        frame(5, b"\x08\x05", [0, 0]),
        frame(5, b"", [7]),
        frame(5, b"\xff", [1]),
    ]
    found = make_format(spec).decode(source(values))
    assert rows(found)[0] == {"id": 7, "price": {"currency": "EUR", "units": 5}, "at": None}
    assert found.wider is not None
    assert set(found.wider.names) == {"id", "price", "at", "x", "y"}
    said = reasons(found)
    assert said[3] == "schema id 5: the schema has no message at the place 7"
    assert 4 in said


def test_json_schemas_give_columns_and_open_fields_get_them_with_values() -> None:
    columns = columns_of_records(
        FormatSpec(kind="json", registry=place()), [source([frame(6, b"{}")])]
    )
    assert columns == pa.schema(
        [
            ("id", pa.int64()),
            ("at", TIMESTAMP),
            ("tags", pa.map_(pa.string(), pa.string())),
            ("home", pa.struct([("zip", pa.string())])),
        ]
    )
    spec = FormatSpec(kind="json", columns=columns, registry=place())
    value = {"id": 1, "at": "2024-01-31T10:00:00Z", "tags": {"a": "b"}, "home": {"zip": "1"}}
    found = make_format(spec).decode(source([frame(6, json.dumps(value).encode())]))
    assert rows(found)[0]["tags"] == [("a", "b")]
    assert found.wider is None
    found = make_format(spec).decode(source([frame(6, b'{"open": 5}'), frame(6, b"[]")]))
    assert found.wider is not None
    assert found.wider.field("open").type == pa.int64()
    assert reasons(found) == {1: "a JSON list, not an object"}


def test_the_schemas_id_may_stand_in_a_header() -> None:
    def header(data: bytes, name: str = "__value_schema_id") -> list[dict[str, Any]]:
        return [{"key": "x", "value": b"y"}, {"key": name, "value": data}]

    values = [datum(OLD, {ID: 1}), old(2), datum(OLD, {ID: 3}), None]
    headers = [header(b"\0\0\0\0\1"), None, header(b"\2"), header(b"\0\0\0\0\1")]
    form = make_format(avro([(ID, pa.int32())]))
    found = form.decode(source(values, headers=headers))
    assert rows(found) == [{ID: 1}, {ID: 2}, {ID: None}]
    assert reasons(found) == {2: "the header with the schema's id is neither an id nor a GUID"}


def test_keys_name_their_own_schemas() -> None:
    spec = avro([(ID, pa.int32())], options={"key": "avro"}, key_type=pa.int64())
    keys = [frame(7, datum("long", 5)), None, b"raw", frame(2, datum(NEW, {ID: 1, "note": "x"}))]
    found = make_format(spec).decode(source([old(1), old(2), old(3), old(4)], keys))
    assert found.rows["_key"].to_pylist() == [5, None]
    assert found.rows.schema.field("_key").type == pa.int64()
    said = reasons(found)
    assert said[2] == "the key: no zero byte and schema id in front of the datum"
    assert "does not hold" in said[3]
    record = pa.struct([("note", pa.string()), (ID, pa.int64())])
    spec = avro([(ID, pa.int32())], options={"key": "avro"}, key_type=record)
    found = make_format(spec).decode(source([None], [keys[3]]))
    assert found.rows["_key"].to_pylist() == [{"note": "x", ID: 1}]
    with pytest.raises(ConfigError, match="needs a registry"):
        make_format(FormatSpec(kind="json", options={"key": "avro"}))


def test_the_newest_schema_of_the_topic_gives_the_first_columns() -> None:
    spec = FormatSpec(kind="avro", registry=place())
    found = newest_columns(spec, ["t"])
    assert found == pa.schema([("note", pa.string()), (ID, pa.int64())])
    assert newest_columns(spec, ["other"]) is None
    with pytest.raises(ConfigError, match="no subject s"):
        newest_columns(FormatSpec(kind="avro", registry=place(), options={"subject": "s"}), ["t"])
    with pytest.raises(ConfigError, match="t-value is AVRO, not json: give --format avro"):
        newest_columns(FormatSpec(kind="json", registry=place()), ["t"])


def test_single_records_are_decoded_for_who_shows_them() -> None:
    from millstream.schemas.registry import SchemaRegistry

    decoder = ValueDecoder(SchemaRegistry(place()))
    assert decoder.decode(new(1, "a")) == {"note": "a", ID: 1}
    assert decoder.decode(frame(5, order_message(), [1])) == {
        "id": "7",
        "price": {"currency": "EUR", "units": "5"},
    }
    assert decoder.decode(frame(6, b'{"id": 1}')) == {"id": 1}
    with pytest.raises(ValueError, match="left behind"):
        decoder.decode(old(1) + b"!")


def test_descriptors_in_base64_are_read_as_texts_are() -> None:
    import base64

    file = descriptor_pb2.FileDescriptorProto(name="a.proto", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    message = file.message_type.add(name="Event")
    message.field.add(name="at", number=1, label=1, type=11, type_name=".google.protobuf.Timestamp")
    text = base64.b64encode(file.SerializeToString()).decode()
    registry = StaticSchemas({1: Schema(SchemaType.PROTOBUF, text)})
    from millstream.schemas.registry import SchemaRegistry

    found = SchemaRegistry(registry).schema(1)
    assert columns_of(definition_of(found)) == pa.schema([("at", TIMESTAMP)])
    assert key_type(definition(SchemaRegistry(registry), 1, (0,), "protobuf")) == pa.struct(
        [("at", TIMESTAMP)]
    )


@pytest.mark.parametrize(
    "text",
    [
        '{"properties":"a"}',
        '{"type":"object","properties":{"a":{"type":{"b":1}}}}',
        '{"type":"object","properties":{"a":{"anyOf":1}}}',
    ],
)
def test_a_json_schema_that_is_none(text: str) -> None:
    with pytest.raises(ConfigError, match="not a JSON Schema"):
        columns_of(definition_of(CompleteSchema(SchemaType.JSON, text)))
