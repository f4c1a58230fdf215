"""Spark's own Kafka connector: a virtual environment with its PySpark, and its jars.

The newest connector in Maven is 4.2.0, so it runs with PySpark 4.2 in an environment of its own,
made once under ``~/.cache/millstream/spark-stock-4.2.0`` with pip, Maven and javac. Three classes
of an artifact that Maven lacks are stood in for by those in ``stock/``. The newest ``from_avro`` in
Maven is that of 4.1.1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PYSPARK = "4.2"
CONNECTOR = "4.2.0"
SPARK_AVRO = "4.1.1"
KAFKA_CLIENTS = "3.9.2"
COMMONS_POOL = "2.13.1"
TIMEOUT_S = 900.0
SOURCES = sorted((Path(__file__).parent / "stock").glob("*.java"))


def _dependency(group: str, artifact: str, version: str) -> str:
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version><exclusions><exclusion><groupId>*</groupId>"
        "<artifactId>*</artifactId></exclusion></exclusions></dependency>"
    )


POM = (
    '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
    "<groupId>millstream.bench</groupId><artifactId>stock</artifactId><version>1</version>"
    "<dependencies>"
    + _dependency("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR)
    + _dependency("org.apache.spark", "spark-avro_2.13", SPARK_AVRO)
    + _dependency("org.apache.kafka", "kafka-clients", KAFKA_CLIENTS)
    + _dependency("org.apache.commons", "commons-pool2", COMMONS_POOL)
    + "</dependencies></project>"
)


class StockSparkAbsentError(Exception):
    """The connector cannot be run here; the message is one sentence that says why."""


@dataclass(frozen=True)
class StockSpark:
    """The interpreter that has its PySpark, and the jars to give to the session."""

    python: Path
    jars: tuple[Path, ...]


def find_stock_spark() -> StockSpark:
    """Return the connector, made on first need; raises StockSparkAbsentError."""
    home = Path.home() / ".cache" / "millstream" / f"spark-stock-{CONNECTOR}"
    complete = home / "complete"
    if not complete.exists() or complete.read_text(encoding="utf-8") != POM:
        for tool in ("mvn", "javac"):
            if shutil.which(tool) is None:
                raise StockSparkAbsentError(f"there is no {tool} on the path")
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        try:
            _make(home)
        except (OSError, subprocess.SubprocessError) as error:
            output = getattr(error, "stderr", b"") or b""
            last = output.decode(errors="replace").strip().splitlines()[-1:]
            raise StockSparkAbsentError(f"it could not be set up: {error} {last}") from None
        complete.write_text(POM, encoding="utf-8")
    return StockSpark(home / "venv" / "bin" / "python", tuple(sorted((home / "jars").glob("*"))))


def _make(home: Path) -> None:
    _run(sys.executable, "-m", "venv", home / "venv")
    python = home / "venv" / "bin" / "python"
    _run(python, "-m", "pip", "-q", "install", f"pyspark=={PYSPARK}.*", "pandas<3", "pyarrow")
    (home / "pom.xml").write_text(POM, encoding="utf-8")
    copy = ("dependency:copy-dependencies", f"-DoutputDirectory={home / 'jars'}")
    _run("mvn", "-q", "-B", "-f", home / "pom.xml", *copy)
    (spark_jars,) = (home / "venv").glob("lib/python*/site-packages/pyspark/jars")
    classes = home / "classes"
    _run("javac", "--release", "17", "-cp", f"{spark_jars}/*", "-d", classes, *SOURCES)
    shutil.make_archive(str(home / "stand-ins"), "zip", classes)
    os.replace(home / "stand-ins.zip", home / "jars" / "stand-ins.jar")


def _run(*command: object) -> None:
    subprocess.run(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=True,
    )
