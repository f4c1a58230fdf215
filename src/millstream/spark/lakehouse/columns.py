"""Determines the columns of a load's table: pinned by its schema file, or inferred once and then
pinned.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import pyarrow as pa

from millstream.model.errors import ConfigError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.spark.lakehouse import registered_columns
from millstream.spark.lakehouse.column_ranges import without_rounding
from millstream.spark.lakehouse.formats import Format, FormatSpec, make_format
from millstream.spark.lakehouse.formats.keys import REGISTERED
from millstream.spark.lakehouse.formats.raw import RAW_COLUMNS
from millstream.spark.lakehouse.schema_file import (
    create_schema_file,
    read_schema_file,
    write_schema_file,
)
from millstream.spark.lakehouse.settings import LoadSettings
from millstream.spark.lakehouse.table import MILLSTREAM_DIRECTORY, Table, open_table
from millstream.spark.lakehouse.widening import agree, changed_columns, merge, one_of_each_name
from millstream.spark.lakehouse.widening import wider as wider_type
from millstream.spark.locations.location import Location
from millstream.spark.options import SourceOptions
from millstream.spark.ranges import OffsetRange
from millstream.spark.reader import ReadRules, read_ranges
from millstream.spark.topics import Topics

log = logging.getLogger(__name__)

_HEADERS: Final = RAW_COLUMNS.field("headers")
SAMPLE_OFFSETS: Final = 1_000
"""Offsets read in each partition to infer a schema, as long as there are few partitions."""
SAMPLE_OFFSETS_IN_ALL: Final = 10_000
"""Each value is looked at alone, which takes a tenth of a millisecond."""

EVOLUTIONS: Final = 5
"""How often the columns of a table may change in one batch."""

DEFINITION_OPTION: Final = "definition"
"""A file with the Avro schema, or with the Protobuf descriptor set."""


class NothingToInferError(ConfigError):
    """Columns have to be inferred, and there is no record yet."""

    def __init__(self) -> None:
        super().__init__(
            "no schema can be inferred: the topic is empty; state one in a schema file, or follow"
        )


def schema_file_of(settings: LoadSettings) -> Location:
    """Return the file that pins the columns, by default inside the table's directory."""
    return settings.schema_file or settings.table.path / MILLSTREAM_DIRECTORY / "schema.json"


def format_spec(settings: LoadSettings, topics: Topics, options: SourceOptions) -> FormatSpec:
    """Return the format with its columns; writes the schema file when there is none."""
    kind = settings.format
    if kind == "raw":
        return FormatSpec(kind=kind, options=dict(settings.format_options))
    spec = unpinned_spec(settings)
    path = schema_file_of(settings)
    spec = replace(spec, key_type=key_type_of(settings, spec, topics, options))
    if not path.is_file():
        inferred = infer_columns(spec, topics, options)
        check_names(inferred)
        create_schema_file(path, inferred, form=kind)
    columns = pinned_columns(path, spec)
    reserved = frozenset([settings.partition_column] if settings.event_time is not None else [])
    # A key of another type is another key, and so are a partition and an order.
    of_partitions = [each.column for each in settings.partition_by]
    of_order = [each.column for each in settings.sort_by]
    named = frozenset([*settings.key_columns, *of_partitions, *of_order])
    fixed = named & set(columns.names)
    return replace(spec, columns=columns, reserved=reserved, fixed=fixed)


def unpinned_spec(settings: LoadSettings) -> FormatSpec:
    """Return the format without its columns; ConfigError where nothing says what values are."""
    kind = settings.format
    given = dict(settings.format_options)
    definition = b""
    if DEFINITION_OPTION in given:
        definition = read_definition(given.pop(DEFINITION_OPTION))
    writers = writers_of(given, definition)
    spec = FormatSpec(
        kind=kind,
        options=given,
        definition=definition,
        writers=writers,
        registry=registered_columns.place_of_settings(settings.registry),
    )
    if kind in ("avro", "protobuf") and not definition and not spec.is_framed:
        raise ConfigError(
            f"format {kind} needs the option definition, a file with its schema, or a schema "
            "registry (--schema-registry URL or FILE)"
        )
    return spec


def key_type_of(
    settings: LoadSettings, spec: FormatSpec, topics: Topics, options: SourceOptions
) -> pa.DataType | None:
    """Return the type of keys that name their schemas, None for other keys.

    It is that of the table, if there is one.
    """
    if spec.options.get("key") not in REGISTERED:
        return None
    table = open_table(settings.table)
    if table.exists() and table.schema().get_field_index("_key") >= 0:
        return table.schema().field("_key").type
    return infer_key_type(spec, topics, options)


