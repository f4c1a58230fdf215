"""A real ZooKeeper for tests, from the jars that PySpark carries."""

from __future__ import annotations

import os
from pathlib import Path

import pyspark

from millstream.spark.java import find_java
from millstream.zookeeper.embedded import JavaProgram, ZooKeeperEnsemble, find_jars


def java_program() -> JavaProgram:
    """Return what runs a ZooKeeper on this machine."""
    jars = Path(pyspark.__file__).parent / "jars"
    return JavaProgram(find_java(os.environ).home / "bin" / "java", find_jars(jars))


def ensemble(directory: Path, *, size: int = 1) -> ZooKeeperEnsemble:
    """Return an ensemble that is not started yet."""
    return ZooKeeperEnsemble(java_program(), directory, size=size)
