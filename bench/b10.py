"""B10: topics into tables: how fast the past lands, how fresh the tail is, and what it costs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.decoded import CONDITIONS as DECODED_CONDITIONS
from bench.decoded import decoded_rows
from bench.figures import Figure
from bench.lake import FILES, OURS, STOCK, Lake, LakeRow, Measured, create, lake_section, run_rows
from bench.options import MB
from bench.pairs import MILLSTREAM
from bench.session import Session
from bench.tables import Section, figures_table

KINDS = ("parquet", "delta", "iceberg")
RATE = 5_000
TAIL_S = 20.0
FRESHNESS_P50_S = 1.0
CONDITIONS = (
    "raw landing, local[2]: the access log over and over in a topic of 6 partitions "
    "(--partitions), 64-KB batches, no compression, one broker (Millstream, log.flush.policy=os) "
    "on the same machine; MB of values, until the commit; the session is warm",
    "stock connector: spark.read.format('kafka') … write.parquet, PySpark 4.2 on the same cores",
    f"freshness: {RATE} records a second into one partition, `millstream load --follow "
    "--freshness 1s` in a process beside; from a record's timestamp to the commit that holds it",
    "produce: batches of 50, acks=all, one at a time, alone and while the topic lands on Spark",
    *DECODED_CONDITIONS,
)


def run(session: Session) -> list[Section]:
    """Run the parts that `--only` leaves."""
    broker = session.stage.millstream()
    if broker is None:
        return [lake_section("B10 · topics into tables", [])]
    only = session.options.only
    with Lake(session, broker) as lake:
        rows = [row for row in _landing_rows(lake) if only in row.name]
        run_rows(session, rows)
        decoded = decoded_rows(lake, only)
        run_rows(session, decoded)
        figures: list[Figure] = []
        if only in "freshness":
            figures += _freshness(lake)
            session.say("freshness: done")
        if only in "produce":
            figures += _produce(lake)
            session.say("produce beside a load: done")
    return [
        lake_section("B10 · raw landing, local[2]", rows),
        lake_section("B10 · files of a landing", _sizes(rows)),
        lake_section("B10 · decoded landing, local[2]", decoded),
        figures_table("B10 · beside a writer", figures),
    ]


def _landing_rows(lake: Lake) -> list[LakeRow]:
    topic, rows_filled, size = lake.filled()

    def lands(kind: str, *, files: bool = False) -> Callable[[], Mapping[str, Any]]:
        target = str(lake.directory / f"landed-{kind}")
        source = lake.source(topic, files=files)
        return partial(lake.ours().ask, "land", options=source, kind=kind, target=target)

    def stock() -> Mapping[str, Any]:
        target = str(lake.directory / "landed-stock")
        source = lake.source(topic)
        return lake.stock().ask("parquet", format="kafka", options=source, target=target)

    rows = []
    for kind in KINDS:
        subjects = [Measured(OURS, lands(kind)), Measured(FILES, lands(kind, files=True))]
        targets: tuple[tuple[str, str, float], ...] = (("≥ 200 MB/s", "", 200.0),)
        if kind == "parquet":
            subjects.append(Measured(STOCK, stock))
            targets = (*targets, ("≥ 2× stock", STOCK, 2.0))
        rows.append(LakeRow(f"landing, {kind}", "MB/s", size / MB, subjects, targets, rows_filled))
    return rows


def _sizes(rows: list[LakeRow]) -> list[LakeRow]:
    """Return what the files of each landing come to."""
    return [
        LakeRow(f"{row.name}: {words}", unit, amount, row.subjects, told=told)
        for row in rows
        for words, unit, amount, told in (
            ("files", "", 1, "files"),
            ("size of all", "MB", MB, "bytes"),
            ("size of the largest", "MB", MB, "largest"),
        )
    ]


def _freshness(lake: Lake) -> list[Figure]:
    """Follow a steady writer; a commit's time is that of its file in Delta's log."""
    topic = "bench-tail"
    create(lake.bootstrap, topic, 1)
    table = lake.directory / "tail"
    seconds = TAIL_S / (4 if lake.session.options.quick else 1)
    loading = _load(lake, topic, f"delta:{table}", "--follow", "--freshness", "1s")
    try:
        time.sleep(3)
        _tail(lake, topic, seconds)
        time.sleep(2)
    finally:
        _stop(loading)
    ages = sorted(_ages(table))
    # The first second is the load's start and not its pace.
    p50, p99 = ages[len(ages) // 2], ages[len(ages) * 99 // 100]
    return [
        Figure("freshness, p50", "s", 2, FRESHNESS_P50_S, {MILLSTREAM: [p50]}),
        Figure("freshness, p99", "s", 2, None, {MILLSTREAM: [p99]}),
    ]


def _ages(table: Path) -> list[float]:
    """Return for each row how long after its timestamp it was committed, in seconds."""
    ages: list[float] = []
    for commit in sorted((table / "_delta_log").glob("*.json")):
        committed_s = commit.stat().st_mtime
        for line in commit.read_text().splitlines():
            added = json.loads(line).get("add")
            if added is not None:
                column = pq.read_table(table / added["path"], columns=["timestamp"])["timestamp"]
                ages += [committed_s - us / 1e6 for us in column.cast(pa.int64()).to_pylist()]
    return ages


def _produce(lake: Lake) -> list[Figure]:
    """Measure a writer alone, and beside a load that starts over when it is done."""
    filled, _, _ = lake.filled()
    topic = "bench-writer"
    create(lake.bootstrap, topic, 1)
    seconds = TAIL_S / (4 if lake.session.options.quick else 1)
    figures = []
    for words, beside in (("alone", False), ("beside a load", True)):
        loading = None
        if beside:
            target = lake.directory / "beside"
            loading = _load(lake, filled, f"parquet:{target}", "--master", "local[2]")
            time.sleep(4)
        latencies = sorted(_tail(lake, topic, seconds)["latencies"])
        if loading is not None:
            _stop(loading)
        for name, share in (("p50", 50), ("p99", 99)):
            value = latencies[len(latencies) * share // 100]
            figures.append(Figure(f"produce {name}, {words}", "ms", 2, None, {MILLSTREAM: [value]}))
    return figures


def _load(lake: Lake, topic: str, table: str, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "millstream.cli.main", "load", topic, "--to", table]
    with (lake.directory / "load.log").open("ab") as log:
        return subprocess.Popen(
            [*command, "-b", lake.bootstrap, *more], stdout=log, stderr=log, stdin=log
        )


def _stop(loading: subprocess.Popen[bytes]) -> None:
    loading.send_signal(signal.SIGINT)
    try:
        loading.wait(60)
    except subprocess.TimeoutExpired:
        loading.kill()
        loading.wait()


def _tail(lake: Lake, topic: str, seconds: float) -> dict[str, Any]:
    spec = {
        "bootstrap": lake.bootstrap,
        "topic": topic,
        "per_second": RATE,
        "seconds": seconds,
    }
    done = subprocess.run(
        [sys.executable, "-m", "bench.load.tail", json.dumps(spec)],
        capture_output=True,
        text=True,
        check=True,
        timeout=seconds + 120,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
