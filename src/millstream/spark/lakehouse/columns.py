"""Which columns a load's table has: pinned by its schema file, or inferred now and then pinned."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

import pyarrow as pa

from millstream.model.errors import ConfigError
from millstream.spark.lakehouse.formats import FormatSpec
from millstream.spark.lakehouse.formats.raw import RAW_COLUMNS
from millstream.spark.lakehouse.schema_file import read_schema_file, write_schema_file
from millstream.spark.lakehouse.settings import LoadSettings
from millstream.spark.lakehouse.widening import agree
from millstream.spark.options import SourceOptions
from millstream.spark.ranges import OffsetRange
from millstream.spark.reader import ReadRules, read_range
from millstream.spark.topics import Topics

_SAMPLE_OFFSETS: Final = 1_000
"""Offsets looked at in each partition to infer a schema."""

DEFINITION_OPTION: Final = "definition"
"""A file with the Avro schema, or with the Protobuf descriptor set."""


def schema_file_of(settings: LoadSettings) -> Path:
    """Return the file that pins the columns, by default inside the table's directory."""
    return settings.schema_file or settings.table.path / "_millstream" / "schema.json"


def format_spec(settings: LoadSettings, topics: Topics, options: SourceOptions) -> FormatSpec:
    """Return the format with its columns; writes the schema file when there is none."""
    kind = settings.format
    given = dict(settings.format_options)
    if kind == "raw":
        return FormatSpec(kind=kind, options=given)
    definition = b""
    if DEFINITION_OPTION in given:
        definition = Path(given.pop(DEFINITION_OPTION)).read_bytes()
    elif kind in ("avro", "protobuf"):
        raise ConfigError(f"format {kind} needs the option definition: a file with its schema")
    spec = FormatSpec(kind=kind, options=given, definition=definition)
    path = schema_file_of(settings)
    if path.exists():
        columns = read_schema_file(path, form=kind)
    else:
        columns = _infer(spec, topics, options)
        write_schema_file(path, columns, form=kind)
    return FormatSpec(kind=kind, columns=columns, options=given, definition=definition)


def _infer(spec: FormatSpec, topics: Topics, options: SourceOptions) -> pa.Schema:
    if spec.kind == "avro":
        from millstream.spark.lakehouse.formats import avro

        return avro.columns_of(spec.definition)
    if spec.kind == "protobuf":
        from millstream.spark.lakehouse.formats import protobuf

        return protobuf.columns_of(spec.definition, spec.option("message"))
    if spec.kind == "text":
        from millstream.spark.lakehouse.formats import text

        return text.default_columns(spec.options.get("pattern"))
    sample = _sample(topics, options)
    if spec.kind == "csv":
        from millstream.spark.lakehouse.formats import csv_lines

        return csv_lines.infer(sample, spec)
    return _infer_json(sample)


def _infer_json(sample: list[bytes]) -> pa.Schema:
    from millstream.spark.lakehouse.formats import json_lines

    seen: list[pa.Schema] = []
    for value in sample:
        with contextlib.suppress(pa.ArrowInvalid, ValueError):
            seen.append(json_lines.infer([value]))
    columns = agree(seen)
    if not len(columns):
        raise ConfigError(
            "no schema can be inferred: the topic has no JSON object among its first records; "
            "state one in a schema file"
        )
    return columns


def _sample(topics: Topics, options: SourceOptions) -> list[bytes]:
    """Return the first values of every partition."""
    places = topics.places(options.subscription)
    starts = topics.earliest(places)
    ends = topics.latest(places, read_committed=options.kafka.read_committed)
    rules = ReadRules.of(options, fail_on_data_loss=False)
    schema = pa.schema([RAW_COLUMNS.field("value")])
    values: list[bytes] = []
    for place in places:
        end = min(ends[place], starts[place] + _SAMPLE_OFFSETS)
        if end > starts[place]:
            for batch in read_range(OffsetRange(place, starts[place], end), rules, schema):
                values += [value for value in batch.column(0).to_pylist() if value is not None]
    return values
