"""Kills, at random moments, of whoever takes part in a load; then the table is compared record by
record with its topic.

Every kind of victim dies equally often, in an order that the seed decides. A load that ends before
all have died has proved less than was asked, and fails.

``python -m tests.system.lakehouse.chaos --kind delta --records 2000000 --kills 30`` runs it by
hand and prints what happened; `test_chaos` runs a small one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tests.broker_process import BrokerProcess

from millstream.client import Admin, Producer
from millstream.client.core.admin.topics import NewTopic
from millstream.spark.lakehouse.table import Table, TableName, open_table

TOPIC = "chaos"
PARTITIONS = 4
BATCH = 500
PADDING = b"x" * 60
WORKER_PATIENCE_S = 60.0
BATCH_PATIENCE_S = 90.0


@dataclass(slots=True)
class Chaos:
    """One run."""

    directory: Path
    kind: str
    records: int
    kills: int
    seed: int
    engine: str = "spark"
    batch_bytes: int = 512 << 10
    driver_size: str = "0"
    """0: every batch is a Spark job, so that there are workers to kill."""
    longest_pause_s: float = 6.0
    victims: tuple[str, ...] = ("driver", "worker", "broker")
    killed: dict[str, int] = field(default_factory=dict)
    starts: int = 0
    log_start: int = 0
    """Where the running driver's part of the log begins."""
    audit: dict[str, object] = field(default_factory=dict)

    def run(self) -> None:
        """Fill a topic, load it under fire, and check; AssertionError when anything is amiss."""
        with BrokerProcess(self.directory / "broker") as broker:
            fill(broker.bootstrap, self.records)
            self._load_under_fire(broker)
            self.audit = self._audit(broker)
            assert self.audit["clean"], self.audit
            check_records(self.table, self.records)

    @property
    def table(self) -> Table:
        return open_table(TableName(self.kind, self.directory / "table"))

    def _load_under_fire(self, broker: BrokerProcess) -> None:
        rng = random.Random(self.seed)
        waiting = [self.victims[number % len(self.victims)] for number in range(self.kills)]
        rng.shuffle(waiting)
        while True:
            driver = self._start(broker)
            while waiting and driver.poll() is None:
                time.sleep(rng.uniform(0.1, self.longest_pause_s))
                if driver.poll() is None and self._kill(waiting[-1], driver, broker, rng):
                    victim = waiting.pop()
                    self.killed[victim] = self.killed.get(victim, 0) + 1
                    print(f"{sum(self.killed.values())}: {victim}", flush=True)
            code = driver.wait(1800)
            assert code in (0, -signal.SIGKILL), f"a load gave up with {code}"
            if code == 0:
                assert not waiting, f"the load ended before these died: {waiting}"
                return

    def _start(self, broker: BrokerProcess) -> subprocess.Popen[bytes]:
        self.starts += 1
        path = self.directory / "load.log"
        self.log_start = path.stat().st_size if path.exists() else 0
        with path.open("ab") as log:
            return subprocess.Popen(
                [
                    *(sys.executable, "-m", "millstream.cli.main", "load", TOPIC),
                    *("--to", str(self.table.name), "-b", broker.bootstrap, "--group", ""),
                    *("--batch-size", str(self.batch_bytes), "--engine", self.engine),
                    *("--driver-size", self.driver_size),
                    *("--master", "local[2]"),
                ],
                stdout=log,
                stderr=log,
            )

    def _kill(
        self,
        victim: str,
        driver: subprocess.Popen[bytes],
        broker: BrokerProcess,
        rng: random.Random,
    ) -> bool:
        if victim == "broker":
            broker.kill()
            broker.start()
            return True
        if victim == "driver":
            self._until_batch(driver)
            os.kill(driver.pid, signal.SIGKILL)
            driver.wait()
            return True
        deadline = time.monotonic() + WORKER_PATIENCE_S  # a JVM takes its time to start them
        while time.monotonic() < deadline and driver.poll() is None:
            try:
                workers = _workers(driver.pid)
                if workers:
                    rng.choice(workers).kill()
                    return True
            except psutil.Error:  # it has ended by itself
                pass
            time.sleep(0.05)
        return False

    def _until_batch(self, driver: subprocess.Popen[bytes]) -> None:
        """Wait until a driver has committed: one that dies while its JVM starts proves nothing."""
        deadline = time.monotonic() + BATCH_PATIENCE_S
        while time.monotonic() < deadline and driver.poll() is None:
            with (self.directory / "load.log").open("rb") as log:
                log.seek(self.log_start)
                if b"batch " in log.read():
                    return
            time.sleep(0.05)

    def _audit(self, broker: BrokerProcess) -> dict[str, object]:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "millstream.cli.main", "audit", TOPIC),
                *(str(self.table.name), "-b", broker.bootstrap, "--json"),
            ],
            capture_output=True,
            check=False,
        )
        found: dict[str, object] = json.loads(done.stdout)
        return found