def infer_key_type(spec: FormatSpec, topics: Topics, options: SourceOptions) -> pa.DataType:
    """Return the type of keys that name their schemas: of the newest, or of the first records';
    NothingToInferError.
    """
    found = registered_columns.newest_key_type(spec, _names(topics, options))
    if found is None:
        sample = _sample(topics, options, pa.schema([RAW_COLUMNS.field("key"), _HEADERS]))
        found = registered_columns.key_type_of_records(spec, sample)
    if found is None:
        raise NothingToInferError
    return found


def writers_of(given: dict[str, str], definition: bytes) -> dict[int, bytes]:
    """Take the option of a format out that names schemas by their ids; return those."""
    text = given.pop("schema_id", None)
    if text is None:
        return {}
    from millstream.spark.lakehouse.formats import avro

    return avro.read_writers(text, definition)


def pinned_columns(path: Location, spec: FormatSpec) -> pa.Schema:
    """Return the columns of a schema file, and new ones of the format's definition.

    New ones are added to the file. ConfigError if a new field has the name of a column.
    """
    pinned = read_schema_file(path, form=spec.kind)
    if not spec.definition or spec.option("evolve", "true") != "true":
        return pinned
    columns = merge(pinned, _defined_columns(spec))
    if columns != pinned:
        check_names(columns)
        write_schema_file(path, columns, form=spec.kind)
    return columns


def check_names(columns: pa.Schema) -> None:
    """Raise ConfigError for columns whose names are the same, or differ in case alone."""
    first: dict[str, str] = {}
    for name in columns.names:
        if name.casefold() in first:
            raise ConfigError(
                f"there are two columns {first[name.casefold()]} and {name}: Spark and Delta do "
                "not tell them apart"
            )
        first[name.casefold()] = name


def read_definition(path: str) -> bytes:
    """Return the content of a file with a schema; ConfigError when it cannot be read."""
    try:
        return Path(path).expanduser().read_bytes()
    except OSError as error:
        raise ConfigError(f"option definition: {path}: {error.strerror}") from None


def settle_columns(settings: LoadSettings, spec: FormatSpec, table: Table) -> FormatSpec:
    """Reconcile the schema file with a table that was loaded with it; return the format.

    A user may have added columns or wider types to the file, and a load may have crashed between
    changing the table and the file. The narrower type is widened; if neither is wider, both are
    kept. A table of raw records stays raw, and no other table becomes raw.
    """
    known = table.schema()
    if spec.kind == "raw" or known.get_field_index("_offset") < 0:
        return spec
    held = [known.field(name) for name in spec.columns.names if known.get_field_index(name) >= 0]
    columns = merge(spec.columns, pa.schema(held))
    if columns != spec.columns:
        spec = replace(spec, columns=columns)
        write_schema_file(schema_file_of(settings), columns, form=spec.kind)
    wanted = make_format(spec).table_schema()
    if not any(changed_columns(merge(known, wanted), wanted)):
        table.add_columns(wanted)
    return spec


def evolve_columns(
    settings: LoadSettings,
    spec: FormatSpec,
    table: Table,
    wider: Iterable[pa.Schema],
    files: Iterable[Location] = (),
) -> FormatSpec:
    """Add the columns that values need to a table and to the schema file; return the format.

    ``files`` hold rows that will be in the table.
    """
    columns = spec.columns
    for each in wider:
        columns = one_of_each_name(merge(columns, each))
    columns = _as_in_table(spec.columns, columns, table)
    there = [table.data_directory / path for path in table.files()]
    columns, fixed = without_rounding(spec.columns, columns, [*there, *files])
    try:
        table.add_columns(_with(spec, columns).table_schema())
    except ConfigError:  # Iceberg does not widen what is inside of structs and lists
        nested = {each.name for each in spec.columns if pa.types.is_nested(each.type)}
        changed = nested & {each.name for each in changed_columns(spec.columns, columns)[1]}
        if not changed:
            raise
        fixed |= changed
        columns = pa.schema([spec.columns.field(f.name) if f.name in fixed else f for f in columns])
        table.add_columns(_with(spec, columns).table_schema())
    added, widened = changed_columns(spec.columns, columns)
    log.info(
        "%s: new columns: %s; wider types: %s",
        table.name,
        ", ".join(f"{field.name} {field.type}" for field in added) or "none",
        ", ".join(f"{field.name} {field.type}" for field in widened) or "none",
    )
    write_schema_file(schema_file_of(settings), columns, form=spec.kind)
    return replace(spec, columns=columns, fixed=spec.fixed | fixed)


