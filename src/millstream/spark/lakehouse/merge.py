"""Merges the changes of a batch into a table of the present: copy on write, on the driver.

::

    changes ──► newest of each key ──► files that may hold those keys (footers' min and max)
                                             │ their key columns alone are read
                                             ▼
              files without a hit stay ◄── hits ──► files with hits are written anew, in order

Files that are written anew have the rows they had, with new rows in the places of old ones, and new
keys follow in the order of the key. Nothing but rows and files is left for readers to know: no
delete file, no deletion vector. In memory are the changes of one batch, the keys of one file of the
table, and a part of its rows.

**Which of two records of a key is newer**: in one partition the one with the higher offset. Offsets
of two partitions say nothing to each other, so between them the record's timestamp decides, and
with equal ones topic and partition. See decision 0099.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millstream.model.errors import MillstreamError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.spark.lakehouse.file_writer import FileRules, FileWriter
from millstream.spark.lakehouse.formats.debezium import CHANGE, TRUNCATE, UPSERT
from millstream.spark.lakehouse.gathering import take_rows
from millstream.spark.lakehouse.table import MergeTable, Replacement, offset_column_of
from millstream.spark.locations.location import Location

_ROW: Final = "\N{LEFT-POINTING ANGLE BRACKET}row\N{RIGHT-POINTING ANGLE BRACKET}"
_WINNER: Final = "\N{LEFT-POINTING ANGLE BRACKET}winner\N{RIGHT-POINTING ANGLE BRACKET}"
_WRITTEN_ROWS: Final = 1 << 16
_PART_BYTES: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """The columns that say which record a row is of."""

    topic: str
    partition: str
    offset: str
    timestamp: str

    @classmethod
    def of(cls, schema: pa.Schema) -> Place:
        """Return the columns of a decoded or a raw table."""
        prefix = offset_column_of(schema).removesuffix("offset")
        return cls(f"{prefix}topic", f"{prefix}partition", f"{prefix}offset", f"{prefix}timestamp")

    @property
    def columns(self) -> tuple[str, ...]:
        """Return all four."""
        return self.topic, self.partition, self.offset, self.timestamp


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of a batch: one row for each key, in the order of the key."""

    rows: pa.Table
    """With the table's columns and ``_change``."""
    truncates: Mapping[TopicPartition, Offset] = field(default_factory=dict)
    """Rows of these partitions below these offsets are deleted."""


def newest(rows: pa.Table, key: Sequence[str]) -> Changes:
    """Return the newest change of each key; ``rows`` are those of a batch in any order."""
    place = Place.of(rows.schema)
    truncates = _truncates(rows, place)
    if truncates:
        rows = rows.filter(pc.not_equal(rows[CHANGE], TRUNCATE))
        rows = rows.filter(pa.array(~_is_truncated(rows, place, truncates)))
    if not rows.num_rows:
        return Changes(rows, truncates)
    found = _newest_rows(rows.select([*key, *place.columns]), key, place)
    kept = take_rows(rows.select(key), found)
    order = pc.sort_indices(kept, sort_keys=[(name, "ascending") for name in key])
    return Changes(take_rows(rows, found[order.to_numpy()]), truncates)


def _newest_rows(rows: pa.Table, key: Sequence[str], place: Place) -> np.ndarray:
    topics = rows[place.topic].cast(pa.string()).combine_chunks().dictionary_encode()
    names = topics.dictionary.to_pylist()
    ranks = np.argsort(np.argsort(np.array(names, object)))
    partitions = rows[place.partition].to_numpy().astype(np.int64)
    lanes = ranks[topics.indices.to_numpy(zero_copy_only=False)] * (1 << 32) + partitions
    found = np.arange(rows.num_rows)
    offsets = rows[place.offset].to_numpy()
    if (lanes == lanes[0]).all():
        return _last_of_each(rows, key, found, np.argsort(offsets, kind="stable"))
    by_lane = rows.append_column(_ROW, pa.array(lanes))
    found = _last_of_each(by_lane, [*key, _ROW], found, np.argsort(offsets, kind="stable"))
    times = rows[place.timestamp].cast(pa.int64()).fill_null(-(1 << 63)).to_numpy()
    order = np.lexsort((lanes[found], times[found]))
    return _last_of_each(rows, key, found, order)


