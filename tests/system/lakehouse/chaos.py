"""Kills, at random moments, of whoever takes part in a load; then the table is compared record by
record with its topic.

Every kind of victim dies equally often, in an order that the seed decides. A load that ends before
all have died has proved less than was asked, and fails.

``python -m tests.system.lakehouse.chaos --kind delta --records 2000000 --kills 30`` runs it by
hand and prints what happened; ``--to s3`` and ``--to rest`` have the table in an S3 server and in a
REST catalogue, ``--mode upsert`` has it keep the newest record of each key, ``--format avro`` and
``--format protobuf`` have values that are decoded. `test_chaos` runs small ones.
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
from tests.broker_process import BrokerProcess
from tests.system.lakehouse import chaos_values
from tests.system.lakehouse.chaos_places import Place, place
from tests.topics import append_batches

from millstream.client import Admin
from millstream.client.core.admin.topics import NewTopic
from millstream.model.topic import TopicPartition
from millstream.records.builder import BatchBuilder

TOPIC = "chaos"
PARTITIONS = 4
BATCH = 500
TIME_MS = 1_700_000_000_000
PADDING = b"x" * 60
KEYS = 5_000
"""Keys in each partition. The record at offset n is of key n modulo this."""
DELETED_EVERY = 7
"""With mode upsert every so many-th record deletes its key."""
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
    to: str = "disk"
    mode: str = "append"
    form: str = "raw"
    victims: tuple[str, ...] = ("driver", "worker", "broker")
    killed: dict[str, int] = field(default_factory=dict)
    starts: int = 0
    log_start: int = 0
    """Where the running driver's part of the log begins."""
    audit: dict[str, object] = field(default_factory=dict)

    def run(self) -> None:
        """Fill a topic, load it under fire, and check; AssertionError when anything is amiss."""
        with (
            BrokerProcess(self.directory / "broker") as broker,
            place(self.to, self.kind, self.directory) as here,
        ):
            fill(broker.bootstrap, self.records, deletes=self.mode == "upsert", form=self.form)
            self._load_under_fire(broker, here)
            self.audit = self._audit(broker, here)
            assert self.audit["clean"], self.audit
            found = here.read(chaos_values.columns(self.form))
            found = chaos_values.as_raw(found, self.form)
            check_records(found, self.records, newest=self.mode == "upsert")

    def _load_under_fire(self, broker: BrokerProcess, here: Place) -> None:
        rng = random.Random(self.seed)
        waiting = [self.victims[number % len(self.victims)] for number in range(self.kills)]
        rng.shuffle(waiting)
        while True:
            driver = self._start(broker, here)
            while waiting and driver.poll() is None:
                time.sleep(rng.uniform(0.1, self.longest_pause_s))
                if driver.poll() is None and self._kill(waiting[-1], driver, broker, rng):
                    victim = waiting.pop()
                    self.killed[victim] = self.killed.get(victim, 0) + 1
                    print(f"{sum(self.killed.values())}: {victim}", flush=True)
            code = driver.wait(1800)
            # A broker may be away for longer than a load waits: a supervisor starts it again.
            is_away = code == 1 and self._says("millstream: could not reach the broker")
            assert is_away or code in (0, -signal.SIGKILL), f"a load gave up with {code}"
            if code == 0:
                assert not waiting, f"the load ended before these died: {waiting}"
                return

    def _start(self, broker: BrokerProcess, here: Place) -> subprocess.Popen[bytes]:
        self.starts += 1
        path = self.directory / "load.log"
        self.log_start = path.stat().st_size if path.exists() else 0
        with path.open("ab") as log:
            return subprocess.Popen(
                [
                    *(sys.executable, "-m", "millstream.cli.main", "load", TOPIC),
                    *("--to", here.name, "-b", broker.bootstrap, "--group", "", *here.words),
                    *("--mode", self.mode, *chaos_values.words(self.form, self.directory)),
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
            if driver.poll() is not None:
                return False
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
            if self._says("batch "):
                return
            time.sleep(0.05)

    def _says(self, text: str) -> bool:
        """Tell whether the present driver has logged this."""
        with (self.directory / "load.log").open("rb") as log:
            log.seek(self.log_start)
            return text.encode() in log.read()

    def _audit(self, broker: BrokerProcess, here: Place) -> dict[str, object]:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "millstream.cli.main", "audit", TOPIC),
                *(here.name, "-b", broker.bootstrap, "--json", *here.words),
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


def fill(bootstrap: str, records: int, *, deletes: bool, form: str) -> None:
    """Write records whose value tells their partition and offset."""
    # Their timestamps are old: a run that takes minutes would see retention at work.
    topic = NewTopic(TOPIC, PARTITIONS, configs={"retention.ms": "-1"})
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([topic]).get_all()
    for first in range(0, records // PARTITIONS, BATCH):
        batches = []
        for partition in range(PARTITIONS):
            builder = BatchBuilder()
            for offset in range(first, min(first + BATCH, records // PARTITIONS)):
                value = _value(partition, offset, deletes)
                builder.append(
                    TIME_MS,
                    _key(partition, offset),
                    None if value is None else chaos_values.encoded(form, value),
                )
            batches.append((TopicPartition(TOPIC, partition), builder.build()))
        append_batches(bootstrap, batches)


def _key(partition: int, offset: int) -> bytes:
    return b"%d-%d" % (partition, offset % KEYS)


def _value(partition: int, offset: int, deletes: bool) -> bytes | None:
    if deletes and offset % DELETED_EVERY == 0:
        return None
    return b"%d:%d:" % (partition, offset) + PADDING


def check_records(found: pa.Table, records: int, *, newest: bool) -> None:
    """Compare every row with what was written at its offset; ``newest``: and no other row of its
    key.
    """
    each = records // PARTITIONS
    first = max(each - KEYS, 0) if newest else 0
    expected = [
        (partition, offset)
        for partition in range(PARTITIONS)
        for offset in range(first, each)
        if not newest or offset % DELETED_EVERY
    ]
    ordered = found.sort_by([("partition", "ascending"), ("offset", "ascending")])
    partitions, offsets = ordered["partition"].to_pylist(), ordered["offset"].to_pylist()
    assert len(partitions) == len(expected)
    assert list(zip(partitions, offsets, strict=True)) == expected
    texts = pc.binary_join_element_wise(
        ordered["partition"].cast(pa.string()), ordered["offset"].cast(pa.string()), "", ":"
    )
    values = pc.binary_join_element_wise(texts.cast(pa.binary()), PADDING, b"")
    assert values.equals(ordered["value"].cast(pa.binary()))


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=("delta", "iceberg", "parquet"), default="delta")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", choices=("spark", "local"), default="spark")
    parser.add_argument("--to", choices=("disk", "s3", "rest"), default="disk")
    parser.add_argument("--mode", choices=("append", "upsert"), default="append")
    parser.add_argument("--format", choices=chaos_values.FORMATS, default="raw")
    parser.add_argument("--batch-kb", type=int, default=512)
    parser.add_argument("--longest-pause", type=float, default=6.0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        chaos = Chaos(Path(directory), chosen.kind, chosen.records, chosen.kills, chosen.seed)
        chaos.engine, chaos.to, chaos.mode = chosen.engine, chosen.to, chosen.mode
        chaos.form = chosen.format
        chaos.batch_bytes, chaos.longest_pause_s = chosen.batch_kb << 10, chosen.longest_pause
        if chosen.engine == "local":
            chaos.victims = ("driver", "broker")  # it has no workers
        started = time.monotonic()
        try:
            chaos.run()
        except BaseException:
            print((Path(directory) / "load.log").read_text(errors="replace")[-4000:])
            raise
        print(
            f"{chosen.kind} in {chosen.to}, {chosen.format}, {chosen.mode}: "
            f"{chaos.records:,} records, "
            f"killed {chaos.killed}, {chaos.starts} drivers, "
            f"clean after {time.monotonic() - started:.0f} s"
        )


if __name__ == "__main__":
    main()
