"""What the demo does with PySpark: the topic to Parquet, and the hits by status from Parquet."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.cli.access_log import FIELDS, LINE
from millstream.cli.failures import CommandFailedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def spark_session(home: Path) -> Iterator[SparkSession]:
    """Start Spark, and stop it at the end; what it logs goes to ``spark.log`` in ``home``.

    CommandFailedError when Spark's packages are missing.
    """
    try:
        from millstream.spark.sessions import start_session
    except ImportError:
        raise CommandFailedError("PySpark is missing: pip install 'millstream[spark]'") from None
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.local.dir": str(home / "spark"),
        "spark.sql.warehouse.dir": str(home / "warehouse"),
    }
    with _errors_into(home / "spark.log"):
        session = start_session("millstream demo", master="local[*]", settings=settings)
        try:
            yield session
        finally:
            session.stop()


@contextmanager
def _errors_into(path: Path) -> Iterator[None]:
    """Let standard error of this process and of those it starts go into a file."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def load_to_parquet(
    session: SparkSession, bootstrap: str, topic: str, directory: Path
) -> Counter[str]:
    """Write the topic as a table of parsed lines; return the hits by status that it holds."""
    from pyspark.sql import functions as sql

    records = (
        session.read.format("millstream")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    line = records.value.cast("string")
    fields = [
        sql.regexp_extract(line, LINE, number).alias(name)
        for number, name in enumerate(FIELDS, start=1)
    ]
    records.select("partition", "offset", "timestamp", line.alias("line"), *fields).write.parquet(
        str(directory)
    )
    rows = session.read.parquet(str(directory)).groupBy("status").count().collect()
    return Counter({row["status"]: row["count"] for row in rows})