def _last_of_each(
    rows: pa.Table, key: Sequence[str], found: np.ndarray, order: np.ndarray
) -> np.ndarray:
    """Return those of the rows ``found`` that come last of their key in ``order``, which are
    positions in ``found``.
    """
    ordered = found[order]
    keys = take_rows(rows.select(key), ordered)
    numbered = keys.append_column(_WINNER, pa.array(np.arange(len(ordered))))
    last = numbered.group_by(list(key)).aggregate([(_WINNER, "max")])[f"{_WINNER}_max"]
    newest_rows: np.ndarray = ordered[last.to_numpy()]
    return newest_rows


def _truncates(rows: pa.Table, place: Place) -> dict[TopicPartition, Offset]:
    found: dict[TopicPartition, Offset] = {}
    gone = rows.filter(pc.equal(rows[CHANGE], TRUNCATE)).select(place.columns)
    for row in gone.to_pylist():
        each = TopicPartition(row[place.topic], row[place.partition])
        found[each] = max(found.get(each, 0), row[place.offset])
    return found


def _is_truncated(
    rows: pa.Table, place: Place, truncates: Mapping[TopicPartition, Offset]
) -> np.ndarray:
    gone = np.zeros(rows.num_rows, bool)
    for each, end in truncates.items():
        of_one = pc.and_(
            pc.equal(rows[place.topic], each.topic), pc.equal(rows[place.partition], each.partition)
        )
        below = pc.and_(of_one, pc.less(rows[place.offset], end)).fill_null(False)
        gone |= below.to_numpy()
    return gone


class Merger:
    """Merges batches into one table. Keeps what the footers of its files say, which never change.

    ``key`` are the columns that identify a row.
    """

    def __init__(self, table: MergeTable, key: Sequence[str]) -> None:
        self._table = table
        self._key = tuple(key)
        self._ends: dict[str, tuple[Any, Any] | None] = {}

    def merge(
        self, changes: Changes, rules: FileRules, columns_of: Callable[[pa.Schema], pa.Schema]
    ) -> Replacement:
        """Write the files that the table needs for these changes; nothing is committed.

        ``rules`` say how files are written, ``columns_of`` which columns of the table they have.
        New files whose commit failed are orphans, which a later batch or maintenance removes:
        nobody knows at once that a commit has failed.
        """
        present = self._table.present()
        columns, deleted = columns_of(present.schema), present.deleted
        hits = _Hits(changes, self._key, Place.of(columns))
        for path in self._candidates(changes, present.files):
            # Of a table that others write too, columns may have other types in older files.
            wanted = pa.schema([columns.field(n) for n in (*self._key, *hits.place.columns)])
            rows = read_as(self._path(path), wanted)
            hits.add(path, rows, gone=deleted.get(path, ()))
        files = hits.files()
        if self._table.name.kind == "delta" and any(path in deleted for path, _ in files):
            raise MillstreamError(
                f"{self._table.name}: another program has deleted rows by deletion vectors, which "
                "deltalake cannot replace; let that program rewrite those files (in Spark: REORG "
                "TABLE … APPLY (PURGE))"
            )
        writer = FileWriter(rules, columns, 0)
        upserts = _conformed(changes.rows, columns)
        for path, rows_of_file in files:
            first = 0
            for part in read_parts(self._path(path), columns):
                _write(writer, _with_new_rows(part, first, upserts, rows_of_file))
                first += part.num_rows
        _write(writer, take_rows(upserts, hits.new_rows()))
        removed = [path for path, _ in files]
        return Replacement(base=present.state, removed=removed, added=writer.finish())

    def _path(self, path: str) -> Location:
        return self._table.data_directory / path

    def _candidates(self, changes: Changes, files: Sequence[str]) -> list[str]:
        """Return the files that may have rows of these keys, in the order of the key."""
        paths = sorted(set(files))
        self._ends = {path: self._ends[path] for path in paths if path in self._ends}
        for path in paths:
            if path not in self._ends:
                self._ends[path] = _key_ends(self._path(path), self._key[0])
        rows = changes.rows
        keys = rows[self._key[0]].to_pylist() if rows.num_rows else []
        found = [p for p in paths if changes.truncates or _may_hold(self._ends[p], keys)]
        return sorted(found, key=lambda path: _order(self._ends[path], path))


