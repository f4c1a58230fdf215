"""Spark with Delta's jars, from ``~/.cache/millstream``, else from Maven and pip, which fill that.

The newest Delta for Spark is that for Spark 4.2, whose Python package is put before the installed
one where that is another.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyspark

_VERSION: Final = "4.4.0"
_SPARK: Final = "4.2"
_ARTIFACT: Final = f"delta-spark_{_SPARK}_2.13"
_CACHE: Final = Path("~/.cache/millstream").expanduser()
_POM: Final = (
    '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
    "<groupId>tests</groupId><artifactId>delta</artifactId><version>1</version><dependencies>"
    f"<dependency><groupId>io.delta</groupId><artifactId>{_ARTIFACT}</artifactId>"
    f"<version>{_VERSION}</version></dependency></dependencies></project>"
)
_GROUPS: Final = "io.delta,io.unitycatalog"
"""All else is in Spark."""


class DeltaMissingError(Exception):
    """It is not there, and cannot be had."""


def delta_settings() -> dict[str, str]:
    """Return the settings of a session that knows Delta tables; DeltaMissingError."""
    jars = _kept(f"{_ARTIFACT}-{_VERSION}", _jars)
    return {
        "spark.jars": ",".join(str(each) for each in sorted(jars.glob("*.jar"))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


def delta_python_path() -> list[str]:
    """Return what stands first on the path of a Python that runs it; DeltaMissingError."""
    if pyspark.__version__.startswith(f"{_SPARK}."):
        return []
    return [str(_kept(f"pyspark-{_SPARK}", _pyspark))]


def _kept(name: str, make: Callable[[Path], None]) -> Path:
    place = _CACHE / name
    if not place.is_dir():
        _CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_CACHE) as directory:
            make(Path(directory))
            if not place.is_dir():
                (Path(directory) / "made").rename(place)
    return place


def _jars(directory: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise DeltaMissingError("Delta's jars are not there, and Maven is not either")
    (directory / "pom.xml").write_text(_POM)
    goal = "dependency:copy-dependencies"
    _run(
        directory, maven, "-q", "-B", goal, "-DoutputDirectory=made", f"-DincludeGroupIds={_GROUPS}"
    )


def _pyspark(directory: Path) -> None:
    pip = (sys.executable, "-m", "pip", "-q", "install", "--target", "made")
    _run(directory, *pip, f"pyspark=={_SPARK}.*")


def _run(directory: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DeltaMissingError(f"it cannot be had: {(done.stdout + done.stderr)[-500:]}")
