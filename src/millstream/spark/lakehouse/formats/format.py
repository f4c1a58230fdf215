"""The interface of a format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from millstream.model.errors import ConfigError
from millstream.schemas.registry import RegistryPlace
from millstream.spark.lakehouse.widening import merge

TIMESTAMP: Final = pa.timestamp("us", "UTC")
LOCAL_TIMESTAMP: Final = pa.timestamp("us")
"""A time on a clock that does not say where it hangs."""
HEADERS: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

MOST_EXACT: Final = 2.0**53
"""Integers up to here are exact as doubles."""

FIRST_TIME_US: Final = -62_135_596_800_000_000
LAST_TIME_US: Final = 253_402_300_799_999_999
"""The years 1 to 9999, in microseconds since 1970: the range that most libraries support."""

_PARTS: Final = 8
"""Into how many parts a batch is divided if it cannot be read as a whole."""

METADATA_COLUMNS: Final = {
    "_topic": "topic",
    "_partition": "partition",
    "_offset": "offset",
    "_timestamp": "timestamp",
    "_key": "key",
    "_headers": "headers",
}
"""Columns that a decoded table has besides the fields of its values, and the source's names."""

METADATA: Final = pa.schema(
    [
        ("_topic", pa.string()),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_timestamp", TIMESTAMP),
        ("_key", pa.binary()),
        ("_headers", HEADERS),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatSpec:
    """A format and its parameters; sent to the executors.

    ``columns`` are those of the values (empty for raw). ``options`` are texts, by format: see each
    module. ``definition`` is an Avro schema's JSON or a Protobuf descriptor set.
    """

    kind: str = "raw"
    columns: pa.Schema = field(default_factory=lambda: pa.schema([]))
    options: Mapping[str, str] = field(default_factory=dict)
    definition: bytes = b""
    writer: bytes = b""
    """The Avro schema that the data were written with, if it is not ``definition``."""
    writers: Mapping[int, bytes] = field(default_factory=dict)
    """Avro schemas by their ids, given by hand instead of a registry."""
    registry: RegistryPlace | None = None
    """Where the schemas are that values, or keys, name by their ids."""
    key_type: pa.DataType | None = None
    """The type of the column ``_key``, where keys name their schemas."""
    reserved: frozenset[str] = frozenset()
    """Names of the table's columns that are not from the values."""
    fixed: frozenset[str] = frozenset()
    """Columns that cannot have a wider type, because of what the table holds."""
    is_read_again: bool = False
    """True where a batch that needs wider columns is read again with them. Until then values of a
    schema with wider types may be null in those columns.
    """

    @property
    def is_framed(self) -> bool:
        """True where values name their schemas: so told, or there is a registry to ask."""
        given = self.options.get("framing")
        if given is not None or self.kind not in ("avro", "protobuf", "json", "debezium"):
            return given == "confluent"
        return self.registry is not None

    def option(self, name: str, default: str | None = None) -> str:
        """Return an option; ConfigError when it is missing and has no default."""
        text = self.options.get(name, default)
        if text is None:
            raise ConfigError(f"format {self.kind} needs the option {name}")
        return text


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row that cannot be read: its index in the batch, and why."""

    row: int
    reason: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """The result of decoding one batch.

    ``wider`` are the columns that the table would need for all values, if it does not have them;
    the driver decides (schema evolution).
    """

    rows: pa.RecordBatch
    rejected: Sequence[Rejected] = ()
    wider: pa.Schema | None = None


class Format(Protocol):
    """One format."""

    def table_schema(self) -> pa.Schema:
        """Return the columns of a table of this format."""

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Read the values of a batch of the source."""


Fields = Mapping[str, Any]


def with_metadata(columns: pa.Schema) -> pa.Schema:
    """Return the table's columns: fields first; ConfigError when a field takes a name of ours."""
    taken = [name for name in METADATA.names if columns.get_field_index(name) >= 0]
    if taken:
        raise ConfigError(f"columns named {', '.join(taken)} are the table's own")
    return pa.schema([*columns, *METADATA])


def typed(schema: pa.Schema) -> pa.Schema:
    """Return a schema without what holds nothing, at any depth; no kind of table has a type for it.

    ConfigError where nothing is left.
    """
    kinds = [(each, _typed(each.type)) for each in schema]
    columns = [each.with_type(kind) for each, kind in kinds if kind is not None]
    if not columns:
        raise ConfigError("the definition has no field that holds anything: there are no columns")
    return pa.schema(columns)


def _typed(kind: pa.DataType) -> pa.DataType | None:
    if pa.types.is_struct(kind):
        kinds = [(each, _typed(each.type)) for each in kind]
        fields = [each.with_type(inner) for each, inner in kinds if inner is not None]
        return pa.struct(fields) if fields else None
    if pa.types.is_list(kind):
        item = _typed(kind.value_type)
        return None if item is None else pa.list_(item)
    if pa.types.is_map(kind):
        item = _typed(kind.item_type)
        return None if item is None else pa.map_(kind.key_type, item)
    return None if pa.types.is_null(kind) else kind


def add_metadata(
    fields: Sequence[pa.Array], columns: pa.Schema, batch: pa.RecordBatch, rows: pa.Array | None
) -> pa.RecordBatch:
    """Return decoded fields beside their records' places; ``rows`` are the batch's rows kept."""
    kept = batch.select(list(METADATA_COLUMNS.values()))
    if rows is not None:
        kept = kept.take(rows)
    arrays = [*fields, *kept.columns]
    if not arrays[-1].type.equals(HEADERS):
        arrays[-1] = arrays[-1].cast(HEADERS)
    return pa.RecordBatch.from_arrays(arrays, schema=with_metadata(columns))


def decode_in_parts(
    batch: pa.RecordBatch,
    whole: Callable[[pa.RecordBatch], Decoded | None],
    single: Callable[[pa.RecordBatch], Decoded],
) -> Decoded:
    """Read a batch with ``whole``; where it gives None, part by part, down to the values that it
    cannot read by themselves, which ``single`` gets.

    So what becomes of a value depends on that value alone, and not on a bad one beside it.
    """
    found = whole(batch)
    if found is not None:
        return found
    if len(batch) <= 1:
        return single(batch)
    step = -(-len(batch) // _PARTS)
    parts = [
        (first, decode_in_parts(batch.slice(first, step), whole, single))
        for first in range(0, len(batch), step)
    ]
    rows = pa.Table.from_batches([part.rows for _, part in parts]).combine_chunks()
    return Decoded(
        _one_batch(rows),
        [Rejected(first + e.row, e.reason) for first, part in parts for e in part.rejected],
        _wider_of(part.wider for _, part in parts),
    )


def _wider_of(schemas: Iterable[pa.Schema | None]) -> pa.Schema | None:
    seen = None
    for each in schemas:
        if each is not None:
            seen = each if seen is None else merge(seen, each)
    return seen


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def spread(arrays: Sequence[pa.Array], values: Sequence[bytes | None]) -> list[pa.Array]:
    """Return columns of the values that are there, with a null for each tombstone."""
    if all(value is not None for value in values):
        return list(arrays)
    index = iter(range(len(values)))
    topic_partitions = pa.array([None if v is None else next(index) for v in values], pa.int32())
    return [array.take(topic_partitions) for array in arrays]


def decode_rows(
    batch: pa.RecordBatch, columns: pa.Schema, read: Callable[[bytes], Fields]
) -> Decoded:
    """Decode values one by one with ``read``, which raises if it cannot.

    A null value (a tombstone) gives a row of nulls.
    """
    good: list[int] = []
    values: list[Fields] = []
    rejected: list[Rejected] = []
    for row, value in enumerate(batch.column("value").to_pylist()):
        try:
            values.append({} if value is None else read(value))
        except Exception as error:  # libraries raise various exceptions for invalid bytes
            rejected.append(Rejected(row, reason_of(error)))
        else:
            good.append(row)
    arrays, bad = to_arrays(values, columns)
    if bad:
        rejected += [Rejected(good[index], reason) for index, reason in bad.items()]
        rejected.sort(key=lambda each: each.row)
        good = [row for index, row in enumerate(good) if index not in bad]
    kept = pa.array(good, pa.int32()) if rejected else None
    return Decoded(add_metadata(arrays, columns, batch, kept), rejected)


def to_arrays(
    values: Sequence[Fields], columns: pa.Schema
) -> tuple[list[pa.Array], dict[int, str]]:
    """Return the columns of ``values``, and the indexes left out because a type does not fit."""
    try:
        return [_column(values, each) for each in columns], {}
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass
    bad: dict[int, str] = {}
    for index, each in enumerate(values):
        try:
            for column in columns:
                _column([each], column)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            bad[index] = f"column {column.name}: {reason_of(error)}"
    good = [each for index, each in enumerate(values) if index not in bad]
    return [_column(good, each) for each in columns], bad


def _column(values: Sequence[Fields], column: pa.Field) -> pa.Array:
    found = [each.get(column.name) for each in values]
    if pa.types.is_temporal(column.type) and any(isinstance(value, str) for value in found):
        return pa.array(found, pa.string()).cast(column.type)
    for value in found:
        _check_numbers(value, column.type)
    return pa.array(found, column.type)


def _check_numbers(value: Any, kind: pa.DataType) -> None:
    """Raise ValueError for a number that Arrow would truncate or round, and for a time outside of
    the calendar.
    """
    if pa.types.is_list(kind) and isinstance(value, list):
        for item in value:
            _check_numbers(item, kind.value_type)
    elif pa.types.is_struct(kind) and isinstance(value, dict):
        for each in kind:
            _check_numbers(value.get(each.name), each.type)
    elif isinstance(value, float) and pa.types.is_integer(kind) and not value.is_integer():
        raise ValueError(f"{value} is not a valid {kind}")
    elif isinstance(value, int):
        _check_whole_number(value, kind)


def _check_whole_number(value: int, kind: pa.DataType) -> None:
    if pa.types.is_floating(kind) and abs(value) > MOST_EXACT and int(float(value)) != value:
        raise ValueError(f"{value} is not a valid {kind}")
    if pa.types.is_timestamp(kind) and not FIRST_TIME_US <= value <= LAST_TIME_US:
        raise ValueError(f"{value} is not in the years 1 to 9999")


def reason_of(error: Exception) -> str:
    """Return the error as one line."""
    text = str(error).strip().splitlines()
    return (text[0] if text else type(error).__name__)[:500]


def as_text(values: pa.Array) -> tuple[pa.Array, list[int]]:
    """Return values as strings, and the rows whose bytes are not UTF-8 (null there)."""
    try:
        return values.cast(pa.string()), []
    except pa.ArrowInvalid:
        pass
    texts: list[str | None] = []
    bad = []
    for row, value in enumerate(values.to_pylist()):
        try:
            texts.append(None if value is None else value.decode())
        except UnicodeDecodeError:
            texts.append(None)
            bad.append(row)
    return pa.array(texts, pa.string()), bad


def true_rows(mask: pa.Array) -> list[int]:
    """Return the rows where ``mask`` is true."""
    return [int(row) for row in pc.indices_nonzero(mask).to_pylist()]
