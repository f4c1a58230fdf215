"""Spark with Delta's jars, from ``~/.cache/millstream``, else from Maven and pip, which fill that.

The newest Delta for Spark is that for Spark 4.2, whose Python package is put before the installed
one where that is another.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import pyspark
from bench.peers.maven import JarsMissingError, cached, copied_jars

_VERSION: Final = "4.4.0"
_SPARK: Final = "4.2"
_ARTIFACT: Final = f"delta-spark_{_SPARK}_2.13"
_GROUPS: Final = ("io.delta", "io.unitycatalog")
"""All else is in Spark."""


class DeltaMissingError(Exception):
    """It is not there, and cannot be had."""


def delta_settings() -> dict[str, str]:
    """Return the settings of a session that knows Delta tables; DeltaMissingError."""
    delta = f"io.delta:{_ARTIFACT}:{_VERSION}"
    try:
        jars = copied_jars(cached(f"{_ARTIFACT}-{_VERSION}"), (delta,), groups=_GROUPS)
    except JarsMissingError as error:
        raise DeltaMissingError(str(error)) from error
    return {
        "spark.jars": ",".join(str(each) for each in sorted(jars.glob("*.jar"))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


def delta_python_path() -> list[str]:
    """Return what stands first on the path of a Python that runs it; DeltaMissingError."""
    if pyspark.__version__.startswith(f"{_SPARK}."):
        return []
    place = cached(f"pyspark-{_SPARK}")
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as directory:
            made = Path(directory, "made")
            pip = (sys.executable, "-m", "pip", "-q", "install", "--target", str(made))
            command = (*pip, f"pyspark=={_SPARK}.*")
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise DeltaMissingError(f"it cannot be had: {(done.stdout + done.stderr)[-500:]}")
            if not place.is_dir():
                made.rename(place)
    return [str(place)]
