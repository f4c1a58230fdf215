"""Envelopes of Debezium in Avro do what the same envelopes in JSON do."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import ConfigError
from millstream.schemas.framing import frame
from millstream.schemas.registry import StaticSchemas
from millstream.schemas.schema import Schema, SchemaType
from millstream.spark.lakehouse.formats import FormatSpec
from millstream.spark.lakehouse.formats.avro import columns_of
from millstream.spark.lakehouse.formats.avro_envelopes import row_columns
from millstream.spark.lakehouse.formats.changes import ChangeFormat
from millstream.spark.lakehouse.formats.debezium import CHANGE, UNAVAILABLE
from millstream.spark.lakehouse.formats.format import HEADERS, Decoded
from millstream.spark.lakehouse.formats.raw import RAW_COLUMNS

COLUMNS: Final = pa.schema([("id", pa.int64()), ("k", pa.string()), ("x", pa.float64())])
SOURCE: Final = {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": "long"}]}


def envelope(*fields: tuple[str, Any]) -> dict[str, Any]:
    row = {
        "type": "record",
        "name": "Value",
        "fields": [{"name": name, "type": ["null", kind]} for name, kind in fields],
    }
    return {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": SOURCE},
            {"name": "op", "type": ["null", "string"]},
        ],
    }


PLAIN: Final = envelope(("id", "long"), ("k", "string"), ("x", "double"))
MORE: Final = envelope(("x", "float"), ("new", "int"), ("id", "int"))
CLASH: Final = envelope(("ID", "int"))
NO_ENVELOPE: Final = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": "id", "type": "long"}],
}
KEY: Final = {
    "type": "record",
    "name": "Key",
    "fields": [{"name": "id", "type": "int"}, {"name": "k", "type": ["null", "string"]}],
}
WRITERS: Final = (PLAIN, MORE, KEY, "string", NO_ENVELOPE, CLASH)
SCHEMAS: Final = StaticSchemas(
    {number: Schema(SchemaType.AVRO, json.dumps(each)) for number, each in enumerate(WRITERS)}
)
SPEC: Final = FormatSpec(kind="debezium", columns=COLUMNS, registry=SCHEMAS)
ROWS: Final = st.none() | st.fixed_dictionaries(
    {
        "id": st.sampled_from([1, 2, 1, 2, None]),
        "k": st.sampled_from(["a", "b", "a", None, UNAVAILABLE]),
        "x": st.sampled_from([0.5, None]),
    }
)
SHOWN: Final = ("_offset", "id", "k", "x", CHANGE)
KEYS: Final = st.none() | st.fixed_dictionaries(
    {"id": st.integers(1, 3), "k": st.sampled_from(["a", None])}
)
ENVELOPES: Final = st.none() | st.fixed_dictionaries(
    {
        "before": ROWS,
        "after": ROWS,
        "source": st.just({"lsn": 1}),
        "op": st.sampled_from(["c", "u", "r", "d", "u", "d", "t", "m", None]),
    }
)


def datum(number: int, value: Any) -> bytes | None:
    if value is None:
        return None
    out = io.BytesIO()
    schema = fastavro.parse_schema(copy.deepcopy(WRITERS[number]))
    fastavro.schemaless_writer(out, schema, value)
    return frame(number, out.getvalue())


def text(value: Any) -> bytes | None:
    if isinstance(value, dict) and value.get("op", "") is None:
        value = {name: each for name, each in value.items() if name != "op"}
    return None if value is None else json.dumps(value).encode()


def of(pairs: Sequence[tuple[bytes | None, bytes | None]]) -> pa.RecordBatch:
    count = len(pairs)
    columns: dict[str, Any] = {
        "key": [key for key, _ in pairs],
        "value": [value for _, value in pairs],
        "topic": ["t"] * count,
        "partition": [0] * count,
        "offset": list(range(count)),
        "timestamp": [0] * count,
        "timestampType": [0] * count,
        "headers": pa.nulls(count, HEADERS),
    }
    arrays = [pa.array(columns[each.name], each.type) for each in RAW_COLUMNS]
    return pa.RecordBatch.from_arrays(arrays, schema=RAW_COLUMNS)


def rows(found: Decoded) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = found.rows.select(SHOWN).to_pylist()
    return listed


@pytest.mark.slow
@pytest.mark.parametrize("key", [("id",), ("id", "k"), ("k",)])
@pytest.mark.parametrize("truncate", ["apply", "reject"])
@given(st.lists(st.tuples(KEYS, ENVELOPES), max_size=6))
def test_the_same_as_in_json(
    key: tuple[str, ...], truncate: str, records: list[tuple[Any, Any]]
) -> None:
    options = {"truncate": truncate}
    in_avro = ChangeFormat(replace(SPEC, options=options), key).decode(
        of([(datum(2, each), datum(0, value)) for each, value in records])
    )
    in_json = ChangeFormat(FormatSpec(kind="debezium", columns=COLUMNS, options=options), key)
    expected = in_json.decode(of([(text(each), text(value)) for each, value in records]))
    assert rows(in_avro) == rows(expected)
    assert list(in_avro.rejected) == list(expected.rejected)
    assert in_avro.wider is None
    assert in_avro.rows.schema == in_json.table_schema()


def test_columns_and_their_changes() -> None:
    assert row_columns(columns_of(json.dumps(PLAIN).encode())) == COLUMNS
    with pytest.raises(ConfigError, match="no envelope of Debezium"):
        row_columns(columns_of(json.dumps(NO_ENVELOPE).encode()))
    value = {"before": None, "source": {"lsn": 1}, "op": "c"}
    more = {**value, "after": {"x": 0.5, "new": 3, "id": 1}}
    clash = {**value, "after": {"ID": 3}}
    values = [datum(1, more), datum(4, {"id": 5}), datum(5, clash)]
    batch = of([*((None, each) for each in values), (b"rubbish", None)])
    narrow = pa.schema([("id", pa.int32()), ("x", pa.float32())])
    found = ChangeFormat(replace(SPEC, columns=narrow), ["id"]).decode(batch)
    assert found.wider == pa.schema([("id", pa.int32()), ("x", pa.float32()), ("new", pa.int32())])
    found = ChangeFormat(SPEC, ["id"]).decode(batch)
    assert rows(found) == [{"_offset": 0, "id": 1, "k": None, "x": 0.5, CHANGE: 0}]
    assert [(each.row, each.reason) for each in found.rejected] == [
        (1, "no envelope of Debezium: there is no field op"),
        (2, "schema id 5: field ID: there is a column id already"),
        (3, "the deleted row has no key: id is in no part of it"),
    ]
    fixed = replace(SPEC, columns=narrow, fixed=frozenset(["new"]))
    assert ChangeFormat(fixed, ["id"]).decode(batch).wider is None
    plain = replace(SPEC, options={"evolve": "false"})
    assert ChangeFormat(plain, ["id"]).decode(batch).wider is None


def test_keys_that_are_no_records() -> None:
    """A plain value is the key of no column; the record's row has it, or it has none."""
    value = {"before": {"id": 1, "k": "a", "x": None}, "after": None, "source": {"lsn": 1}}
    batch = of(
        [
            (datum(3, "a"), datum(0, {**value, "op": "d"})),
            (datum(3, "a"), None),
            (datum(2, {"id": 2, "k": None}), None),
        ]
    )
    found = ChangeFormat(SPEC, ["id"]).decode(batch)
    assert [(each["id"], each[CHANGE]) for each in rows(found)] == [(1, 1), (2, 1)]
    assert [each.row for each in found.rejected] == [1]
