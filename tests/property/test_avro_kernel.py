"""Avro datums read by the kernel are what is read value by value, whatever the bytes."""

from __future__ import annotations

import copy
import io
import json
import os
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from millstream.model.errors import ConfigError
from millstream.records import kernel
from millstream.records.kernel import Library
from millstream.spark.lakehouse.formats import FormatSpec, make_format
from millstream.spark.lakehouse.formats.avro import AvroFormat, columns_of
from millstream.spark.lakehouse.formats.format import HEADERS
from millstream.spark.lakehouse.formats.raw import RAW_COLUMNS

INT: Final = st.sampled_from([0, -1, 63, 64, 2**31 - 1, -(2**31)]) | st.integers(-300, 300)
LONG: Final = INT | st.sampled_from([2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)])
TEXT: Final = st.text(max_size=9) | st.sampled_from(["ü\u2028", "plain ascii text", "\U0001f600"])
BYTES: Final = st.binary(max_size=9)
INSTANT: Final = st.datetimes(timezones=st.just(UTC)).map(lambda t: t.replace(microsecond=5000))
LOCAL: Final = INSTANT.map(lambda t: t.replace(tzinfo=None))

Made = tuple[Any, st.SearchStrategy[Any]]
"""A schema, and its values."""


def simple(kind: str, values: st.SearchStrategy[Any], logical: str = "") -> Made:
    return ({"type": kind, "logicalType": logical} if logical else kind), values


def decimal(kind: str, digits: int, scale: int) -> Made:
    schema = {"type": kind, "logicalType": "decimal", "precision": digits, "scale": scale}
    if kind == "fixed":
        schema |= {"size": 8, "name": f"D{digits}"}
    most = 10**digits - 1
    numbers = st.integers(-most, most) | st.sampled_from([most, -most, 0, 127, 128, -128, -129])
    return schema, numbers.filter(lambda n: abs(n) <= most).map(lambda n: Decimal(n).scaleb(-scale))


SIMPLE: Final[tuple[Made, ...]] = (
    simple("boolean", st.booleans()),
    simple("int", INT),
    simple("long", LONG),
    simple("float", st.floats(width=32)),
    simple("double", st.floats()),
    simple("bytes", BYTES),
    simple("string", TEXT),
    simple("int", st.dates(), "date"),
    simple("int", st.times().map(lambda t: t.replace(microsecond=7000)), "time-millis"),
    simple("long", st.times(), "time-micros"),
    simple("long", INSTANT, "timestamp-millis"),
    simple("long", st.datetimes(timezones=st.just(UTC)), "timestamp-micros"),
    simple("long", LOCAL, "local-timestamp-millis"),
    simple("long", st.datetimes(), "local-timestamp-micros"),
    simple("string", st.uuids(), "uuid"),
    simple("long", LONG, "timestamp-nanos"),
    decimal("bytes", 18, 3),
    decimal("bytes", 38, 0),
    decimal("fixed", 16, 2),
)


@st.composite
def schemas(draw: Any, numbers: Iterator[int], left: int) -> Made:
    """A schema of any kind, nested up to ``left`` deep; names are unique."""
    kinds = ["simple"] * 3 + ["enum", "fixed", "optional"] + ["array", "map", "record"] * (left > 0)
    kind = draw(st.sampled_from(kinds))
    number = next(numbers)
    if kind == "simple":
        schema, values = draw(st.sampled_from(SIMPLE))
        schema = copy.deepcopy(schema)
        if isinstance(schema, dict) and "name" in schema:
            schema["name"] += f"N{number}"
        return schema, values
    if kind == "enum":
        symbols = ["A", "Bb", "Ccc"][: draw(st.integers(1, 3))]
        return {"type": "enum", "name": f"E{number}", "symbols": symbols}, st.sampled_from(symbols)
    if kind == "fixed":
        size = draw(st.integers(1, 9))
        schema = {"type": "fixed", "name": f"F{number}", "size": size}
        return schema, st.binary(min_size=size, max_size=size)
    if kind == "record":
        made: Made = draw(records(numbers, left - 1))
        return made
    schema, values = draw(schemas(numbers, left - 1 if kind != "optional" else left))
    if kind == "array":
        return {"type": "array", "items": schema}, st.lists(values, max_size=3)
    if kind == "map":
        keyed = st.dictionaries(TEXT, values, max_size=3)
        return {"type": "map", "values": schema}, keyed
    assume(not isinstance(schema, list))
    union = ["null", schema] if draw(st.booleans()) else [schema, "null"]
    return union, st.none() | values


@st.composite
def records(draw: Any, numbers: Iterator[int], left: int) -> Made:
    fields = [draw(schemas(numbers, left)) for _ in range(draw(st.integers(1, 4)))]
    names = [f"f{place}" for place in range(len(fields))]
    schema = {
        "type": "record",
        "name": f"R{next(numbers)}",
        "fields": [{"name": n, "type": each} for n, (each, _) in zip(names, fields, strict=True)],
    }
    return schema, st.fixed_dictionaries(
        dict(zip(names, (values for _, values in fields), strict=True))
    )


