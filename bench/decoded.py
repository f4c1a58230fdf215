"""Decoded landings of B10: the access log as JSON, Avro and Protobuf, beside Spark's own connector
with ``from_json`` and ``from_avro``.

Every landing is read back: as many rows, and the same sum of their hashes, as the row's first one.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import duckdb
import fastavro
import pyarrow as pa
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet
from google.protobuf.message_factory import GetMessageClass
from tests.interop.clients.access_log import access_log_bytes

from bench.lake import FILES, OURS, STOCK, Lake, LakeRow, Measured
from millstream.spark.lakehouse.formats import FormatSpec, make_format
from millstream.spark.lakehouse.formats.protobuf import read_descriptor
from millstream.spark.lakehouse.formats.raw import RAW_COLUMNS
from millstream.spark.lakehouse.formats.text import ACCESS_LOG_COLUMNS
from millstream.spark.lakehouse.schema_file import write_schema_file
from millstream.spark.locations.location import as_location

LOCAL: Final = "Millstream, without Spark"
PLACES: Final = ("_topic", "_partition", "_offset", "_timestamp", "_key")
"""Columns that tell where a record was, of ours and of the stock connector's table alike."""
GOALS: Final = {"JSON": 1.6, "Avro": 2.0}
"""Million rows a second on two cores: 800,000 and 1 million of each."""
CONDITIONS: Final = (
    "decoded landing: the access log's 11 fields as JSON, Avro and Protobuf, into Parquet, the "
    "place of each record beside them; ours rejects what is wrong, from_json makes it null; every "
    "landing has the same rows (count and sum of hashes), read back by DuckDB",
)
_AVRO: Final = {
    pa.string(): "string",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.timestamp("us", "UTC"): {"type": "long", "logicalType": "timestamp-micros"},
}
_DDL: Final = {
    pa.string(): "STRING",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.timestamp("us", "UTC"): "TIMESTAMP",
}
_PROTOBUF: Final = {
    pa.string(): FieldDescriptorProto.TYPE_STRING,
    pa.int32(): FieldDescriptorProto.TYPE_INT32,
    pa.int64(): FieldDescriptorProto.TYPE_INT64,
    pa.timestamp("us", "UTC"): FieldDescriptorProto.TYPE_MESSAGE,
}


@dataclass(frozen=True)
class Form:
    """One format: the log in it, and how the subjects are told to read it."""

    name: str
    values: list[bytes]
    ours: Mapping[str, Any]
    stock: Mapping[str, Any] | None
    """None: Spark's own reader cannot be had."""


def decoded_rows(lake: Lake, only: str) -> list[LakeRow]:
    """Return a row for each format that ``--only`` leaves; topics are filled for those alone."""
    named = {_row_name(name): make for name, make in FORMS.items()}
    chosen = {name: make for name, make in named.items() if only in name}
    if not chosen:
        return []
    fields = _parsed()
    directory = lake.directory / "definitions"
    directory.mkdir(parents=True, exist_ok=True)
    return [_row(lake, make(fields, directory)) for make in chosen.values()]


def _row_name(form: str) -> str:
    return f"landing as {form}"


def _row(lake: Lake, form: Form) -> LakeRow:
    topic, rows, _ = lake.filled_with(f"bench-{form.name.lower()}", form.values)

    def ours(name: str, *, files: bool = False, local: bool = False) -> Measured:
        target = str(lake.directory / f"landed-{form.name}-{'local' if local else 'ours'}")
        source = lake.source(topic, files=files)
        request = {"options": source, "kind": "parquet", "target": target, "local": local}
        return Measured(
            name, _checked(partial(lake.ours().ask, "land", **request, **form.ours), target)
        )

    def stock() -> Mapping[str, Any]:
        target = str(lake.directory / f"landed-{form.name}-stock")
        request = {"format": "kafka", "options": lake.source(topic), "target": target}
        return _checked(
            partial(lake.stock().ask, "decoded", **request, **(form.stock or {})), target
        )()

    subjects = [ours(OURS), ours(FILES, files=True), ours(LOCAL, local=True)]
    targets: list[tuple[str, str, float]] = []
    if form.name in GOALS:
        goal = GOALS[form.name]
        targets.append((f"≥ {goal} million", "", goal))
    if form.stock is not None:
        subjects.append(Measured(STOCK, stock))
        targets.append(("≥ 5× stock", STOCK, 5.0))
    return LakeRow(
        _row_name(form.name), "million rows/s", rows / 1e6, subjects, tuple(targets), rows
    )


