"""B20: a question about a topic: SQL in place beside a consumer's loop into pandas."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pandas as pd
import pyarrow as pa
from rich.table import Table

import millstream
from bench.session import Session
from bench.tables import JsonValue, Section, Tally
from millstream.client import Admin, Consumer, Producer
from millstream.client.core.admin.topics import NewTopic

RECORDS, PARTITIONS, STEP = 5_000_000, 6, 100_000
TOPIC = "bench-sql"
POLL_RECORDS, POLL_S = 200_000, 30.0
CONDITIONS = (
    f"one broker on this machine, {RECORDS:,} JSON records in {PARTITIONS} partitions, about 60 "
    "bytes each, uncompressed; log.flush.policy=os; page cache hot",
    "seconds from the question to its answer, the median of the rounds; millstream.sql in this "
    "process, the inference of the format included; from files: the broker tells the offsets",
    "pandas: Consumer.to_pandas until all is read, json.loads of each value, value_counts",
    "the rows of offset ranges and of the last hundredth by time show what is not read",
)
GROUPED = f'SELECT status, count(*) AS n FROM "{TOPIC}" GROUP BY 1 ORDER BY 1'


def run(session: Session) -> list[Section]:
    """Fill a topic, and ask of it."""
    broker = session.stage.millstream()
    if broker is None:
        return []
    records = session.options.scaled(RECORDS)
    bootstrap = f"{broker.node.host}:{broker.node.port}"
    # Retention would delete records of 1970.
    first_ms = int(time.time() * 1000) - records
    _fill(bootstrap, records, first_ms)
    session.say(f"{records:,} records are there")
    directory = next(Path(session.stage.directory).rglob(f"{TOPIC}-0")).parent
    found: dict[str, dict[str, float]] = {}
    for name, subjects in _questions(bootstrap, directory, records, first_ms):
        if session.options.only not in name:
            continue
        found[name] = {s: _median(ask, session.options.pairs) for s, ask in subjects.items()}
        session.say(f"{name}: done")
    return [_section(found, records)]


def _questions(
    bootstrap: str, directory: Path, records: int, first_ms: int
) -> Iterator[tuple[str, Mapping[str, Callable[[], None]]]]:
    each = records // PARTITIONS
    time_ms = first_ms + records - records // 100
    statements = {
        "count(*), raw": (f'SELECT count(*) AS n FROM "{TOPIC}"', "raw", records),
        "group by, json": (GROUPED, "json", records),
        "1,000 offsets of each partition": (
            f'SELECT count(*) AS n FROM "{TOPIC}" WHERE _offset >= {each - 1_000}',
            "json",
            None,
        ),
        "the last hundredth by time": (
            f'SELECT count(*) AS n FROM "{TOPIC}" '
            f"WHERE _timestamp >= make_timestamptz({time_ms}000)",
            "json",
            None,
        ),
    }
    for name, (statement, form, wanted) in statements.items():
        subjects = {
            "millstream.sql": _sql(statement, form, wanted, bootstrap_servers=bootstrap),
            "millstream.sql, from files": _sql(
                statement, form, wanted, bootstrap_servers=bootstrap, log_dir=str(directory)
            ),
        }
        if name == "group by, json":
            subjects["consumer to pandas"] = lambda: _to_pandas(bootstrap, records)
        yield name, subjects


def _sql(statement: str, form: str, wanted: int | None, **source: str) -> Callable[[], None]:
    def ask() -> None:
        answer = millstream.sql(statement, format=form, **source)  # type: ignore[call-overload]  # form is one of them
        total = sum(answer["n"].to_pylist())
        assert wanted is None or total == wanted, total

    return ask


def _to_pandas(bootstrap: str, records: int) -> None:
    counts = pd.Series(dtype="int64")
    left = records
    with Consumer[bytes, bytes](
        bootstrap_servers=bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([each.topic_partition for each in consumer.partitions_for(TOPIC)])
        while left > 0:
            frame = consumer.to_pandas(min(POLL_RECORDS, left), POLL_S, columns=["value"])
            assert len(frame), "no records came"
            left -= len(frame)
            status = frame["value"].map(lambda value: json.loads(value)["status"])
            counts = counts.add(status.value_counts(), fill_value=0)
    assert int(counts.sum()) == records


def _median(ask: Callable[[], None], rounds: int) -> float:
    taken = []
    for _ in range(rounds):
        started = time.perf_counter()
        ask()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def _fill(bootstrap: str, records: int, first_ms: int) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)]).get_all()
    with Producer(bootstrap_servers=bootstrap, batch_size=256 * 1024) as producer:
        for first in range(0, records, STEP):
            numbers = range(first, min(first + STEP, records))
            values = [
                b'{"path": "/page/%d", "status": %d, "bytes": %d}'
                % (n % 500, 200 + 100 * (n % 4), n * 7 % 10_000)
                for n in numbers
            ]
            rows = {
                "value": pa.array(values, pa.binary()),
                "timestamp": pa.array([first_ms + n for n in numbers], pa.int64()),
                "partition": pa.array([n % PARTITIONS for n in numbers], pa.int32()),
            }
            producer.send_table(pa.table(rows), TOPIC, partition="partition").result(60)


def _section(found: Mapping[str, Mapping[str, float]], records: int) -> Section:
    title = f"B20 · questions about {records:,} records"
    table = Table(title=title, title_justify="left")
    for heading in ("question", "subject", "seconds", "records/s of the topic"):
        table.add_column(heading, justify="left" if heading in ("question", "subject") else "right")
    rows: list[JsonValue] = []
    for name, subjects in found.items():
        for subject, seconds in subjects.items():
            table.add_row(name, subject, f"{seconds:.2f}", f"{records / seconds:,.0f}")
            rows.append({"question": name, "subject": subject, "seconds": round(seconds, 3)})
    return Section(table, {"title": title, "rows": rows}, Tally())