def _as_in_table(known: pa.Schema, columns: pa.Schema, table: Table) -> pa.Schema:
    """Return ``columns`` in which columns that are new to a load have the table's type, if it has
    one.

    Another program may have added such a column to the table, and rows with it.
    """
    held = table.schema()

    def settled(field: pa.Field) -> pa.Field:
        if known.get_field_index(field.name) >= 0 or held.get_field_index(field.name) < 0:
            return field
        kind = held.field(field.name).type
        return field.with_type(wider_type(kind, field.type) or kind)

    return pa.schema([settled(field) for field in columns])


def _with(spec: FormatSpec, columns: pa.Schema) -> Format:
    return make_format(replace(spec, columns=columns))


def infer_columns(spec: FormatSpec, topics: Topics, options: SourceOptions) -> pa.Schema:
    """Return the columns of a definition, or of the first records; NothingToInferError."""
    if spec.definition:
        return _defined_columns(spec)
    if spec.is_framed and spec.kind == "debezium":
        from millstream.spark.lakehouse.formats import avro_envelopes

        envelope = _registered_columns(replace(spec, kind="avro"), topics, options)
        return avro_envelopes.row_columns(envelope)
    if spec.is_framed:
        return _registered_columns(spec, topics, options)
    if spec.kind == "text":
        from millstream.spark.lakehouse.formats import text

        return text.default_columns(spec.options.get("pattern"))
    sample = sample_values(topics, options)
    if not sample:
        raise NothingToInferError
    if spec.kind == "csv":
        from millstream.spark.lakehouse.formats import csv_lines

        return csv_lines.infer(sample, spec)
    if spec.kind == "debezium":
        from millstream.spark.lakehouse.formats import debezium

        sample = debezium.rows_of(sample)
    return _infer_json(sample)


def _defined_columns(spec: FormatSpec) -> pa.Schema:
    if spec.kind == "avro":
        from millstream.spark.lakehouse.formats import avro

        return avro.columns_of(spec.definition)
    from millstream.spark.lakehouse.formats import protobuf

    return protobuf.columns_of(spec.definition, spec.option("message"))


def _infer_json(sample: list[bytes]) -> pa.Schema:
    from millstream.spark.lakehouse.formats import json_values

    seen: list[pa.Schema] = []
    large: set[str] = set()
    for value in sample:
        with contextlib.suppress(pa.ArrowInvalid, ValueError, RecursionError):
            seen.append(json_values.infer([value]))
            large |= json_values.large_numbers(value)
    columns = pa.schema(
        [
            each.with_type(pa.int64()) if each.name in large else each
            for each in one_of_each_name(agree(seen))
        ]
    )
    if not seen:
        raise ConfigError(
            "no schema can be inferred: the topic has no JSON object among its first records; "
            "state one in a schema file"
        )
    return columns


def _registered_columns(spec: FormatSpec, topics: Topics, options: SourceOptions) -> pa.Schema:
    found = registered_columns.newest_columns(spec, _names(topics, options))
    if found is None:
        sample = _sample(topics, options, pa.schema([RAW_COLUMNS.field("value"), _HEADERS]))
        found = registered_columns.columns_of_records(spec, sample)
        if found is None and any(map(len, sample)):
            raise ConfigError(
                "no schema can be inferred: the registry has no subject of the topic (option "
                "subject), and knows no schema that the first records name"
            )
    if found is None:
        raise NothingToInferError
    return found


def _names(topics: Topics, options: SourceOptions) -> list[str]:
    return sorted({each.topic for each in topics.topic_partitions(options.subscription)})


def sample_values(topics: Topics, options: SourceOptions) -> list[bytes]:
    """Return the first values of every partition."""
    batches = _sample(topics, options, pa.schema([RAW_COLUMNS.field("value")]))
    return [each for batch in batches for each in batch.column(0).to_pylist() if each is not None]


def _sample(topics: Topics, options: SourceOptions, schema: pa.Schema) -> list[pa.RecordBatch]:
    """Return columns of the first records of every partition."""
    topic_partitions = topics.topic_partitions(options.subscription)
    starts = topics.earliest(topic_partitions)
    ends = topics.latest(topic_partitions, read_committed=options.kafka.read_committed)
    rules = ReadRules.of(options, fail_on_data_loss=False)
    return list(read_ranges(sampled_ranges(starts, ends), rules, schema))


def sampled_ranges(
    starts: Mapping[TopicPartition, Offset], ends: Mapping[TopicPartition, Offset]
) -> list[OffsetRange]:
    """Return the first offsets of each partition that has some: as many of each."""
    filled = [each for each, start in starts.items() if ends[each] > start]
    share = max(SAMPLE_OFFSETS_IN_ALL // max(len(filled), 1), 1)
    most = min(share, SAMPLE_OFFSETS)
    return [OffsetRange(p, starts[p], min(ends[p], starts[p] + most)) for p in filled]
