"""The memory of loads of topics of several lengths: it is that of a batch, not of the topic.

``python -m tests.system.lakehouse.load_memory --gigabytes 1 2 4`` runs it by hand, and prints the
peaks; ``--engine spark`` has a cluster of two workers land them, and prints the peak of each role
(`spark_memory`). `test_load_memory` compares two short topics.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.broker_process import BrokerProcess
from tests.spark_cluster import SparkCluster
from tests.system.lakehouse.spark_memory import DRIVER, measure_on_spark, peak_bytes
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


def load_words(
    bootstrap: str, topic: str, directory: Path, *, kind: str, batch_size: str | None
) -> list[str]:
    """Return the command that loads a topic into a table in a directory; ``batch_size`` None: the
    default.
    """
    words = ["load", topic, "--to", f"{kind}:{directory / 'table'}", "-b", bootstrap, "--json"]
    words += ["--format", "json", "--group", ""]
    return words if batch_size is None else [*words, "--batch-size", batch_size]


def measure(words: list[str], directory: Path) -> tuple[int, int]:
    """Load a topic in a process of its own; return its rows, and the most bytes that it has held at
    any time.
    """
    directory.mkdir(parents=True, exist_ok=True)
    peak = 0
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "millstream.cli.main", *words, "--engine", "local"],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        while process.poll() is None:
            peak = max(peak, peak_bytes(process.pid))
            time.sleep(LOOK_S)
        assert process.stdout is not None
        with process.stdout:
            told = process.stdout.read()
    assert process.returncode == 0, (directory / "log").read_text()[-3000:]
    return json.loads(told)["rows"], peak


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[1.0, 4.0])
    parser.add_argument("--kind", choices=KINDS, default="delta")
    parser.add_argument("--batch-size", help="the default: that of `millstream load`")
    parser.add_argument("--engine", choices=("local", "spark"), default="local")
    chosen = parser.parse_args()
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker = stack.enter_context(BrokerProcess(home / "broker"))
        cluster = None
        if chosen.engine == "spark":
            cluster = stack.enter_context(SparkCluster(home / "cluster"))
        for gigabytes in chosen.gigabytes:
            topic = f"memory-{gigabytes:g}"
            records = fill(broker.bootstrap, topic, int(gigabytes * 1e9))
            words = load_words(
                broker.bootstrap,
                topic,
                home / topic,
                kind=chosen.kind,
                batch_size=chosen.batch_size,
            )
            started = time.monotonic()
            if cluster is None:
                rows, peak = measure(words, home / topic)
                peaks = {DRIVER: peak}
            else:
                rows, peaks = measure_on_spark(cluster, words)
            seconds = time.monotonic() - started
            assert rows == records, (rows, records)
            told = ", ".join(f"{role} {peak / 1e6:.0f} MB" for role, peak in peaks.items())
            print(f"{gigabytes:g} GB, {rows:,} rows, {seconds:.0f} s: {told}", flush=True)
            with Admin(bootstrap_servers=broker.bootstrap) as admin:
                admin.delete_topics([topic]).get_all()
            shutil.rmtree(home / topic)


if __name__ == "__main__":
    main()