def datum(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(copy.deepcopy(schema)), value)
    return out.getvalue()


@st.composite
def damaged(draw: Any, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(draw(st.integers(1, 2))):
        place = draw(st.integers(0, len(found)))
        found[place : place + draw(st.integers(0, 2))] = draw(
            st.sampled_from([b"", b"\0", b"\1", b"\2", b"\x03", b"\xff", b"\x80\x80", b"\x7f" * 3])
        )
    return bytes(found)


@st.composite
def written(draw: Any, made: Made) -> list[bytes | None]:
    """Datums, sound and damaged, and tombstones."""
    schema, values = made
    found: list[bytes | None] = []
    for _ in range(draw(st.integers(0, 6))):
        sound = datum(schema, draw(values))
        found.append(draw(st.just(sound) | damaged(sound) | st.none() | st.just(sound)))
    return found


def of(values: list[bytes | None]) -> pa.RecordBatch:
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


def compare(spec: FormatSpec, values: list[bytes | None], *, is_compiled: bool = True) -> None:
    """Read values with the kernel and without."""
    form = make_format(spec)
    assert isinstance(form, AvroFormat)
    assert form.is_compiled or not is_compiled
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "_loaded", None)
        plain = make_format(spec)
    assert isinstance(plain, AvroFormat)
    assert not plain.is_compiled
    batch = of([b"\0", *values]).slice(1)
    found, expected = form.decode(batch), plain.decode(batch)
    found.rows.validate(full=True)
    # As text: a NaN is no other NaN.
    assert str(found.rows.to_pylist()) == str(expected.rows.to_pylist())
    assert found.rows.schema == expected.rows.schema
    assert list(found.rejected) == list(expected.rejected)


@pytest.mark.slow
@given(st.data())
def test_both_ways_agree(data: st.DataObject) -> None:
    made = data.draw(records(count(), 2))
    definition = json.dumps(made[0]).encode()
    try:
        columns_of(definition)
    except ConfigError:
        assume(False)  # an optional of what is optional
    compare(FormatSpec(kind="avro", definition=definition), data.draw(written(made)))


FIELDS: Final = (
    ("i", "int", INT),
    ("l", "long", LONG),
    ("f", "float", st.floats(width=32)),
    ("s", "string", TEXT),
    ("b", "bytes", BYTES),
    ("o", ["null", "int"], st.none() | INT),
    ("e", {"type": "enum", "name": "E", "symbols": ["A", "B"]}, st.sampled_from("AB")),
    (
        "r",
        {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]},
        st.fixed_dictionaries({"x": INT}),
    ),
)


@st.composite
def some_fields(draw: Any) -> Made:
    chosen = draw(st.lists(st.sampled_from(FIELDS), min_size=1, unique_by=lambda each: each[0]))
    fields = [{"name": name, "type": kind} for name, kind, _ in chosen]
    schema = {"type": "record", "name": "R", "fields": fields}
    return schema, st.fixed_dictionaries({name: values for name, _, values in chosen})


CHANGED: Final[dict[str, list[Any]]] = {
    "i": ["long", "float", "double", ["null", "long"], "string"],
    "l": ["double", ["null", "long"], ["long"]],
    "f": ["double"],
    "s": ["bytes", ["string", "null"]],
    "b": ["string"],
    "o": ["int", ["int", "null"], ["null", "double"]],
    "e": [{"type": "enum", "name": "E", "symbols": ["B", "C"]}],
    "r": [
        {
            "type": "record",
            "name": "I",
            "fields": [
                {"name": "x", "type": ["null", "long"]},
                {"name": "y", "type": "int", "default": 1},
            ],
        }
    ],
}


@pytest.mark.slow
@given(st.data())
def test_a_readers_schema(data: st.DataObject) -> None:
    """Fields in another order, others, renamed, promoted, with defaults."""
    made = data.draw(some_fields())
    fields = [copy.deepcopy(each) for each in made[0]["fields"] if data.draw(st.booleans())]
    for each in fields:
        if data.draw(st.booleans()):
            each["type"] = data.draw(st.sampled_from(CHANGED[each["name"]]))
        if data.draw(st.integers(0, 3)) == 0:
            each["aliases"] = [each["name"]]
            each["name"] = "renamed_" + each["name"]
    fields += data.draw(
        st.lists(
            st.sampled_from(
                [
                    {"name": "d1", "type": "string", "default": "x"},
                    {"name": "d2", "type": ["null", "long"], "default": None},
                    {"name": "d3", "type": {"type": "array", "items": "int"}, "default": [1]},
                    {"name": "d4", "type": "int"},
                ]
            ),
            unique_by=lambda each: each["name"],
        )
    )
    assume(fields)
    order = data.draw(st.permutations(fields))
    reader = json.dumps({"type": "record", "name": "R", "fields": order}).encode()
    writer = json.dumps(made[0]).encode()
    spec = FormatSpec(kind="avro", definition=reader, writer=writer)
    compare(spec, data.draw(written(made)), is_compiled=False)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["int", "long"])
