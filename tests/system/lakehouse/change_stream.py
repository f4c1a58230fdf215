"""A database's change stream into a table, which then equals the database.

A database of one table is played: inserts, updates, deletes (each with its tombstone), and in the
middle a schema change, which adds a column and widens another one. Its changes are written as
Debezium writes them, in JSON or in Avro (`debezium_records`), a key always to the same partition,
and loaded while they are written. At the end the table is read by each program and compared with
the database row by row; the audit compares it with the topic.

``python -m tests.system.lakehouse.change_stream --records 2000000 --kind delta`` runs it by hand
and prints what it took; ``--encoding avro`` has a registry of the schemas, ``--engine spark`` has
Spark land the changes, ``--kills 6`` kills the load meanwhile. `test_change_stream` runs small
ones.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.broker_process import BrokerProcess
from tests.lake_readers import READERS
from tests.schema_registry import RegistryServer
from tests.system.lakehouse.debezium_records import (
    TIME_MS,
    AvroChanges,
    ChangeWriter,
    JsonChanges,
)
from tests.topics import append_batches

from millstream.cli.main import main as main_of_command
from millstream.client import Admin
from millstream.client.core.admin.topics import NewTopic
from millstream.model.topic import TopicPartition
from millstream.records.builder import BatchBuilder
from millstream.spark.lakehouse.table import Table, TableName, open_table

TOPIC = "dbserver1.public.users"
PARTITIONS = 4
BATCH = 1_000


class Database:
    """One table ``users``, and the records of its changes."""

    def __init__(self, seed: int, writer: ChangeWriter) -> None:
        self.rows: dict[int, dict[str, Any]] = {}
        self._writer = writer
        self._is_changed = False
        self.counts = {"c": 0, "u": 0, "d": 0, "tombstone": 0}
        self._rng = random.Random(seed)
        self._keys: list[int] = []
        self._next = 1

    def change_schema(self) -> None:
        """From here on there is a column city, and balance has fractions."""
        self._is_changed = True
        self._writer.change_schema()

    def changes(self) -> Iterator[tuple[int, bytes, bytes | None]]:
        """Yield the records of one change: the row's number, its key and the value."""
        chance = self._rng.random()
        if chance < 0.45 or len(self._keys) < 10:
            number, self._next = self._next, self._next + 1
            self._keys.append(number)
            yield self._record("c", number, None, self._row(number))
        elif chance < 0.9:
            number = self._rng.choice(self._keys)
            yield self._record("u", number, self.rows[number], self._row(number))
        else:
            index = self._rng.randrange(len(self._keys))
            number, self._keys[index] = self._keys[index], self._keys[-1]
            self._keys.pop()
            record = self._record("d", number, self.rows[number], None)
            yield record
            self.counts["tombstone"] += 1
            yield number, record[1], None

    def _row(self, number: int) -> dict[str, Any]:
        rng = self._rng
        row: dict[str, Any] = {
            "id": number,
            "name": f"user {number} of {rng.randrange(1_000_000)}",
            "balance": rng.randrange(-1_000, 100_000),
            "is_active": rng.random() < 0.5,
        }
        if self._is_changed:
            row["balance"] += rng.randrange(4) / 4
            row["city"] = rng.choice(["Köln", "Łódź", "Paris", None])
        return row

    def _record(
        self, op: str, number: int, before: dict[str, Any] | None, after: dict[str, Any] | None
    ) -> tuple[int, bytes, bytes]:
        self.counts[op] += 1
        if after is None:
            del self.rows[number]
        else:
            self.rows[number] = after
        value = self._writer.value(op, number, before, after)
        return number, self._writer.key(number), value

    def as_table(self) -> pa.Table:
        """Return the rows by id."""
        names = ("id", "name", "balance", "is_active", "city")
        rows = [self.rows[number] for number in sorted(self.rows)]
        kinds = (pa.int64(), pa.string(), pa.float64(), pa.bool_(), pa.string())
        columns = [
            pa.array([row.get(name) for row in rows], kind)
            for name, kind in zip(names, kinds, strict=True)
        ]
        return pa.Table.from_arrays(columns, names=list(names))


