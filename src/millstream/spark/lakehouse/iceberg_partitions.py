"""The partitions of an Iceberg table's files.

A task writes the rows of each partition into files of their own (``file_writer``), and so do a
merge and a compaction. So the first row of a file says in which partition it is. pyiceberg asks the
file's statistics instead, which say nothing about transforms without an order (``bucket``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import (
    UNPARTITIONED_PARTITION_SPEC,
    PartitionFieldValue,
    PartitionKey,
    PartitionSpec,
)
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties, Transaction
from pyiceberg.table import _parquet_files_to_data_files as describe_files
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update.snapshot import _MergeAppendFiles
from pyiceberg.table.update.spec import UpdateSpec
from pyiceberg.transforms import TimeTransform, parse_transform
from pyiceberg.typedef import Record
from pyiceberg.utils.properties import property_as_bool

from millstream.model.errors import ConfigError
from millstream.spark.lakehouse.parallelism import run_in_threads
from millstream.spark.lakehouse.partitioning import PartitionField, from_iceberg

_PARTITION: Final = 3
"""The position of the partition in pyiceberg's record of a data file."""


def split_of(schema: Schema, spec: PartitionSpec) -> list[str]:
    """Return by what a table is split, as ``--partition-by`` has it."""
    return [
        str(from_iceberg(str(each.transform), schema.find_column_name(each.source_id) or "?"))
        for each in spec.fields
    ]


def add_fields(spec: UpdateSpec, fields: Sequence[PartitionField]) -> None:
    """Split a new table; ConfigError where Iceberg does not take a transform of a column."""
    for field in fields:
        try:
            spec.add_field(field.column, parse_transform(field.iceberg))
        except ValueError as error:
            raise ConfigError(f"partition by {field}: {error}") from None


def describe(metadata: TableMetadata, uris: Sequence[str], io: FileIO) -> list[DataFile]:
    """Return what the table says of new Parquet files: sizes, statistics, partitions.

    By times, which keep their order and always have statistics, pyiceberg checks those.
    """
    spec = metadata.spec()
    if all(isinstance(field.transform, TimeTransform) for field in spec.fields):
        return list(describe_files(metadata, list(uris), io))
    whole = metadata.model_copy(
        update={
            "default_spec_id": UNPARTITIONED_PARTITION_SPEC.spec_id,
            "partition_specs": [UNPARTITIONED_PARTITION_SPEC],
        }
    )
    files = list(describe_files(whole, list(uris), io))
    schema = metadata.schema()
    partitions = run_in_threads(
        lambda number: _partition_of(uris[number], io, schema, spec), range(len(uris))
    )
    for file, partition in zip(files, partitions, strict=True):
        file[_PARTITION] = partition
        file.spec_id = spec.spec_id
    return files


def append(
    transaction: Transaction, uris: Sequence[str], io: FileIO, *, properties: dict[str, str]
) -> None:
    """Add files to a table, as ``Transaction.add_files`` does."""
    map_names(transaction)
    update = transaction.update_snapshot(snapshot_properties=properties)
    # By default, as in Iceberg's own library: the list of manifests is written anew at each commit.
    merges = property_as_bool(
        transaction.table_metadata.properties, TableProperties.MANIFEST_MERGE_ENABLED, True
    )
    with update.merge_append() if merges else update.fast_append() as snapshot:
        if isinstance(snapshot, _MergeAppendFiles):
            snapshot._merge_enabled = True
        for file in describe(transaction.table_metadata, uris, io):
            snapshot.append_data_file(file)


def map_names(transaction: Transaction) -> None:
    """Have readers find columns by their names: our files have no ids of columns."""
    metadata = transaction.table_metadata
    if metadata.name_mapping() is None:
        names = metadata.schema().name_mapping.model_dump_json()
        transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: names})


def _partition_of(uri: str, io: FileIO, schema: Schema, spec: PartitionSpec) -> Record:
    sources = [schema.find_field(each.source_id) for each in spec.fields]
    row: Any = None
    with io.new_input(uri).open() as stream, pq.ParquetFile(stream) as file:
        known = set(file.schema_arrow.names)
        names = [each.name for each in sources if each.name in known]
        row = next(file.iter_batches(1, columns=sorted(set(names)))) if names else None
    values = []
    for field, source in zip(spec.fields, sources, strict=True):
        value = None
        if row is not None and source.name in known:
            transform = field.transform.pyarrow_transform(source.field_type)
            value = transform(pa.array(row.column(source.name)))[0].as_py()
        values.append(PartitionFieldValue(field=field, value=value))
    return PartitionKey(field_values=values, partition_spec=spec, schema=schema).partition
