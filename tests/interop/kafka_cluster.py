"""Apache Kafka 4.3 for tests: its jars, its tools, and one small node of it.

The finder and the node are those of the benchmarks (``bench.peers.kafka``): ``KAFKA_HOME``, else
the cache ``~/.cache/millstream``, else Maven, which fills the cache once.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.peers.kafka import KafkaNode, KafkaNotFoundError, find_kafka

KafkaUnavailableError = KafkaNotFoundError

SMALL_JVM: Final = ("-Xms64M", "-Xmx512M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Enough for one node that answers a test."""


def kafka_jars() -> Path:
    """Return the directory with Kafka's jars; KafkaUnavailableError says what is missing."""
    return find_kafka().libs


def kafka_version() -> str:
    """Return the version that the jars carry in their names."""
    return find_kafka().version


def small_kafka_node(directory: Path, settings: Mapping[str, str]) -> KafkaNode:
    """Return one combined KRaft node, not started, that takes little memory."""
    return KafkaNode(find_kafka(), directory, settings=settings, jvm_flags=SMALL_JVM)


@dataclass(frozen=True, slots=True)
class JavaTool:
    """Runs main classes out of Kafka's jars."""

    jars: Path
    heap_mb: int = 256

    def command(self, main_class: str, *arguments: str) -> list[str]:
        """Return the command line that runs ``main_class``."""
        java = shutil.which("java")
        assert java is not None
        return [
            java,
            f"-Xmx{self.heap_mb}M",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            f"{self.jars}/*",
            main_class,
            *arguments,
        ]

    def run(
        self, main_class: str, *arguments: str, stdin: str = "", timeout_s: float = 90
    ) -> subprocess.CompletedProcess[str]:
        """Run ``main_class`` to its end and return what it printed."""
        return subprocess.run(
            self.command(main_class, *arguments),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