@given(st.data())
def test_wider_narrower_and_absent_columns(kind: str, data: st.DataObject) -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "x", "type": kind}]}
    names = {"a": kind, "b": kind, "c": kind, "f": "float", "r": inner, "n": "null"}
    fields = [{"name": name, "type": each} for name, each in names.items()]
    schema = {"type": "record", "name": "R", "fields": fields}
    number = LONG if kind == "long" else INT
    columns = pa.schema(
        [
            ("f", pa.float64()),
            ("new", pa.string()),
            ("a", pa.float64()),
            ("b", pa.int32()),
            ("r", pa.struct([("more", pa.list_(pa.string())), ("x", pa.int64())])),
            ("c", pa.int64()),
        ]
    )
    values = st.fixed_dictionaries(
        {
            "a": number,
            "b": number,
            "c": number,
            "f": st.floats(width=32),
            "r": st.fixed_dictionaries({"x": number}),
            "n": st.none(),
        }
    )
    spec = FormatSpec(kind="avro", definition=json.dumps(schema).encode(), columns=columns)
    compare(spec, data.draw(written((schema, values))))


def test_columns_grow() -> None:
    """Text, and items of lists, are far more than there was room for."""
    fields = [
        {"name": "s", "type": "string"},
        {"name": "l", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "m", "type": {"type": "map", "values": "int"}},
        {"name": "t", "type": "string"},
    ]
    schema = {"type": "record", "name": "R", "fields": fields}
    value = {"s": "x" * 5000, "l": ["a", None] * 300, "m": {str(n): n for n in range(200)}, "t": ""}
    values = [datum(schema, value), b"\x02", datum(schema, {**value, "t": "y" * 90_000})] * 3
    compare(FormatSpec(kind="avro", definition=json.dumps(schema).encode()), [*values, None])


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("int", b"\x80" * 9 + b"\x02"),  # a bit that 64 do not hold
        ("int", b"\xff" * 9 + b"\x01"),
        ("long", b"\x80" * 10 + b"\x01"),
        ("string", b"\x01"),  # a length below 0
        ("string", b"\x04\xc3"),
        ("string", b"\x02\xff"),
        ("boolean", b"\x02"),
        (["null", "int"], b"\x01"),  # branch -1
        (["null", "int"], b"\x04"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x01"),
        ({"type": "int", "logicalType": "date"}, b"\xff\xff\xff\xff\x0f"),
        ({"type": "int", "logicalType": "time-millis"}, b"\x01"),
        ({"type": "int", "logicalType": "time-millis"}, b"\x80\xf0\xb2\x52"),
        ({"type": "long", "logicalType": "timestamp-millis"}, b"\xff" * 8 + b"\x7f"),
        ({"type": "string", "logicalType": "uuid"}, b"\x40" + b"A0" * 16),
        ({"type": "string", "logicalType": "uuid"}, b"\x40" + b"x0" * 16),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            b"\x06\x01\x00\x00",
        ),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, b"\0"),
        ({"type": "map", "values": "int"}, b"\x04\x02a\x02\x02a\x04\0"),  # a key twice
        ({"type": "array", "items": "int"}, b"\x03\x04\x02\x04\0"),  # a block with its size
        ({"type": "array", "items": "int"}, b"\x01" + b"\xff" * 3),
        ({"type": "array", "items": "int"}, b"\xff" * 9 + b"\x01\x02\x02"),
    ],
)
def test_at_the_edges(kind: Any, data: bytes) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "v", "type": kind}]}
    compare(FormatSpec(kind="avro", definition=json.dumps(schema).encode()), [data, data + b"\0"])


def test_values_of_logical_types() -> None:
    """What the kernel writes, against values written down here."""
    kinds = {
        "d": {"type": "int", "logicalType": "date"},
        "t": {"type": "int", "logicalType": "time-millis"},
        "i": {"type": "long", "logicalType": "timestamp-millis"},
        "l": {"type": "long", "logicalType": "local-timestamp-micros"},
        "n": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
        "u": {"type": "string", "logicalType": "uuid"},
    }
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    schema = {"type": "record", "name": "R", "fields": fields}
    value = {
        "d": date(1969, 7, 20),
        "t": time(1, 2, 3, 4000),
        "i": datetime(1969, 12, 31, 23, 59, 59, 999000, UTC),
        "l": datetime(2020, 1, 1, microsecond=7),
        "n": Decimal("-1234.56"),
        "u": UUID(int=9),
    }
    form = make_format(FormatSpec(kind="avro", definition=json.dumps(schema).encode()))
    assert isinstance(form, AvroFormat)
    assert form.is_compiled
    (row,) = form.decode(of([datum(schema, value)])).rows.select(list(kinds)).to_pylist()
    assert row == {**value, "u": str(UUID(int=9))}