def _workers(driver: int) -> list[psutil.Process]:
    """Return the Python workers of a driver's JVM; without the daemons that fork them."""
    python = set()
    for each in psutil.Process(driver).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has ended, or will be waited for
            if "pyspark.daemon" in each.cmdline():
                python.add(each)
    found = []
    for each in python:
        with contextlib.suppress(psutil.Error):
            if each.parent() in python:
                found.append(each)
    return sorted(found, key=lambda each: each.pid)


def fill(bootstrap: str, records: int) -> None:
    """Write records whose value tells their partition and offset."""
    # Their timestamps are old: a run that takes minutes would see retention at work.
    topic = NewTopic(TOPIC, PARTITIONS, configs={"retention.ms": "-1"})
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([topic]).get_all()
    with Producer(bootstrap_servers=bootstrap) as producer:
        for first in range(0, records // PARTITIONS, BATCH):
            for partition in range(PARTITIONS):
                last = min(first + BATCH, records // PARTITIONS)
                values = [b"%d:%d:" % (partition, each) + PADDING for each in range(first, last)]
                producer.send_values(
                    values, TOPIC, partition=partition, timestamp_ms=1_700_000_000_000
                )


def check_records(table: Table, records: int) -> None:
    """Compare every row with what was written at its offset."""
    rows = 0
    seen: dict[int, list[pa.Array]] = {}
    for path in table.files():
        found = pq.ParquetFile(table.data_directory / path).read(["partition", "offset", "value"])
        rows += found.num_rows
        expected = pc.binary_join_element_wise(
            found["partition"].cast(pa.string()), found["offset"].cast(pa.string()), "", ":"
        )
        texts = found["value"].cast(pa.string())
        assert pc.all(pc.equal(pc.utf8_slice_codeunits(texts, 0, -len(PADDING)), expected)).as_py()
        for partition in pc.unique(found["partition"]).to_pylist():
            mask = pc.equal(found["partition"], partition)
            seen.setdefault(partition, []).extend(found["offset"].filter(mask).chunks)
    assert rows == records // PARTITIONS * PARTITIONS
    for offsets in seen.values():
        everything = pa.chunked_array(offsets)
        assert pc.count_distinct(everything).as_py() == len(everything) == records // PARTITIONS


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=("delta", "iceberg", "parquet"), default="delta")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", choices=("spark", "local"), default="spark")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        chaos = Chaos(Path(directory), chosen.kind, chosen.records, chosen.kills, chosen.seed)
        chaos.engine = chosen.engine
        if chosen.engine == "local":
            chaos.victims = ("driver", "broker")  # it has no workers
        started = time.monotonic()
        try:
            chaos.run()
        except BaseException:
            print((Path(directory) / "load.log").read_text(errors="replace")[-4000:])
            raise
        print(
            f"{chosen.kind}: {chaos.records:,} records, killed {chaos.killed}, "
            f"{chaos.starts} drivers, clean after {time.monotonic() - started:.0f} s"
        )


if __name__ == "__main__":
    main()
