"""What a commit of a load costs when its table has had thousands of them.

``python -m tests.system.lakehouse.many_commits --kind iceberg --commits 200 1000 3000`` loads one
record at a time with the local engine, and prints what the last commits before each of these cost:
the median of their wall and CPU time, the memory of the process, and the files of the table.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.broker_process import BrokerProcess
from tests.topics import append_batches

from millstream.client import Admin
from millstream.client.core.admin.topics import NewTopic
from millstream.model.topic import TopicPartition
from millstream.records.builder import BatchBuilder
from millstream.spark.lakehouse.batches import BatchReport
from millstream.spark.lakehouse.jobs import run_load
from millstream.spark.lakehouse.settings import LoadSettings
from millstream.spark.lakehouse.table import KINDS, TableName
from millstream.spark.locations.location import as_location

TOPIC: Final = "many-commits"
VALUE_BYTES: Final = 1_000
TIME_MS: Final = 1_700_000_000_000
LAST: Final = 50
"""Commits whose median is told."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What commits cost."""

    commits: int
    wall_ms: float
    cpu_ms: float
    rss_bytes: int
    metadata_bytes: int
    """Bytes of the table that are not its data."""


class Meter:
    """Measures a load while it commits; ``tell`` is called with each result."""

    def __init__(self, at: Sequence[int], directory: Path, tell: Callable[[Cost], None]) -> None:
        self._at = sorted(at)
        self._tell = tell
        self._directory = directory
        self._times = [(time.monotonic(), time.process_time())]

    def on_batch(self, report: BatchReport) -> None:
        """Take the times of a commit."""
        self._times.append((time.monotonic(), time.process_time()))
        if self._at and report.batch > self._at[0]:  # the first one has the starting offsets alone
            self._tell(self._cost(self._at.pop(0)))

    def has_all(self) -> bool:
        """Tell the load when to stop."""
        return not self._at

    def _cost(self, commits: int) -> Cost:
        last = self._times[-LAST - 1 :]
        pairs = list(itertools.pairwise(last))
        return Cost(
            commits=commits,
            wall_ms=1e3 * statistics.median(after[0] - before[0] for before, after in pairs),
            cpu_ms=1e3 * statistics.median(after[1] - before[1] for before, after in pairs),
            rss_bytes=_rss_bytes(),
            metadata_bytes=sum(
                path.stat().st_size
                for path in self._directory.rglob("*")
                if path.is_file() and path.suffix != ".parquet"
            ),
        )


def _rss_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def fill(bootstrap: str, records: int) -> None:
    """Write records of one batch each."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, 1, configs={"retention.ms": "-1"})]).get_all()
    builder = BatchBuilder()
    builder.append(TIME_MS, None, b"x" * VALUE_BYTES)
    batch = bytes(builder.build())
    append_batches(bootstrap, ((TopicPartition(TOPIC, 0), batch) for _ in range(records)))


def measure(
    bootstrap: str, kind: str, directory: Path, at: Sequence[int], tell: Callable[[Cost], None]
) -> None:
    """Load one record for each commit; tell the costs at these numbers of commits."""
    path = as_location(directory / "table")
    meter = Meter(at, directory / "table", tell)
    settings = LoadSettings(
        source={"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC},
        table=TableName(kind, path),
        batch_bytes=VALUE_BYTES,
        group_id="",
    )
    run_load(settings, on_batch=meter.on_batch, should_stop=meter.has_all)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, nargs="+", default=[200, 1_000, 3_000])
    parser.add_argument("--kind", choices=KINDS, default="iceberg")
    chosen = parser.parse_args()

    def tell(cost: Cost) -> None:
        print(
            f"{chosen.kind}, {cost.commits:,} commits: {cost.wall_ms:.0f} ms each "
            f"({cost.cpu_ms:.0f} ms of CPU), {cost.rss_bytes / 1e6:.0f} MB of memory, "
            f"{cost.metadata_bytes / 1e6:.1f} MB beside the data",
            flush=True,
        )

    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker = stack.enter_context(BrokerProcess(home / "broker"))
        fill(broker.bootstrap, max(chosen.commits) + LAST)
        measure(broker.bootstrap, chosen.kind, home, chosen.commits, tell)


if __name__ == "__main__":
    main()