class _Hits:
    """Where the keys of a batch are in a table's files, and what becomes of those rows."""

    def __init__(self, changes: Changes, key: Sequence[str], place: Place) -> None:
        self.place = place
        self._changes = changes
        self._names = [f"key{number}" for number in range(len(key))]
        self._key = key
        rows = changes.rows
        self._winners = pa.Table.from_arrays(
            [*(rows[name] for name in key), pa.array(np.arange(rows.num_rows))],
            names=[*self._names, _WINNER],
        )
        self._is_older = np.zeros(rows.num_rows, bool)
        self._is_placed = np.zeros(rows.num_rows, bool)
        self._is_upsert = pc.equal(rows[CHANGE], UPSERT).to_numpy()
        self._files: list[tuple[str, int, np.ndarray, np.ndarray, np.ndarray]] = []

    def add(self, path: str, rows: pa.Table, *, gone: Sequence[int]) -> None:
        """Look up the batch's keys in a file's rows; those at ``gone`` were deleted by others."""
        live = np.ones(rows.num_rows, bool)
        live[np.asarray(gone, np.int64)] = False
        truncated = _is_truncated(rows, self.place, self._changes.truncates) & live
        keys = pa.Table.from_arrays(
            [*(rows[name] for name in self._key), pa.array(np.arange(rows.num_rows))],
            names=[*self._names, _ROW],
        )
        joined = keys.join(self._winners, self._names, join_type="inner")
        held, winners = joined[_ROW].to_numpy(), joined[_WINNER].to_numpy()
        here = live[held] & ~truncated[held]
        held, winners = held[here], winners[here]
        order = np.argsort(held)
        held, winners = held[order], winners[order]
        self._is_older[winners[self._is_newer(rows, held, winners)]] = True
        if len(held) or truncated.any():
            left_out = np.flatnonzero(truncated | ~live)
            self._files.append((path, rows.num_rows, held, winners, left_out))

    def _is_newer(self, rows: pa.Table, held: np.ndarray, winners: np.ndarray) -> np.ndarray:
        """Tell which rows of a file are newer than the changes of their keys, or as new."""
        table = rows.select(self.place.columns).take(pa.array(held))
        batch = self._changes.rows.select(self.place.columns).take(pa.array(winners))
        topic, partition, offset, timestamp = self.place.columns
        same_topic = pc.equal(table[topic], batch[topic])
        same = pc.and_(same_topic, pc.equal(table[partition], batch[partition]))
        at_least = pc.greater_equal(table[offset], batch[offset])
        same_time = pc.equal(table[timestamp], batch[timestamp])
        behind = pc.or_(
            pc.greater(table[topic], batch[topic]),
            pc.and_(same_topic, pc.greater(table[partition], batch[partition])),
        )
        later = pc.or_(pc.greater(table[timestamp], batch[timestamp]), pc.and_(same_time, behind))
        # A row without a place is of another program: the next change of its key replaces it.
        found: np.ndarray = pc.if_else(same, at_least, later).fill_null(False).to_numpy()
        return found

    def files(self) -> list[tuple[str, np.ndarray]]:
        """Return the files to be written anew, and what becomes of each of a file's rows: its own
        position if it stays, −1 − the number of the change that takes its place, or the number of
        the file's rows if it goes.
        """
        found = []
        placed = np.zeros(len(self._is_older), bool)
        for path, count, held, winners, left_out in self._files:
            applies = ~self._is_older[winners]
            if not applies.any() and not len(left_out):
                continue
            rows = np.arange(count)
            here = winners[applies]
            is_first = np.zeros(len(here), bool)
            is_first[np.unique(here, return_index=True)[1]] = True
            takes = is_first & self._is_upsert[here] & ~placed[here]
            rows[held[applies]] = np.where(takes, -1 - here, count)
            placed[here] = True
            rows[left_out] = count
            found.append((path, rows))
        self._is_placed = placed
        return found

    def new_rows(self) -> np.ndarray:
        """Return the numbers of the changes whose keys are in no file; after :meth:`files`."""
        return np.flatnonzero(self._is_upsert & ~self._is_older & ~self._is_placed)


