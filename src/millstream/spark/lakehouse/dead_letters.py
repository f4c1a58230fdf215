"""Records that could not be read, and their replay after the schema or the code has changed.

A replay looks at the dead letters below the table's offsets: what is above is read again by the
load itself. It writes the rows that can be read now into the table, and then removes them from the
dead letters. If it crashes in between, a record is in both; the next replay detects that by its
offset and only removes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.model.errors import ConfigError, MillstreamError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.spark.lakehouse import ledger as ledgers
from millstream.spark.lakehouse.audit import table_offsets
from millstream.spark.lakehouse.columns import (
    EVOLUTIONS,
    evolve_columns,
    pinned_columns,
    schema_file_of,
    settle_columns,
    unpinned_spec,
)
from millstream.spark.lakehouse.dead_letter_commits import settle_all
from millstream.spark.lakehouse.file_writer import FileRules, FileWriter
from millstream.spark.lakehouse.formats import Format, FormatSpec, make_format
from millstream.spark.lakehouse.formats.raw import RAW_COLUMNS
from millstream.spark.lakehouse.intervals import OffsetSet
from millstream.spark.lakehouse.ledger import BATCH, Ledger
from millstream.spark.lakehouse.settings import DEFAULT_FILE_BYTES, LoadSettings
from millstream.spark.lakehouse.table import (
    Layout,
    Table,
    dead_letters_of,
    open_table,
)
from millstream.spark.lakehouse.upserts import read_mode


@dataclass(frozen=True, slots=True)
class Replay:
    """The result of a replay, in records."""

    tried: int = 0
    written: int = 0
    still_unreadable: int = 0


def replay(settings: LoadSettings) -> Replay:
    """Decode every dead letter of a table again. ConfigError if there is no table, or one with
    other columns or another split, or if the format has no schema file.
    """
    table = open_table(settings.table)
    if not table.exists():
        raise ConfigError(f"there is no table {settings.table}")
    if read_mode(settings.table) is not None:
        raise ConfigError(
            f"{settings.table} has the newest row of each key, and its dead letters are older than "
            "what it has: load the topic again into another table to read them"
        )
    dead_letters = open_table(dead_letters_of(settings.table))
    settle_all(settings.table)
    if not dead_letters.exists():
        return Replay()
    ledger = _ledger(table, dead_letters, settings.load_id)
    batches = [_below(rows, ledger) for rows in _dead_letters(dead_letters)]
    form = _evolved(
        settings, settle_columns(settings, _spec(settings, table), table), table, batches
    )
    schema = form.table_schema()
    table.create(
        Layout(
            schema=schema,
            event_time=settings.event_time,
            partition_column=settings.partition_column,
            partition_by=settings.partition_by,
        )
    )
    app_id = f"{settings.load_id}:replay"
    batch = table.ledger(app_id, [BATCH]).get(BATCH, 0)
    writer = FileWriter(_file_rules(settings, table, app_id, batch + 1), schema, 0)
    present = table_offsets(table)
    tried = rejected = 0
    readable: dict[TopicPartition, list[Offset]] = {}
    for rows in batches:
        tried += rows.num_rows
        decoded = form.decode(rows)
        rejected += len(decoded.rejected)
        for topic_partition, offset in _record_positions(decoded.rows):
            readable.setdefault(topic_partition, []).append(offset)
        writer.write(_without(decoded.rows, present))
    files = writer.finish()
    if files:
        expected = {BATCH: batch} if batch else {}
        table.commit(app_id, {BATCH: batch + 1}, files, expected=expected)
    if readable:
        dead_letters.delete_rows(readable)
    return Replay(tried, sum(file.rows for file in files), rejected)


def _ledger(table: Table, dead_letters: Table, app_id: str) -> Ledger:
    """Return the load's positions; ConfigError if no load of that name has written the table."""
    ledger = Ledger(table.ledger(app_id, ledgers.keys(table_offsets(dead_letters))))
    if not ledger.batch:
        raise ConfigError(f"{table.name}: {ledgers.unknown_load(app_id)}")
    return ledger


def _below(rows: pa.RecordBatch, ledger: Ledger) -> pa.RecordBatch:
    """Leave out the records that the load has not come to."""
    names = (rows.column(name).to_pylist() for name in ("topic", "partition", "offset"))
    below = [
        offset < (ledger.position(TopicPartition(topic, partition)) or 0)
        for topic, partition, offset in zip(*names, strict=True)
    ]
    return rows if all(below) else rows.filter(pa.array(below, pa.bool_()))


def _evolved(
    settings: LoadSettings, spec: FormatSpec, table: Table, batches: Sequence[pa.RecordBatch]
) -> Format:
    """Add the columns that the dead letters need to the table; return the format."""
    for _ in range(EVOLUTIONS):
        form = make_format(spec)
        decoded = [form.decode(rows) for rows in batches]
        wider = [each.wider for each in decoded if each.wider is not None]
        if not wider:
            return form
        spec = evolve_columns(settings, spec, table, wider)
    raise ConfigError(f"{table.name}: the columns changed {EVOLUTIONS} times")


def _file_rules(settings: LoadSettings, table: Table, app_id: str, batch: int) -> FileRules:
    partitioned = settings.event_time is not None and table.keeps_partition_column
    return FileRules(
        app_id=app_id,
        batch=batch,
        directory=table.staging_directory,
        target_bytes=DEFAULT_FILE_BYTES,
        offset_column="_offset",
        event_time=settings.event_time,
        partition_by=settings.partition_by,
        sort_by=table.sort_by(),
        partition_column=settings.partition_column if partitioned else None,
        calendar_only=not table.keeps_partition_column,
    )


def _spec(settings: LoadSettings, table: Table) -> FormatSpec:
    path = schema_file_of(settings)
    if settings.format == "raw":
        raise ConfigError("a table of raw records has no dead letters")
    if not path.is_file():
        raise MillstreamError(f"{path} does not exist: give the schema file of the load")
    held = table.schema()
    spec = replace(
        unpinned_spec(settings),
        key_type=held.field("_key").type if held.get_field_index("_key") >= 0 else None,
        reserved=frozenset([settings.partition_column] if settings.event_time is not None else []),
        fixed=frozenset(each.column for each in settings.partition_by),
    )
    return replace(spec, columns=pinned_columns(path, spec))


def _dead_letters(dead_letters: Table) -> list[pa.RecordBatch]:
    batches = []
    for path in dead_letters.files():
        table = pq.ParquetFile((dead_letters.data_directory / path).open_input()).read(
            columns=RAW_COLUMNS.names
        )
        plain = pa.Table.from_arrays(
            [table[each.name].cast(each.type) for each in RAW_COLUMNS], schema=RAW_COLUMNS
        )
        batches += plain.to_batches(max_chunksize=10_000)
    return batches


def _record_positions(rows: pa.RecordBatch) -> list[tuple[TopicPartition, Offset]]:
    columns = (rows.column(name).to_pylist() for name in ("_topic", "_partition", "_offset"))
    return [(TopicPartition(t, p), offset) for t, p, offset in zip(*columns, strict=True)]


def _without(rows: pa.RecordBatch, present: Mapping[TopicPartition, OffsetSet]) -> pa.RecordBatch:
    """Leave out the rows whose records are in the table already."""

    def is_there(topic_partition: TopicPartition, offset: Offset) -> bool:
        held = present.get(topic_partition)
        return held is not None and any(low <= offset < high for low, high in held.intervals)

    return rows.filter(
        pa.array(
            [not is_there(*topic_partition) for topic_partition in _record_positions(rows)],
            pa.bool_(),
        )
    )
