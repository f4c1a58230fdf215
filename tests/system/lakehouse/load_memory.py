"""The memory of loads of topics of several lengths: it is that of a batch, not of the topic.

``python -m tests.system.lakehouse.load_memory --gigabytes 1 2 4`` runs it by hand, and prints the
peaks. `test_load_memory` compares two short topics.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.broker_process import BrokerProcess
from tests.topics import append_batches

from millstream.client import Admin
from millstream.client.core.admin.topics import NewTopic
from millstream.model.topic import TopicPartition
from millstream.records.builder import BatchBuilder
from millstream.spark.lakehouse.table import KINDS

PARTITIONS: Final = 4
BATCH_BYTES: Final = 900_000
VALUE_BYTES: Final = 500
TIME_MS: Final = 1_700_000_000_000
LOOK_S: Final = 0.05


def fill(bootstrap: str, topic: str, log_bytes: int) -> int:
    """Write about so many bytes; return the number of records."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        kept = {"retention.ms": "-1"}
        admin.create_topics([NewTopic(topic, PARTITIONS, configs=kept)]).get_all()
    in_batch = BATCH_BYTES // VALUE_BYTES
    # Bytes that no codec makes smaller, so that files are as large as the log.
    values = [
        b'{"n":%d,"text":"%s"}' % (n, os.urandom(VALUE_BYTES // 2).hex().encode())
        for n in range(in_batch)
    ]
    builder = BatchBuilder()
    for value in values:
        builder.append(TIME_MS, None, value)
    batch = bytes(builder.build())
    count = max(log_bytes // len(batch), 1)
    places = [TopicPartition(topic, number % PARTITIONS) for number in range(count)]
    append_batches(bootstrap, ((place, batch) for place in places))
    return count * in_batch


def measure(
    bootstrap: str, topic: str, directory: Path, *, kind: str, batch_size: str
) -> tuple[int, int]:
    """Load a topic in a process of its own; return its rows, and the most bytes that it has held at
    any time.
    """
    directory.mkdir(parents=True, exist_ok=True)
    words = ["load", topic, "--to", f"{kind}:{directory / 'table'}", "-b", bootstrap, "--json"]
    words += ["--format", "json", "--group", "", "--engine", "local", "--batch-size", batch_size]
    peak = 0
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "millstream.cli.main", *words],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            # Else each of a batch's threads may get an arena of its own, whose pages stay with it.
            env={**os.environ, "MALLOC_ARENA_MAX": "2"},
        )
        while process.poll() is None:
            peak = max(peak, _peak(process.pid))
            time.sleep(LOOK_S)
        assert process.stdout is not None
        with process.stdout:
            told = process.stdout.read()
    assert process.returncode == 0, (directory / "log").read_text()[-3000:]
    return json.loads(told)["rows"], peak


def _peak(pid: int) -> int:
    """Return the kernel's own record of a process, which forgets no moment; 0 once it has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[1.0, 4.0])
    parser.add_argument("--kind", choices=KINDS, default="delta")
    parser.add_argument("--batch-size", default="256MB")
    chosen = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        BrokerProcess(Path(directory) / "broker") as broker,
    ):
        for gigabytes in chosen.gigabytes:
            topic = f"memory-{gigabytes:g}"
            records = fill(broker.bootstrap, topic, int(gigabytes * 1e9))
            started = time.monotonic()
            rows, peak = measure(
                broker.bootstrap,
                topic,
                Path(directory) / topic,
                kind=chosen.kind,
                batch_size=chosen.batch_size,
            )
            assert rows == records, (rows, records)
            seconds = time.monotonic() - started
            print(
                f"{gigabytes:g} GB, {rows:,} rows, {seconds:.0f} s: {peak / 1e6:.0f} MB", flush=True
            )


if __name__ == "__main__":
    main()
