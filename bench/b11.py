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
    PREBUILT,
    STOCK,
    VALUE_ALONE,
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
MANY_BATCH_BYTES = 20_000
LARGE = 5
PREBUILT_TASKS = 6
_LARGE_NAME = f"sum(length(value)), {LARGE}× the log"
_PLANNING = f"planning, {MANY} partitions"
_AVAILABLE_NOW = f"AvailableNow, {MANY} partitions"
CONDITIONS = (
    "local[2], one broker (Millstream, log.flush.policy=os) on the same machine; the access log "
    "over and over in a topic of 6 partitions (--partitions), 64-KB batches, no compression; every "
    "session is warm, and the subjects take turns",
    "files: logDirs, the broker tells the offsets and the tasks read its segment files",
    "columns=value: the option that leaves the other columns out, as Spark does for Parquet by "
    "itself",
    "batches made beforehand: a Python data source that reads nothing, with the same columns: what "
    "Spark takes from any",
    "read.parquet: the same rows as a Parquet table that we wrote through Spark",
    f"{MANY} partitions: the access log once, about 100 records in each",
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
    only = lake.session.options.only
    rows: list[LakeRow] = []
    if any(only in name for name in ("noop", "sum(length(value))")):
        rows += _reads(lake)
    if only in _LARGE_NAME:
        rows.append(_large(lake))
    if any(only in name for name in (_PLANNING, _AVAILABLE_NOW)):
        rows += _many_partitions(lake)
    return rows


def _asks(
    lake: Lake, action: str, options: Mapping[str, str], kind: str = "millstream"
) -> Callable[[], Mapping[str, Any]]:
    return partial(lake.ours().ask, action, format=kind, options=dict(options))


def _reads(lake: Lake) -> list[LakeRow]:
    topic, rows_filled, _ = lake.filled()
    wire, files = lake.source(topic), lake.source(topic, files=True)
    lines = lake.directory / "lines"
    lines.parent.mkdir(parents=True, exist_ok=True)
    lines.write_bytes(access_log_bytes())
    prebuilt = {"rows": str(rows_filled), "tasks": str(PREBUILT_TASKS), "lines": str(lines)}

    def subjects(action: str) -> list[Measured]:
        return [
            Measured(OURS, _asks(lake, action, wire)),
            Measured(FILES, _asks(lake, action, files)),
            Measured(STOCK, _later(lake, action, options=wire)),
            Measured(PREBUILT, _asks(lake, action, prebuilt, "prebuilt")),
        ]

    five_times = (("≥ 5× stock", STOCK, 5.0),)
    lengths = [
        *subjects("length"),
        Measured(VALUE_ALONE, _asks(lake, "length", {**wire, "columns": "value"})),
    ]
    million_rows, unit = rows_filled / 1e6, "million rows/s"
    return [
        LakeRow("noop", unit, million_rows, subjects("noop"), five_times),
        LakeRow("sum(length(value))", unit, million_rows, lengths, five_times, rows_filled),
    ]


def _large(lake: Lake) -> LakeRow:
    topic, rows_filled, _ = lake.filled(LARGE)
    wire = lake.source(topic)
    parquet = str(lake.directory / "bound")
    written = lake.ours().ask("parquet", format="millstream", options=wire, target=parquet)
    lake.session.say(f"read.parquet reads {written['bytes'] / 1e6:.0f} MB")
    bound = partial(lake.ours().ask, "length", format="parquet", options={}, path=parquet)
    subjects = [
        Measured(OURS, _asks(lake, "length", wire)),
        Measured(FILES, _asks(lake, "length", lake.source(topic, files=True))),
        Measured(VALUE_ALONE, _asks(lake, "length", {**wire, "columns": "value"})),
        Measured(BOUND, bound),
    ]
    half = (("≥ 0.5× read.parquet", BOUND, 0.5),)
    return LakeRow(_LARGE_NAME, "million rows/s", rows_filled / 1e6, subjects, half, rows_filled)


def _many_partitions(lake: Lake) -> list[LakeRow]:
    many = "bench-many-partitions"
    create(lake.bootstrap, many, MANY)
    lines = access_log_bytes().splitlines()
    fill(lake.bootstrap, many, lines, 1, partitions=MANY, batch_bytes=MANY_BATCH_BYTES)
    source = {**lake.source(many), "startingOffsets": "earliest"}
    request: dict[str, Any] = {"options": source, "target": str(lake.directory / "checkpoint")}

    def subjects(action: str) -> list[Measured]:
        return [
            Measured(OURS, partial(lake.ours().ask, action, format="millstream", **request)),
            Measured(STOCK, _later(lake, action, **request)),
        ]

    return [
        LakeRow(_PLANNING, "s", 0, subjects("plan")),
        LakeRow(_AVAILABLE_NOW, "s", 0, subjects("available now")),
    ]


def _later(lake: Lake, action: str, **request: Any) -> Callable[[], Mapping[str, Any]]:
    """Return a request to the stock connector, whose session starts at the first one."""

    def ask() -> Mapping[str, Any]:
        worker: SparkWorker = lake.stock()
        return worker.ask(action, format="kafka", **request)

    return ask
