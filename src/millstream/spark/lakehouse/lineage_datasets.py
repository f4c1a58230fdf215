"""Topics and tables as OpenLineage names and describes them.

Names follow the "Naming" page of OpenLineage: ``kafka://host:port`` and the topic; ``file`` and the
path; ``s3://bucket`` and the key. A table of a catalogue has its place as name and its name in the
catalogue as a symbolic link.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.spark.locations.location import Location
from millstream.spark.locations.named import NamedPlace
from millstream.spark.options import Assign, SourceOptions, Subscribe
from millstream.spark.topics import open_topics

if TYPE_CHECKING:
    from openlineage.client.generated.schema_dataset import SchemaDatasetFacetFields

    from millstream.spark.lakehouse.table import Table, TableName

_STORE: Final = re.compile(r"([a-z0-9+.-]+://[^/]+)/?(.*)", re.IGNORECASE)


def topics_of(options: SourceOptions) -> list[str]:
    """Return the topics that a load reads; brokers are asked for those of a pattern only."""
    subscription = options.subscription
    if isinstance(subscription, Subscribe):
        return sorted(subscription.topics)
    if isinstance(subscription, Assign):
        return sorted({each.topic for each in subscription.partitions})
    with open_topics(options) as topics:
        return sorted({each.topic for each in topics.topic_partitions(subscription)})


def topic_name(options: SourceOptions, bootstrap: str | None, topic: str) -> tuple[str, str]:
    """Return namespace and name of a topic: of its first broker, or of its log directory."""
    if options.log_dirs:
        return "file", f"{options.log_dirs[0].rstrip('/')}/{topic}"
    first = (bootstrap or "localhost:9092").split(",")[0].strip()
    return f"kafka://{first}", topic


def place_name(place: Location) -> tuple[str, str]:
    """Return namespace and name of a directory or of a prefix of a store."""
    found = _STORE.fullmatch(place.uri())
    if found is None:
        return "file", str(place)
    root = re.sub("^s3a://", "s3://", found[1])
    return root, found[2].rstrip("/") or "/"


def table_facets(table: Table) -> dict[str, Any]:
    """Return what is known of a table that is there: columns, catalogue, kind."""
    from openlineage.client.generated.datasource_dataset import DatasourceDatasetFacet
    from openlineage.client.generated.schema_dataset import SchemaDatasetFacet
    from openlineage.client.generated.storage_dataset import StorageDatasetFacet
    from openlineage.client.generated.symlinks_dataset import Identifier, SymlinksDatasetFacet

    name = table.name
    namespace, _ = place_name(table.data_directory)
    facets: dict[str, Any] = {
        "schema": SchemaDatasetFacet(fields=_fields(table.schema())),
        "dataSource": DatasourceDatasetFacet(name=namespace, uri=table.data_directory.uri()),
        "storage": StorageDatasetFacet(storageLayer=name.kind, fileFormat="parquet"),
    }
    if isinstance(name.path, NamedPlace):
        in_catalog = ".".join(name.path.identifier)
        link = Identifier(namespace=name.path.catalog, name=in_catalog, type="TABLE")
        facets["symlinks"] = SymlinksDatasetFacet(identifiers=[link])
    return facets


def _fields(columns: Iterable[pa.Field]) -> list[SchemaDatasetFacetFields]:
    from openlineage.client.generated.schema_dataset import SchemaDatasetFacetFields

    return [
        SchemaDatasetFacetFields(
            name=each.name,
            type=str(each.type) if not pa.types.is_struct(each.type) else "struct",
            fields=_fields(each.type) if pa.types.is_struct(each.type) else [],
        )
        for each in columns
    ]


@dataclass(slots=True)
class _Column:
    rows: int = 0
    nulls: int | None = 0
    least: float | None = None
    most: float | None = None


class ColumnStatistics:
    """Counts, nulls and ends of columns, by the footers of new files. Ends are those of numbers."""

    def __init__(self) -> None:
        self._columns: dict[str, _Column] = {}

    def add(self, directory: Location, paths: Iterable[str]) -> None:
        """Read the footers of files; a file that is gone again is left out."""
        for path in paths:
            try:
                with pq.ParquetFile((directory / path).open_input()) as file:
                    self._add(file.metadata, {each.name: each.type for each in file.schema_arrow})
            except FileNotFoundError:  # changes of an upsert, which are merged by now
                continue

    def _add(self, footer: pq.FileMetaData, types: Mapping[str, pa.DataType]) -> None:
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            for place in range(group.num_columns):
                chunk = group.column(place)
                if chunk.path_in_schema in types:
                    known = self._columns.setdefault(chunk.path_in_schema, _Column())
                    _count(known, chunk, is_number=_is_number(types[chunk.path_in_schema]))

    def facet(self) -> Any:
        """Return them as a facet of a dataset; None without any."""
        from openlineage.client.generated.data_quality_metrics_dataset import (
            ColumnMetrics,
            DataQualityMetricsDatasetFacet,
        )

        if not self._columns:
            return None
        metrics = {
            name: ColumnMetrics(
                nullCount=each.nulls,
                count=None if each.nulls is None else each.rows - each.nulls,
                min=each.least,
                max=each.most,
            )
            for name, each in self._columns.items()
        }
        return DataQualityMetricsDatasetFacet(columnMetrics=metrics)


def _count(known: _Column, chunk: pq.ColumnChunkMetaData, *, is_number: bool) -> None:
    known.rows += chunk.num_values
    found = chunk.statistics
    if found is None or not found.has_null_count or known.nulls is None:
        known.nulls = None
    else:
        known.nulls += found.null_count
    if found is not None and is_number and found.has_min_max:
        known.least = found.min if known.least is None else min(known.least, found.min)
        known.most = found.max if known.most is None else max(known.most, found.max)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def table_of(name: TableName, topic: str) -> TableName:
    """Return the name of a topic's table."""
    from millstream.spark.lakehouse.table import TOPIC_FIELD, TableName

    if not name.is_per_topic:
        return name
    return TableName(name.kind, name.path.filled(TOPIC_FIELD, topic))