def _conformed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the columns of a schema; those that they lack are null."""
    columns = [
        rows[each.name].cast(each.type)
        if each.name in rows.column_names
        else pa.nulls(rows.num_rows, each.type)
        for each in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _with_new_rows(
    rows: pa.Table, first: int, upserts: pa.Table, rows_of_file: np.ndarray
) -> pa.Table:
    """Return what becomes of a part of a file, whose rows begin at ``first``; see
    :meth:`_Hits.files`.
    """
    here = rows_of_file[first : first + rows.num_rows]
    here = here[here < len(rows_of_file)]
    is_own = here >= 0
    if is_own.all():
        return take_rows(rows, here - first)
    used = take_rows(upserts, -1 - here[~is_own])
    taken = here - first
    taken[~is_own] = rows.num_rows + np.arange(used.num_rows)
    return take_rows(pa.concat_tables([rows, used]), taken)


def _write(writer: FileWriter, rows: pa.Table) -> None:
    for batch in rows.to_batches(max_chunksize=_WRITTEN_ROWS):
        writer.write(batch)


def read_as(path: Location, schema: pa.Schema) -> pa.Table:
    """Read columns of a file with these types; those that it lacks are null."""
    with pq.ParquetFile(path.open_input()) as file:
        names = [name for name in schema.names if name in file.schema_arrow.names]
        count = file.metadata.num_rows
        if not names:
            return pa.Table.from_arrays(
                [pa.nulls(count, each.type) for each in schema], schema=schema
            )
        return _conformed(file.read(columns=names), schema)


def read_parts(path: Location, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield a file's rows as :func:`read_as` returns them, some ten megabytes at a time."""
    with pq.ParquetFile(path.open_input()) as file:
        names = [name for name in schema.names if name in file.schema_arrow.names]
        metadata = file.metadata
        groups = (metadata.row_group(n) for n in range(metadata.num_row_groups))
        size = sum(group.total_byte_size for group in groups)
        rows = _PART_BYTES * metadata.num_rows // max(size, 1)
        for batch in file.iter_batches(min(max(rows, 1), _WRITTEN_ROWS), columns=names):
            yield _conformed(pa.Table.from_batches([batch]), schema)


def _key_ends(path: Location, column: str) -> tuple[Any, Any] | None:
    """Return the least and the greatest value of a column; None if the footer does not tell."""
    with pq.ParquetFile(path.open_input()) as file:
        index = file.schema_arrow.get_field_index(column)
        metadata = file.metadata
    names = [metadata.schema.column(n).path for n in range(metadata.num_columns)]
    if index < 0 or column not in names:
        return None
    low = high = None
    for number in range(metadata.num_row_groups):
        found = metadata.row_group(number).column(names.index(column)).statistics
        if found is None or not found.has_min_max:
            return None
        low = found.min if low is None else min(low, found.min)
        high = found.max if high is None else max(high, found.max)
    return None if low is None else (low, high)


def _may_hold(ends: tuple[Any, Any] | None, keys: Sequence[Any]) -> bool:
    """Tell whether one of the sorted keys may lie between the ends."""
    if ends is None:
        return bool(keys)
    try:
        index = bisect_left(keys, ends[0])
        return index < len(keys) and bool(keys[index] <= ends[1])
    except TypeError:  # a type that the footer writes in another way
        return bool(keys)


def _order(ends: tuple[Any, Any] | None, path: str) -> tuple[bool, str, str]:
    """Return what files are sorted by: roughly the key, so that files that are joined are close."""
    if ends is None:
        return True, "", path
    low = ends[0]
    return False, f"{low:+021d}" if isinstance(low, int) else str(low), path
