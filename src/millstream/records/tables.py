"""Converts whole tables to batches and back, for producers and consumers of tables.

Columns are those of :func:`table_schema`. Nothing here does input or output: a producer takes the
batches that :func:`batches_from_table` yields, a consumer passes fetched batches to
:func:`table_from_batches`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from millstream.model.offsets import Offset
from millstream.records.arrow_decoder import decode_arrow
from millstream.records.arrow_encoder import (
    DEFAULT_BATCH_BYTES,
    ArrowRows,
    EncodedBatch,
    encode_rows,
)
from millstream.records.arrow_layouts import as_bytes, header_columns, timestamp_column
from millstream.records.builder import BatchOptions
from millstream.records.compression import DEFAULT_MAX_BYTES
from millstream.records.crc32c import Buffer
from millstream.records.isolation import CommittedOnly
from millstream.records.kernel_decoder import NO_END, Selection
from millstream.records.table_partitions import (
    Int32s,
    KeyPartitioner,
    TablePartitioner,
    group_rows,
)


class Default(Enum):
    """The default choice of a column."""

    IF_THERE = "the column of the part's own name, where the table has one"


ColumnChoice: TypeAlias = str | pa.Array | pa.ChunkedArray | Default | None
"""A column by its name, an array of as many rows as the table, or None for no column."""

Rows: TypeAlias = pa.Table | pa.RecordBatch | pa.RecordBatchReader

_MOST_ROWS: Final = 1 << 20
"""Rows that are divided among partitions at once."""

_SMALL_CHUNK_BYTES: Final = 1 << 20
"""Chunks below this are joined to larger ones, so that batches are filled."""

_NUMBERS_BYTES: Final = 10
"""The approximate size of a record besides its key, its value and its headers."""


def table_schema() -> pa.Schema:
    """Return the columns of a polled table: topic, partition, offset, timestamp, key, value,
    headers; ``headers`` is null for a record that has none.
    """
    pair = pa.struct([pa.field("key", pa.string(), nullable=False), ("value", pa.binary())])
    return pa.schema(
        [
            pa.field("topic", pa.string(), nullable=False),
            pa.field("partition", pa.int32(), nullable=False),
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("headers", pa.list_(pa.field("element", pair))),
        ]
    )


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """Bytes of batches of one partition, from a fetch or a segment file.

    ``aborted`` lists aborted transactions, producer id and first offset: their records are left
    out, for a read-committed reader.
    """

    topic: str
    partition: int
    data: Sequence[Buffer]
    start_offset: Offset = 0
    end_offset: Offset = NO_END
    aborted: Sequence[tuple[int, Offset]] = ()


def table_from_batches(
    fetched: Iterable[FetchedBatches],
    schema: pa.Schema | None = None,
    *,
    check_crcs: bool = True,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> pa.Table:
    """Return the records as one table, a chunk for each item of ``fetched`` that has any.

    ``schema`` chooses among the columns of :func:`table_schema`. Raises CorruptLogError on damage.
    """
    wanted = table_schema() if schema is None else schema
    chunks = []
    for each in fetched:
        selection = Selection(
            start_offset=each.start_offset,
            end_offset=each.end_offset,
            keep=CommittedOnly(each.aborted) if each.aborted else None,
            check_crcs=check_crcs,
            max_bytes=max_bytes,
        )
        decoded = decode_arrow(
            each.data,
            wanted,
            topic=each.topic,
            partition=each.partition,
            selection=selection,
        )
        if decoded.rows.num_rows:
            chunks.append(decoded.rows)
    return pa.Table.from_batches(chunks, wanted)


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The mapping from columns of a table to the parts of a record.

    By default, columns called key, value, headers and timestamp are used if the table has them. The
    partitioner chooses the partition of rows without one.
    """

    key: ColumnChoice = Default.IF_THERE
    value: ColumnChoice = "value"
    headers: ColumnChoice = Default.IF_THERE
    timestamp: ColumnChoice = Default.IF_THERE
    partition: ColumnChoice = None


@dataclass(frozen=True, slots=True)
class TableRules:
    """The parameters for converting the rows of a table to batches.

    ``partitions`` is how many the topic has. Records without a timestamp get ``now_ms``. Batches
    take up to ``batch_bytes`` before compression; ``options`` has the fields of their headers.
    """

    partitions: int
    now_ms: int
    partitioner: TablePartitioner | None = None
    options: BatchOptions = field(default_factory=BatchOptions)
    batch_bytes: int = DEFAULT_BATCH_BYTES


def batches_from_table(
    table: Rows, rules: TableRules, columns: TableColumns | None = None
) -> Iterator[EncodedBatch]:
    """Yield the table's rows as batches; rows of one partition keep their order.

    Keys and values are binary or text, also large, dictionary-encoded or of a fixed size; their
    bytes are not copied on the way. Raises TypeError on a column of another type and ValueError
    on a column, a partition or a header key that is missing; each names the column.
    """
    chosen = columns if columns is not None else TableColumns()
    partitioner = rules.partitioner or KeyPartitioner(rules.partitions)
    for chunk in _chunks(_choose(table, chosen)):
        rows = _rows(chunk, rules.now_ms)
        if rules.partitions == 1 and "partition" not in chunk.schema.names:
            yield from encode_rows(rows, options=rules.options, batch_bytes=rules.batch_bytes)
            continue
        for partition, order in group_rows(
            _partitions(chunk, rows, rules, partitioner), rules.partitions
        ):
            yield from encode_rows(
                rows,
                partition=partition,
                order=order,
                options=rules.options,
                batch_bytes=rules.batch_bytes,
            )


