"""B11: the Spark source beside Spark's own connector, on the same topic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tests.interop.clients.access_log import access_log_bytes

from bench.lake import (
    BOUND,
    FILES,
    OURS,
    STOCK,
    Lake,
    LakeRow,
    Measured,
    SparkWorker,
    create,
    fill,
    lake_section,
    run_rows,
)
from bench.session import Session
from bench.tables import Section

MANY = 100
CONDITIONS = (
    "local[2], one broker (Millstream, log.flush.policy=os) on the same machine; the access log "
    "over and over in a topic of 6 partitions, 64-KB batches, no compression; every session is "
    "warm, and the subjects take turns",
    "files: logDirs, the broker tells the offsets and the tasks read its segment files",
    "read.parquet: the same rows as a Parquet table that the stock connector or we wrote",
)


def run(session: Session) -> list[Section]:
    """Run the rows that `--only` leaves."""
    broker = session.stage.millstream()
    if broker is None:
        return [lake_section("B11 · Spark source", [])]
    with Lake(session, broker) as lake:
        rows = [row for row in _rows(lake) if session.options.only in row.name]
        run_rows(session, rows)
    return [lake_section("B11 · Spark source, local[2]", rows)]


def _rows(lake: Lake) -> list[LakeRow]:
    topic, rows_filled, size = lake.filled()
    wire, files = lake.source(topic), lake.source(topic, files=True)
    million_rows = rows_filled / 1e6
    seen = lake.ours().ask("length", format="millstream", options=wire)["rows"]
    assert seen == rows_filled, f"{seen} rows of {rows_filled} are seen"
    parquet = str(lake.directory / "bound")
    lake.ours().ask("parquet", format="millstream", options=wire, target=parquet)
    many = "bench-many-partitions"
    create(lake.bootstrap, many, MANY)
    fill(lake.bootstrap, many, access_log_bytes().splitlines(), 1)
    ten = {**lake.source(many), "startingOffsets": "earliest"}

    def reads(action: str) -> list[Measured]:
        return [
            Measured(OURS, partial(lake.ours().ask, action, format="millstream", options=wire)),
            Measured(FILES, partial(lake.ours().ask, action, format="millstream", options=files)),
            Measured(STOCK, _later(lake, action, options=wire)),
        ]

    def plans(action: str) -> list[Measured]:
        target = str(lake.directory / "checkpoint")
        request: dict[str, Any] = {"options": ten, "target": target}
        return [
            Measured(OURS, partial(lake.ours().ask, action, format="millstream", **request)),
            Measured(STOCK, _later(lake, action, **request)),
        ]

    five_times = (("≥ 5× stock", STOCK, 5.0),)
    bound = Measured(
        BOUND, partial(lake.ours().ask, "length", format="parquet", options={}, path=parquet)
    )
    return [
        LakeRow("noop", "million rows/s", million_rows, reads("noop"), five_times),
        LakeRow(
            "sum(length(value))",
            "million rows/s",
            million_rows,
            [*reads("length"), bound],
            (*five_times, ("≥ 0.5× read.parquet", BOUND, 0.5)),
            rows_filled,
        ),
        LakeRow("noop, MB/s", "MB/s", size / 1e6, reads("noop")),
        LakeRow(f"planning, {MANY} partitions", "s", 0, plans("plan")),
        LakeRow(f"AvailableNow, {MANY} partitions", "s", 0, plans("available now")),
    ]


def _later(lake: Lake, action: str, **request: Any) -> Callable[[], Mapping[str, Any]]:
    """Return a request to the stock connector, whose session starts at the first one."""

    def ask() -> Mapping[str, Any]:
        worker: SparkWorker = lake.stock()
        return worker.ask(action, format="kafka", **request)

    return ask
