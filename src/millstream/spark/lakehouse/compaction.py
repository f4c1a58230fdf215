"""Joins small data files of one directory into larger ones, with the same rows in the same
order.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.spark.lakehouse.sorting import SortField, in_order
from millstream.spark.locations.location import Location

_COMPRESSION: Final = "zstd"
COMPACTED_PREFIX: Final = "millstream-compacted-"


def rewrite_small_files(
    root: Location,
    paths: Iterable[str],
    output_root: Location,
    *,
    target_bytes: int,
    part_of: Callable[[str], str] = lambda path: path.rpartition("/")[0],
    deleted: Mapping[str, Sequence[int]] = MappingProxyType({}),
    sort_by: Sequence[SortField] = (),
) -> tuple[list[str], list[str]]:
    """Rewrite the rows of small files under ``output_root``; return the old and the new paths.

    A file is small below half of ``target_bytes``. Files of different parts of the table
    (directories, unless ``part_of`` says otherwise) are never joined, and a group is skipped unless
    it has at least two files. Rows at the positions of ``deleted`` are left out. With ``sort_by``
    the rows of a new file are sorted, all of them in memory.
    """
    old: list[str] = []
    new: list[str] = []
    for group in _groups(root, paths, target_bytes, part_of):
        directory = group[0].rpartition("/")[0]
        name = f"{COMPACTED_PREFIX}{uuid.uuid4().hex[:16]}.parquet"
        target = f"{directory}/{name}" if directory else name
        join_files(
            [root / path for path in group],
            output_root / target,
            deleted=[deleted.get(path, ()) for path in group],
            sort_by=sort_by,
        )
        old += group
        new.append(target)
    return old, new


def _groups(
    root: Location, paths: Iterable[str], target_bytes: int, part_of: Callable[[str], str]
) -> Iterator[list[str]]:
    by_part: dict[str, list[str]] = {}
    for path in sorted(set(paths)):
        by_part.setdefault(part_of(path), []).append(path)
    for directory_paths in by_part.values():
        group: list[str] = []
        size = 0
        for path in directory_paths:
            file_size = (root / path).size_bytes()
            if file_size >= target_bytes // 2:
                continue
            if group and size + file_size > target_bytes:
                yield from [group] if len(group) > 1 else []
                group, size = [], 0
            group.append(path)
            size += file_size
        if len(group) > 1:
            yield group


def join_files(
    sources: Sequence[Location],
    target: Location,
    *,
    deleted: Sequence[Sequence[int]] = (),
    sort_by: Sequence[SortField] = (),
) -> None:
    """Write the rows of Parquet files, whose columns may differ, into one file, durably."""
    schema = pa.unify_schemas(
        [pq.read_schema(source.open_input()) for source in sources], promote_options="permissive"
    )
    gone = [*deleted, *repeat((), len(sources) - len(deleted))]
    with (
        target.open_output() as file,
        pq.ParquetWriter(file, schema, compression=_COMPRESSION) as writer,
    ):
        parts = (
            without_rows(_read_as(source, schema), positions)
            for source, positions in zip(sources, gone, strict=True)
        )
        for part in [in_order(pa.concat_tables(parts), sort_by)] if sort_by else parts:
            writer.write_table(part)
    target.settle()


def without_rows(table: pa.Table, positions: Sequence[int]) -> pa.Table:
    """Return a file's rows without those at some positions."""
    if not positions:
        return table
    kept = np.ones(table.num_rows, bool)
    kept[np.asarray(positions)] = False
    return table.filter(pa.array(kept))


def rewrite_file(
    source: Location, target: Location, columns: Sequence[pa.Field], *, deleted: Sequence[int] = ()
) -> None:
    """Rewrite a file with other types of some columns, and without deleted rows, durably."""
    table = without_rows(pq.ParquetFile(source.open_input()).read(), deleted)
    for column in columns:
        index = table.schema.get_field_index(column.name)
        if index >= 0:
            table = table.set_column(index, column, table.column(index).cast(column.type))
    _write(table, target)


def rewrite_columns(
    root: Location, paths: Iterable[str], output_root: Location, *, columns: Sequence[pa.Field]
) -> tuple[list[str], list[str]]:
    """Rewrite the files that have these columns with other types; return old and new paths."""
    old: list[str] = []
    new: list[str] = []
    for path in sorted(set(paths)) if columns else ():
        found = pq.read_schema((root / path).open_input())
        if all(each.name not in found.names or found.field(each.name) == each for each in columns):
            continue
        directory = path.rpartition("/")[0]
        name = f"{COMPACTED_PREFIX}{uuid.uuid4().hex[:16]}.parquet"
        target = f"{directory}/{name}" if directory else name
        rewrite_file(root / path, output_root / target, columns)
        old.append(path)
        new.append(target)
    return old, new


def rewrite_without(
    root: Location,
    paths: Iterable[str],
    output_root: Location,
    *,
    offsets: Mapping[TopicPartition, Sequence[Offset]] = MappingProxyType({}),
    ends: Mapping[TopicPartition, Offset] = MappingProxyType({}),
) -> tuple[list[str], list[str]]:
    """Rewrite the files with these records, or with records from ``ends`` on, without them; return
    old and new paths.
    """
    old: list[str] = []
    new: list[str] = []
    for path in paths:
        table = pq.ParquetFile((root / path).open_input()).read()
        gone = pa.chunked_array([pa.repeat(pa.scalar(False), table.num_rows)])
        for topic_partition, numbers in offsets.items():
            named = pc.is_in(table["offset"], value_set=pa.array(numbers, pa.int64()))
            gone = pc.or_(gone, pc.and_(_of_partition(table, topic_partition), named))
        for topic_partition, end in ends.items():
            behind = pc.greater_equal(table["offset"], end)
            gone = pc.or_(gone, pc.and_(_of_partition(table, topic_partition), behind))
        kept = table.filter(pc.invert(gone))
        if kept.num_rows == table.num_rows:
            continue
        old.append(path)
        if kept.num_rows:
            target = f"{COMPACTED_PREFIX}{uuid.uuid4().hex[:16]}.parquet"
            _write(kept, output_root / target)
            new.append(target)
    return old, new


def _of_partition(table: pa.Table, topic_partition: TopicPartition) -> pa.ChunkedArray:
    return pc.and_(
        pc.equal(table["topic"], topic_partition.topic),
        pc.equal(table["partition"], topic_partition.partition),
    )


def _write(table: pa.Table, target: Location) -> None:
    with target.open_output() as file:
        pq.write_table(table, file, compression=_COMPRESSION)
    target.settle()


def _read_as(source: Location, schema: pa.Schema) -> pa.Table:
    table = pq.ParquetFile(source.open_input()).read()
    columns = [
        table[field.name].cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