def _choose(table: Rows, columns: TableColumns) -> Iterator[pa.RecordBatch]:
    """Yield the chosen columns under their parts' names, chunk by chunk."""
    choices = {
        part: choice
        for part, choice in (
            ("key", columns.key),
            ("value", columns.value),
            ("headers", columns.headers),
            ("timestamp", columns.timestamp),
            ("partition", columns.partition),
        )
        if choice is not None
    }
    if isinstance(table, pa.RecordBatchReader):
        if not all(isinstance(choice, (str, Default)) for choice in choices.values()):
            raise TypeError("columns of a reader are chosen by name")
        for batch in table:
            yield from _pick(pa.Table.from_batches([batch]), choices).to_batches()
    else:
        whole = pa.Table.from_batches([table]) if isinstance(table, pa.RecordBatch) else table
        yield from _pick(whole, choices).to_batches(max_chunksize=_MOST_ROWS)


def _pick(table: pa.Table, choices: dict[str, ColumnChoice]) -> pa.Table:
    picked: dict[str, pa.Array | pa.ChunkedArray] = {}
    for part, choice in choices.items():
        if isinstance(choice, (str, Default)):
            name = choice if isinstance(choice, str) else part
            if name in table.schema.names:
                _check_type(part, name, table.schema.field(name).type)
                picked[part] = table.column(name)
            elif isinstance(choice, str):
                have = ", ".join(table.schema.names) or "none"
                raise ValueError(f"the table has no column {name!r} for the {part}; it has {have}")
        elif choice is not None:
            if len(choice) != table.num_rows:
                raise ValueError(
                    f"the column for {part} has {len(choice)} rows, the table {table.num_rows}"
                )
            _check_type(part, part, choice.type)
            picked[part] = choice
    if not picked:
        raise ValueError("a record has a key, a value or headers: choose a column for one")
    return pa.table(picked)


def _check_type(part: str, name: str, kind: pa.DataType) -> None:
    """Raise TypeError, naming the column, when a part of a record cannot be of this type."""
    empty = (
        pa.array([], kind) if not pa.types.is_dictionary(kind) else pa.array([], kind.value_type)
    )
    try:
        if part in {"key", "value"}:
            as_bytes(empty)
        elif part == "headers":
            if not pa.types.is_null(kind):
                for column in header_columns(empty):
                    as_bytes(column)
        elif part == "timestamp":
            timestamp_column(empty)
        elif not pa.types.is_integer(kind) and not pa.types.is_null(kind):
            raise TypeError(f"{kind} is not an integer type")
    except TypeError as error:
        hint = "; cast it first" if part in {"key", "value"} else ""
        raise TypeError(f"column {name!r} cannot be the {part}: {error}{hint}") from None


def _chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small chunks, because each chunk ends a batch in every partition."""
    small: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        small.append(batch)
        size += batch.nbytes
        if size >= _SMALL_CHUNK_BYTES:
            yield from _joined(small)
            small, size = [], 0
    yield from _joined(small)


def _joined(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if len(batches) <= 1:
        yield from batches
        return
    yield from pa.Table.from_batches(batches).combine_chunks().to_batches(max_chunksize=_MOST_ROWS)


def _rows(chunk: pa.RecordBatch, now_ms: int) -> ArrowRows:
    def column(name: str) -> pa.Array | None:
        return chunk.column(name) if name in chunk.schema.names else None

    key, value = column("key"), column("value")
    headers = column("headers")
    return ArrowRows(
        rows=chunk.num_rows,
        key=None if key is None else as_bytes(key),
        value=None if value is None else as_bytes(value),
        headers=None if headers is None or pa.types.is_null(headers.type) else headers,
        timestamp=column("timestamp"),
        default_timestamp_ms=now_ms,
    )


def _partitions(
    chunk: pa.RecordBatch, rows: ArrowRows, rules: TableRules, partitioner: TablePartitioner
) -> Int32s:
    given = chunk.column("partition") if "partition" in chunk.schema.names else None
    if given is not None and not given.null_count:
        return _numbers(given)
    columns = (rows.key, rows.value, rows.headers)
    size = sum(column.nbytes for column in columns if column is not None)
    row_bytes = size // rows.rows + _NUMBERS_BYTES
    chosen = partitioner(rows, batch_rows=max(rules.batch_bytes // row_bytes, 1))
    if given is None or given.null_count == rows.rows:
        return chosen
    null = given.is_null().to_numpy(zero_copy_only=False)
    return np.where(null, chosen, _numbers(given.fill_null(0)))


def _numbers(column: pa.Array) -> Int32s:
    try:
        numbers: Int32s = column.cast(pa.int32()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid as error:
        raise ValueError(f"a partition that does not exist: {error}") from None
    return numbers