def _checked(ask: Callable[[], Mapping[str, Any]], target: str) -> Callable[[], Mapping[str, Any]]:
    """Return a request whose answer has the rows and the checksum of what was landed."""

    def answer() -> Mapping[str, Any]:
        found = ask()
        rows, checksum = _read_back(target)
        return {**found, "rows": rows, "checksum": checksum}

    return answer


def _read_back(target: str) -> tuple[int, str]:
    texts = [
        f"epoch_us({name})::VARCHAR" if name in ("time", "_timestamp") else f"{name}::VARCHAR"
        for name in (*ACCESS_LOG_COLUMNS.names, *PLACES)
    ]
    with duckdb.connect() as connection:
        row = connection.execute(
            f"SELECT count(*), sum(hash({', '.join(texts)}))::VARCHAR FROM read_parquet($files)",
            {"files": f"{target}/**/*.parquet"},
        ).fetchone()
    assert row is not None
    return int(row[0]), str(row[1])


def _parsed() -> list[dict[str, Any]]:
    """Return the fields of each line of the log."""
    lines = access_log_bytes().splitlines()
    count = len(lines)
    columns: dict[str, Any] = {"value": lines, "topic": [""] * count, "partition": [0] * count}
    arrays = [
        pa.array(columns[each.name], each.type)
        if each.name in columns
        else pa.nulls(count, each.type)
        for each in RAW_COLUMNS
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=RAW_COLUMNS)
    spec = FormatSpec(kind="text", columns=ACCESS_LOG_COLUMNS, options={"pattern": "access_log"})
    found = make_format(spec).decode(batch).rows
    rows: list[dict[str, Any]] = found.select(ACCESS_LOG_COLUMNS.names).to_pylist()
    return rows


def _json(fields: list[dict[str, Any]], directory: Path) -> Form:
    def text(value: Any) -> str:
        assert isinstance(value, datetime)
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")

    schema_file = directory / "json.json"
    write_schema_file(as_location(schema_file), ACCESS_LOG_COLUMNS, form="json")
    return Form(
        "JSON",
        [json.dumps(each, default=text, separators=(",", ":")).encode() for each in fields],
        {"read_as": "json", "schema_file": str(schema_file)},
        {
            "read_as": "json",
            "schema": ", ".join(f"`{each.name}` {_DDL[each.type]}" for each in ACCESS_LOG_COLUMNS),
        },
    )


def _avro(fields: list[dict[str, Any]], directory: Path) -> Form:
    members = [
        {"name": each.name, "type": ["null", _AVRO[each.type]]} for each in ACCESS_LOG_COLUMNS
    ]
    definition = {"type": "record", "name": "Hit", "fields": members}
    parsed = fastavro.parse_schema(definition)
    values = []
    for each in fields:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, each)
        values.append(out.getvalue())
    path = directory / "avro.avsc"
    path.write_text(json.dumps(definition))
    return Form(
        "Avro",
        values,
        {"read_as": "avro", "read_options": {"definition": str(path)}},
        {"read_as": "avro", "schema": path.read_text()},
    )


def _protobuf(fields: list[dict[str, Any]], directory: Path) -> Form:
    from google.protobuf import timestamp_pb2

    files = FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    file = files.file.add(name="hit.proto", package="bench", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    made = file.message_type.add(name="Hit")
    for number, each in enumerate(ACCESS_LOG_COLUMNS):
        field = made.field.add(
            name=each.name,
            number=number + 1,
            type=_PROTOBUF[each.type],
            label=FieldDescriptorProto.LABEL_OPTIONAL,
        )
        if field.type == FieldDescriptorProto.TYPE_MESSAGE:
            field.type_name = ".google.protobuf.Timestamp"
        else:
            field.proto3_optional, field.oneof_index = True, len(made.oneof_decl)
            made.oneof_decl.add(name=f"_{each.name}")
    path = directory / "hit.desc"
    path.write_bytes(files.SerializeToString())
    kind = GetMessageClass(read_descriptor(path.read_bytes(), "bench.Hit"))
    options = {"definition": str(path), "message": "bench.Hit"}
    return Form(
        "Protobuf",
        [kind(**each).SerializeToString() for each in fields],
        {"read_as": "protobuf", "read_options": options},
        None,
    )


FORMS: Final[Mapping[str, Callable[[list[dict[str, Any]], Path], Form]]] = {
    "JSON": _json,
    "Avro": _avro,
    "Protobuf": _protobuf,
}
