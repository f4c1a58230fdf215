"""A topic's past loads while it is written to at a steady rate, and the load follows its tail: then
the table holds every record once, and where the past ended nobody can tell.

``python -m tests.system.lakehouse.backfill --kind delta --gigabytes 5 --rate 5000`` runs it by
hand. It prints how long an acknowledged produce took without the load, and while it was at work.
`test_seam` looks at the same seam on a small scale.
"""

from __future__ import annotations

import argparse
import itertools
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.broker_process import BrokerProcess
from tests.interop.clients.access_log import access_log_lines

from millstream.client import Admin, Producer
from millstream.client.core.admin.topics import NewTopic
from millstream.spark.lakehouse.table import KINDS

TOPIC = "access"
PARTITIONS = 6
CHUNK = 2_000
TICK_S = 0.005
LOOK_S = 2.0
PATIENCE_S = 3_600.0


@dataclass(slots=True)
class Writer:
    """Writes lines at a steady rate and measures until each is acknowledged by the broker."""

    bootstrap: str
    rate: int
    written: int = 0
    seconds: list[float] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def take(self) -> list[float]:
        """Return what was measured since the last time."""
        taken, self.seconds = self.seconds, []
        return taken

    def _run(self) -> None:
        lines = itertools.cycle(access_log_lines())
        with Producer(bootstrap_servers=self.bootstrap, linger_ms=0) as producer:
            started = time.perf_counter()
            while not self._stop.is_set():
                due = int((time.perf_counter() - started) * self.rate)
                for line in itertools.islice(lines, max(due - self.written, 0)):
                    producer.send(TOPIC, line, on_delivery=self._measure())
                self.written = max(due, self.written)
                self._stop.wait(TICK_S)

    def _measure(self) -> Callable[..., None]:
        sent = time.perf_counter()

        def acknowledged(*outcome: object) -> None:
            self.seconds.append(time.perf_counter() - sent)

        return acknowledged


@dataclass(slots=True)
class Backfill:
    """One run."""

    directory: Path
    kind: str
    log_bytes: int
    rate: int
    quiet_s: float = 20.0
    tail_s: float = 20.0
    """How long the load follows the tail once it has caught up."""
    said: dict[str, object] = field(default_factory=dict)

    def run(self) -> None:
        """Fill, load under writes, audit; AssertionError when anything is amiss."""
        with BrokerProcess(self.directory / "broker") as broker:
            past = fill(broker.bootstrap, self.log_bytes)
            self.said["past records"] = past
            writer = Writer(broker.bootstrap, self.rate)
            writer.start()
            try:
                time.sleep(self.quiet_s)
                self._say("produce without a load", writer.take())
                load = self._start(broker.bootstrap)
                self._until_caught_up(broker.bootstrap, load, writer)
                time.sleep(self.tail_s)
                self._say("produce beside the tail", writer.take())
            finally:
                writer.stop()
            self._until_all(broker.bootstrap, load)
            load.send_signal(signal.SIGINT)
            assert load.wait(120) == 0, self._log()
            found = self._audit(broker.bootstrap)
            self.said["records while it loaded"] = writer.written
            self.said["audit"] = {"clean": found["clean"], "rows": found["rows"]}
            assert found["clean"], found["problems"]
            assert found["rows"] == past + writer.written, (found["rows"], past + writer.written)

    def _until_caught_up(
        self, bootstrap: str, load: subprocess.Popen[bytes], writer: Writer
    ) -> None:
        started = time.monotonic()
        for lag in self._lags(bootstrap, load):
            if lag < self.rate * 15:
                break
        seconds = time.monotonic() - started
        self.said["seconds until the tail"] = round(seconds, 1)
        self.said["MB/s of the past, with the start of Spark"] = round(
            self.log_bytes / seconds / 1e6, 1
        )
        self._say("produce beside the past's load", writer.take())

    def _until_all(self, bootstrap: str, load: subprocess.Popen[bytes]) -> None:
        for lag in self._lags(bootstrap, load):
            if lag == 0:
                return

    def _lags(self, bootstrap: str, load: subprocess.Popen[bytes]) -> Iterator[int]:
        """Look again and again how many offsets the load's group is behind."""
        deadline = time.monotonic() + PATIENCE_S
        with Admin(bootstrap_servers=bootstrap) as admin:
            while time.monotonic() < deadline:
                assert load.poll() is None, self._log()
                committed = admin.list_group_offsets(["backfill"])["backfill"].get()
                if len(committed) == PARTITIONS:
                    ends = admin.list_offsets(dict.fromkeys(committed, -1))
                    yield sum(
                        ends[place].get().offset - each.offset for place, each in committed.items()
                    )
                time.sleep(LOOK_S)
        raise AssertionError(f"the load did not get there\n{self._log()}")

    def _start(self, bootstrap: str) -> subprocess.Popen[bytes]:
        with (self.directory / "load.log").open("ab") as log:
            return subprocess.Popen(
                [
                    *(sys.executable, "-m", "millstream.cli.main", "load", TOPIC),
                    *("--to", f"{self.kind}:{self.directory / 'table'}", "-b", bootstrap),
                    *("--follow", "--freshness", "1s", "--group", "backfill"),
                    *("--batch-size", "512MB", "--master", "local[2]"),
                ],
                stdout=log,
                stderr=log,
            )

    def _audit(self, bootstrap: str) -> dict[str, object]:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "millstream.cli.main", "audit", TOPIC),
                *(f"{self.kind}:{self.directory / 'table'}", "-b", bootstrap, "--json"),
            ],
            capture_output=True,
            check=False,
        )
        found: dict[str, object] = json.loads(done.stdout)
        return found

    def _log(self) -> str:
        return (self.directory / "load.log").read_text(errors="replace")[-3000:]

    def _say(self, name: str, seconds: list[float]) -> None:
        ordered = sorted(seconds)
        if ordered:
            p50, p99 = (1000 * ordered[int(len(ordered) * share)] for share in (0.5, 0.99))
            self.said[name] = f"p50 {p50:.1f} ms, p99 {p99:.1f} ms of {len(ordered):,} records"
            print(f"{name}: {self.said[name]}", flush=True)


def fill(bootstrap: str, log_bytes: int) -> int:
    """Write the access log over and over; return the number of records."""
    lines = access_log_lines()
    chunks = [lines[first : first + CHUNK] for first in range(0, len(lines), CHUNK)]
    topic = NewTopic(TOPIC, PARTITIONS, configs={"retention.ms": "-1"})
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([topic]).get_all()
    records = size = 0
    with Producer(bootstrap_servers=bootstrap, linger_ms=20, batch_size=256_000) as producer:
        for number, chunk in enumerate(itertools.cycle(chunks)):
            if size >= log_bytes:
                return records
            producer.send_values(chunk, TOPIC, partition=number % PARTITIONS)
            records += len(chunk)
            size += sum(map(len, chunk))
    raise AssertionError


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=KINDS, default="delta")
    parser.add_argument("--gigabytes", type=float, default=5.0)
    parser.add_argument("--rate", type=int, default=5_000, help="records a second")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        run = Backfill(Path(directory), chosen.kind, int(chosen.gigabytes * 1e9), chosen.rate)
        try:
            run.run()
        finally:
            print(json.dumps(run.said, indent=1))


if __name__ == "__main__":
    main()
