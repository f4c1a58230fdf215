"""What the demo does with PySpark: the topic to Parquet, and the hits by status from Parquet.

It runs as a process of its own, ``python -m millstream.cli.demo_spark BOOTSTRAP TOPIC HOME``, which
prints a line of JSON when Spark has started and one with the result. What Spark starts besides, a
JVM and Python workers, belongs to its process group, so that none of it outlives the demo.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final

from millstream.cli.access_log import FIELDS, LINE
from millstream.cli.failures import CommandFailedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STOP_TIMEOUT_S: Final = 10.0
_MISSING: Final = "PySpark is missing: pip install 'millstream[spark]'"


class SparkLoad:
    """The process, seen from the demo: enter to start it, then ``wait_started`` and ``result``."""

    def __init__(self, working_directory: Path, bootstrap: str, topic: str) -> None:
        self._log = working_directory / "spark.log"
        self._command = [sys.executable, "-m", "millstream.cli.demo_spark"]
        self._command += [bootstrap, topic, str(working_directory)]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> SparkLoad:
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        process = self._process
        assert process is not None
        if error is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_TIMEOUT_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def wait_started(self) -> None:
        """Wait until there is a Spark session."""
        self._read()

    def result(self) -> Counter[str]:
        """Wait for the table and return its hits by status."""
        return Counter(self._read())

    def _read(self) -> dict[str, int]:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise CommandFailedError(f"Spark failed: {_last_error(self._log)}")
        answer = json.loads(line)
        assert isinstance(answer, dict)
        return answer


def _last_error(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    named = [line for line in lines if "Error: " in line or "Exception: " in line]
    return (named or lines or ["it said nothing"])[-1]


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


def check_spark() -> None:
    """Raise CommandFailedError where there is no PySpark, which is only looked for."""
    if find_spec("pyspark") is None:
        raise CommandFailedError(_MISSING)


def main(bootstrap: str, topic: str, working_directory: Path) -> None:
    """Do the work of the process."""
    try:
        from millstream.spark.sessions import start_session
    except ImportError:
        raise CommandFailedError(_MISSING) from None
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.local.dir": str(working_directory / "spark"),
        "spark.sql.warehouse.dir": str(working_directory / "warehouse"),
    }
    session = start_session("millstream demo", master="local[*]", settings=settings)
    print(json.dumps({}), flush=True)
    statuses = load_to_parquet(session, bootstrap, topic, working_directory / "parquet")
    print(json.dumps(statuses), flush=True)
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
