"""Ordinary programs with stock clients that say line by line what they do, and are written down.

A program knows of no test and of no fault. It ends when its standard input has a line.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path

from tests.interop.kafka_cluster import kafka_jars
from tests.system.cluster.watched import Reader, Watched, Writer

from millstream.history.checker import History, Send

HERE = Path(__file__).parent


def command(program: str) -> list[str]:
    """Return what runs a program of this directory, up to its arguments."""
    source = str(HERE / program)
    if program.endswith(".py"):
        return [sys.executable, "-W", "ignore", source]
    java = shutil.which("java")
    assert java is not None
    flags = ("-Xmx192M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    return [java, *flags, "-cp", f"{kafka_jars()}/*", source]


class Program(ABC):
    """A process whose lines are handed over, one by one, until it ends."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [*command(arguments[0]), *arguments[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def follow(self, watched: Watched) -> None:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        asked_to_end = False
        with process:
            for line in process.stdout:
                self.line(*line.split())
                if watched.stopped.is_set() and not asked_to_end:
                    asked_to_end = True
                    process.stdin.write("\n")
                    process.stdin.flush()
        assert process.returncode == 0, f"{process.args} ended with {process.returncode}"

    @abstractmethod
    def line(self, what: str, number: str, *rest: str) -> None:
        """Take down one line."""


class WritingProgram(Writer, Program):
    """A producer."""

    source = ""

    def __init__(
        self, bootstrap: str, topic: str, history: History, name: str, partitions: int = 1
    ) -> None:
        Writer.__init__(self, topic, history, name, partitions)
        Program.__init__(self, self.source, bootstrap, topic, name, str(partitions))
        self._sent: dict[int, tuple[Send, float]] = {}

    def run(self) -> None:
        self.follow(self)

    def line(self, what: str, number: str, *rest: str) -> None:
        if what == "sending":
            self._sent[int(number)] = self.sending(int(number)), time.monotonic()
        elif what == "told":
            send, sent = self._sent[int(number)]
            self.told(send, int(rest[0]), sent)
        else:
            self.failures.append(" ".join(rest))


class ReadingProgram(Reader, Program):
    """A member of a group."""

    source = ""

    def __init__(self, bootstrap: str, topic: str, history: History, group: str) -> None:
        Reader.__init__(self, topic, history, group)
        Program.__init__(self, self.source, bootstrap, topic, group)

    def run(self) -> None:
        self.follow(self)

    def line(self, what: str, number: str, *rest: str) -> None:
        partition = int(number)
        if what == "began":
            self.began(partition, float(rest[0]))
        elif what == "saw":
            self.saw(partition, int(rest[0]), rest[1])
        elif what == "committing":
            self.committing(partition, int(rest[1]), float(rest[0]))
        else:
            self.committed(partition, int(rest[1]), float(rest[0]))


class JavaWriter(WritingProgram):
    source = "Writer.java"


class JavaReader(ReadingProgram):
    source = "Reader.java"


class PythonWriter(WritingProgram):
    source = "kafka_python_writer.py"


class PythonReader(ReadingProgram):
    source = "kafka_python_reader.py"
