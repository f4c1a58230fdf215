"""A topic of a real broker, and tables loaded from it without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from tests.topics import append_batches

from millstream.client import Admin
from millstream.client.core.admin.topics import NewTopic
from millstream.model.topic import TopicPartition
from millstream.records.builder import BatchBuilder
from millstream.spark.lakehouse.audit import Audit, audit
from millstream.spark.lakehouse.batches import BatchReport
from millstream.spark.lakehouse.load import (
    Loader,
    Runner,
    local_runner,
    source_options_of,
)
from millstream.spark.lakehouse.settings import LoadSettings
from millstream.spark.lakehouse.table import Table, TableName, dead_letters_of, open_table


class TopicSite:
    """One topic, and how to load it."""

    def __init__(self, bootstrap: str, topic: str, directory: Path) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.directory = directory
        self.settings = LoadSettings(
            source={"kafka.bootstrap.servers": bootstrap, "subscribe": topic},
            table=TableName("parquet", directory / "table"),
            group_id="",
        )
        self.reports: list[BatchReport] = []

    def create(self, partitions: int) -> None:
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            # Some of the records are years old, and no retention is to take them away.
            kept = {"retention.ms": "-1"}
            admin.create_topics([NewTopic(self.topic, partitions, configs=kept)]).get_all()

    def write(self, partition: int, values: Iterable[bytes | None], *, batch: int = 50) -> None:
        waiting = list(values)
        batches: list[tuple[TopicPartition, bytes]] = []
        for first in range(0, len(waiting), batch):
            builder = BatchBuilder()
            for value in waiting[first : first + batch]:
                builder.append(1_700_000_000_000, None, value)
            batches.append((TopicPartition(self.topic, partition), builder.build()))
        append_batches(self.bootstrap, batches)

    def using(self, **changes: Any) -> TopicSite:
        """Return a site of the same topic with other settings."""
        other = TopicSite(self.bootstrap, self.topic, self.directory)
        other.settings = replace(self.settings, **changes)
        return other

    def kind(self, kind: str) -> TopicSite:
        return self.using(table=TableName(kind, self.directory / kind))

    def load(self, runner: Runner = local_runner) -> None:
        Loader(self.settings, runner, on_batch=self.reports.append).run()

    @property
    def table(self) -> Table:
        return open_table(self.settings.table)

    @property
    def letters(self) -> Table:
        return open_table(dead_letters_of(self.settings.table))

    def audit(self) -> Audit:
        options = source_options_of(self.settings.source)
        return audit(options, self.table, self.settings.load_id, self.settings.registry)

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        return read_rows(self.table, columns)


def read_rows(table: Table, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return rows of a table's files, sorted."""
    found: list[tuple[Any, ...]] = []
    for path in table.files():
        file = pq.ParquetFile((table.data_directory / path).open_input()).read(
            columns=list(columns)
        )
        values: Mapping[str, list[Any]] = file.to_pydict()
        found += zip(*(values[column] for column in columns), strict=True)
    return sorted(found)