@dataclass(slots=True)
class ChangeStream:
    """One run."""

    directory: Path
    kind: str
    records: int
    kills: int = 0
    seed: int = 1
    batch_size: str = "256MB"
    encoding: str = "json"
    engine: str = "local"
    parts: int = 4
    """How often the load runs, each time with a part of the changes more."""
    audit: dict[str, Any] = field(default_factory=dict)
    load_seconds: float = 0.0
    audit_seconds: float = 0.0
    killed: int = 0
    database: Database = field(init=False)
    _registry: list[str] = field(default_factory=list)
    """The option that names the registry, if there is one."""

    def run(self) -> None:
        """Play, load and compare; AssertionError when anything is amiss."""
        with contextlib.ExitStack() as stack:
            broker = stack.enter_context(BrokerProcess(self.directory / "broker"))
            writer: ChangeWriter = JsonChanges()
            if self.encoding == "avro":
                registry = stack.enter_context(RegistryServer())
                writer = AvroChanges(registry, TOPIC)
                self._registry = ["--schema-registry", registry.url]
            self.database = Database(self.seed, writer)
            topic = NewTopic(TOPIC, PARTITIONS, configs={"retention.ms": "-1"})
            with Admin(bootstrap_servers=broker.bootstrap) as admin:
                admin.create_topics([topic]).get_all()
            for part in range(self.parts):
                if part == self.parts // 2:
                    self.database.change_schema()
                write(broker.bootstrap, TOPIC, self.database, self.records // self.parts)
                started = time.monotonic()
                self._load(broker)
                self.load_seconds += time.monotonic() - started
            assert self.killed == self.kills, "the load ended before it was killed so often"
            started = time.monotonic()
            self.audit = self._audit(broker)
            self.audit_seconds = time.monotonic() - started
            assert self.audit["clean"], self.audit
        self.check_rows()

    def check_rows(self) -> None:
        """Compare what each program reads with the database."""
        expected = self.database.as_table()
        for program, read in READERS.items():
            found = read(self.table, expected.column_names).sort_by("id")
            assert found.num_rows == expected.num_rows, (program, found.num_rows)
            assert found.cast(expected.schema).equals(expected), program

    @property
    def table(self) -> Table:
        return open_table(TableName(self.kind, self.directory / "users"))

    def _load(self, broker: BrokerProcess) -> None:
        words = ["load", TOPIC, "--to", str(self.table.name), "-b", broker.bootstrap]
        words += ["--mode", "upsert", "--key", "id", "--format", "debezium", "--group", ""]
        words += ["--engine", self.engine, "--batch-size", self.batch_size, *self._registry]
        if self.engine == "spark":
            words += ["--master", "local[2]", "--driver-size", "0"]
        if self.engine == "local" and not self.kills:
            assert main_of_command(words) == 0
            return
        rng = random.Random(self.seed)
        while True:
            with (self.directory / "load.log").open("ab") as log:
                load = subprocess.Popen(
                    [sys.executable, "-m", "millstream.cli.main", *words], stdout=log, stderr=log
                )
            if self.killed < self.kills:
                try:
                    load.wait(rng.uniform(2.0, 6.0))
                except subprocess.TimeoutExpired:
                    if self.killed % 3 == 2:
                        broker.kill()
                        broker.start()
                    else:
                        load.kill()
                    self.killed += 1
            code = load.wait(1800)
            assert code in (0, -signal.SIGKILL), f"a load gave up with {code}"
            if code == 0:
                return

    def _audit(self, broker: BrokerProcess) -> dict[str, Any]:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            words = ["audit", TOPIC, str(self.table.name), "-b", broker.bootstrap, "--json"]
            main_of_command([*words, *self._registry])
        found: dict[str, Any] = json.loads(printed.getvalue())
        return found


def write(bootstrap: str, topic: str, database: Database, records: int) -> None:
    """Write the records of changes: at least so many, and few more."""
    builders = {number: BatchBuilder() for number in range(PARTITIONS)}
    waiting = dict.fromkeys(builders, 0)
    written = 0
    while written < records:
        for number, key, value in database.changes():
            partition = number % PARTITIONS
            builders[partition].append(TIME_MS, key, value)
            waiting[partition] += 1
            written += 1
            if waiting[partition] == BATCH:
                batch = TopicPartition(topic, partition), builders[partition].build()
                append_batches(bootstrap, [batch])
                builders[partition], waiting[partition] = BatchBuilder(), 0
    rest = [(TopicPartition(topic, p), builders[p].build()) for p in builders if waiting[p]]
    append_batches(bootstrap, rest)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=("delta", "iceberg"), default="delta")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--encoding", choices=("json", "avro"), default="json")
    parser.add_argument("--engine", choices=("local", "spark"), default="local")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        stream = ChangeStream(
            Path(directory), chosen.kind, chosen.records, chosen.kills, chosen.seed
        )
        stream.encoding, stream.engine = chosen.encoding, chosen.engine
        started = time.monotonic()
        try:
            stream.run()
        except BaseException:
            log = Path(directory) / "load.log"
            print(log.read_text(errors="replace")[-4000:] if log.exists() else "no load")
            raise
        records = sum(stream.database.counts.values())
        print(
            f"{chosen.kind}, {chosen.encoding}: {records:,} records {stream.database.counts}, "
            f"killed {stream.killed} times, loaded in {stream.load_seconds:.1f} s "
            f"({records / stream.load_seconds:,.0f}/s), audited in {stream.audit_seconds:.1f} s; "
            f"{len(stream.database.rows):,} rows equal to the database in "
            f"{', '.join(READERS)}; {time.monotonic() - started:.0f} s in all"
        )


if __name__ == "__main__":
    main()
