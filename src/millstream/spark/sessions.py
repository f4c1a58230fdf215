"""Starts a SparkSession on any machine: sets up Java, Python and sockets first."""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from millstream.spark.java import java_home

DEFAULT_SETTINGS: Final[Mapping[str, str]] = {
    # JVM and Python workers are on one machine: a Unix socket costs less than TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    # Spark's own, and the settings of TLS and SASL that hold secrets and have another name.
    "spark.redaction.regex": (
        r"(?i)secret|password|token|access[.]?key|sasl\.jaas\.config|ssl\.keystore\.key|ssl\.key\.pem"
    ),
}
LOCAL_SETTINGS: Final[Mapping[str, str]] = {
    # Renaming a file is enough on a local disk: a third of the time of a micro-batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
    # The machine's own name need not resolve.
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
}


def start_session(app_name: str, *, master: str, settings: Mapping[str, str]) -> SparkSession:
    """Return the active session, or a new one; see :func:`millstream.spark.session`."""
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    prepare_environment()
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in (default_settings(master) | dict(settings)).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def connect_session(app_name: str, *, remote: str, settings: Mapping[str, str]) -> SparkSession:
    """Return a session of Spark Connect; see :func:`millstream.spark.session`.

    A server that is started for it gets the default settings; a remote one has its own, and needs
    Millstream installed for its workers.
    """
    prepare_environment()
    builder = SparkSession.builder.appName(app_name).remote(remote)
    chosen = dict(settings)
    if remote.startswith("local"):
        chosen = default_settings(remote) | chosen
    for name, value in chosen.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def default_settings(master: str) -> dict[str, str]:
    """Return the default settings of a session."""
    chosen = dict(DEFAULT_SETTINGS)
    if master.startswith("local"):
        chosen |= LOCAL_SETTINGS
    return chosen


def prepare_environment() -> None:
    """Set JAVA_HOME and PYSPARK_PYTHON for this process and those it starts.

    JAVA_HOME is replaced if it names no Java that Spark can run on. Workers run this Python unless
    PYSPARK_PYTHON is set.
    """
    os.environ["JAVA_HOME"] = str(java_home(os.environ))
    os.environ.setdefault("PYSPARK_PYTHON", _spoken_path(sys.executable))
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", os.environ["PYSPARK_PYTHON"])


def _spoken_path(executable: str) -> str:
    """Return a path to this Python that has no white space in it.

    Spark finds data sources by a command line that it splits at spaces. A symbolic link is not
    enough: Python finds its virtual environment by the path it was started with.
    """
    if not _has_space(executable):
        return executable
    places = (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm")
    usable = [place for place in places if not _has_space(place) and os.access(place, os.W_OK)]
    if not usable:
        return executable
    directory = Path(tempfile.mkdtemp(prefix="millstream-python-", dir=usable[0]))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    launcher = directory / "python"
    launcher.write_text(f'#!/bin/sh\nexec {shlex.quote(executable)} "$@"\n', encoding="utf-8")
    launcher.chmod(0o755)
    return str(launcher)


def _has_space(path: str) -> bool:
    return any(character.isspace() for character in path)
