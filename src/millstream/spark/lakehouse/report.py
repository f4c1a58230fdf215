"""The report of a loaded access log, computed on Spark: the figures behind ``millstream report``.

The table has the columns of the format ``text`` with pattern ``access_log``: ``client``, ``agent``,
``time``, ``path``, ``status``, ``bytes``, ``referrer``. A session is a row of hits of one client
with one agent, with less than half an hour between two of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from millstream.model.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SESSION_GAP_S: Final = 1_800
_NEEDED: Final = ("client", "agent", "time", "path", "status", "bytes", "referrer")
_TOP: Final = 12
NOT_A_PAGE: Final = (
    r"(?i)(\.(css|js|mjs|map|ico|png|jpe?g|gif|svg|webp|avif|bmp|woff2?|ttf|otf|eot)"
    r"|^/robots\.txt)$"
)
"""What browsers and robots ask for by themselves is not among the top pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hour:
    """The hits of one hour, by class of their status."""

    start: datetime
    fine: int
    redirected: int
    client_errors: int
    server_errors: int

    @property
    def hits(self) -> int:
        """All of them."""
        return self.fine + self.redirected + self.client_errors + self.server_errors


@dataclass(frozen=True, slots=True)
class Counted:
    """A value and its count."""

    name: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessReport:
    """The data of the page."""

    hits: int
    clients: int
    bytes: int
    first: datetime | None
    last: datetime | None
    hours: Sequence[Hour]
    statuses: Sequence[Counted]
    pages: Sequence[Counted]
    missing_pages: Sequence[Counted]
    referrers: Sequence[Counted]
    sessions: int
    median_session_hits: float
    median_session_s: float
    session_sizes: Sequence[Counted]


def compute(rows: DataFrame) -> AccessReport:
    """Compute the report; ConfigError for a table that is not an access log."""
    from pyspark.sql import functions as f

    missing = [name for name in _NEEDED if name not in rows.columns]
    if missing:
        raise ConfigError(
            f"the table has no column {', '.join(missing)}: load it with --format text "
            "--format-option pattern=access_log"
        )
    log = rows.select(*_NEEDED).where("status is not null").cache()
    try:
        totals = log.agg(
            f.count("*").alias("hits"),
            f.countDistinct("client").alias("clients"),
            f.coalesce(f.sum("bytes"), f.lit(0)).alias("bytes"),
            f.min("time").alias("first"),
            f.max("time").alias("last"),
        ).collect()[0]
        page = f.regexp_extract("path", r"^[^?]*", 0)
        found = log.where("status < 400 and path is not null")
        sessions = _sessions(log)
        figures = sessions.agg(
            f.count("*").alias("count"),
            f.coalesce(f.median("hits"), f.lit(0.0)).alias("hits"),
            f.coalesce(f.median("seconds"), f.lit(0.0)).alias("seconds"),
        ).collect()[0]
        return AccessReport(
            hits=totals.hits,
            clients=totals.clients,
            bytes=totals.bytes,
            first=totals.first,
            last=totals.last,
            hours=_hours(log),
            statuses=_counted(log.select(f.col("status").cast("string").alias("name")), 20),
            pages=_counted(
                found.select(page.alias("name")).where(~f.col("name").rlike(NOT_A_PAGE))
            ),
            missing_pages=_counted(log.where("status = 404").select(page.alias("name"))),
            referrers=_counted(
                log.where("referrer is not null and referrer not in ('', '-')").select(
                    f.regexp_extract("referrer", r"^[a-z]+://([^/]+)", 1).alias("name")
                )
            ),
            sessions=figures["count"],
            median_session_hits=figures.hits,
            median_session_s=figures.seconds,
            session_sizes=_session_sizes(sessions),
        )
    finally:
        log.unpersist()


def _hours(log: DataFrame) -> list[Hour]:
    from pyspark.sql import functions as f

    def of_class(low: int, high: int) -> Column:
        return f.count_if((f.col("status") >= low) & (f.col("status") < high))

    counts = (
        log.groupBy(f.date_trunc("hour", "time").alias("start"))
        .agg(
            of_class(0, 300).alias("fine"),
            of_class(300, 400).alias("redirected"),
            of_class(400, 500).alias("client_errors"),
            of_class(500, 1000).alias("server_errors"),
        )
        .where("start is not null")
        .orderBy("start")
    )
    return [Hour(**row.asDict()) for row in counts.collect()]


def _counted(names: DataFrame, top: int = _TOP) -> list[Counted]:
    counts = names.where("name <> ''").groupBy("name").count().orderBy("count", ascending=False)
    return [Counted(row["name"], row["count"]) for row in counts.limit(top).collect()]


def _sessions(log: DataFrame) -> DataFrame:
    """Return one row for each session: its hits and its length in seconds."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    visitor = Window.partitionBy("client", "agent").orderBy("time")
    seconds = f.col("time").cast("double")
    gap = seconds - f.lag(seconds).over(visitor)
    begins = f.when(gap.isNull() | (gap >= SESSION_GAP_S), 1).otherwise(0)
    numbered = log.withColumn("begins", begins).withColumn("session", f.sum("begins").over(visitor))
    return numbered.groupBy("client", "agent", "session").agg(
        f.count("*").alias("hits"),
        (f.max(seconds) - f.min(seconds)).alias("seconds"),
    )


def _session_sizes(sessions: DataFrame) -> list[Counted]:
    from pyspark.sql import functions as f

    size = (
        f.when(f.col("hits") == 1, "1 hit")
        .when(f.col("hits") <= 5, "2-5")
        .when(f.col("hits") <= 10, "6-10")
        .when(f.col("hits") <= 50, "11-50")
        .otherwise("more")
    )
    counts = {
        row["size"]: row["count"] for row in sessions.groupBy(size.alias("size")).count().collect()
    }
    return [
        Counted(name, counts.get(name, 0)) for name in ("1 hit", "2-5", "6-10", "11-50", "more")
    ]
