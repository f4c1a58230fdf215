"""A long-running program out of Kafka's jars: Kafka Streams, a Connect worker, MirrorMaker."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final

from bench.peers.kafka import KafkaInstall

_SMALL_JVM: Final = (
    *("-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
STOP_TIMEOUT_S: Final = 60.0


class Program:
    """``with Program(…) as program:`` runs a main class that is given a file of properties.

    It is stopped with SIGTERM at the end, and killed if it does not end within a minute.
    """

    def __init__(
        self,
        install: KafkaInstall,
        main_class: str,
        directory: Path,
        properties: Mapping[str, str],
        *arguments: str,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        file = directory / "program.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        self._command = install.command(main_class, str(file), *arguments, jvm_flags=_SMALL_JVM)
        self._output = directory / "program.out"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def output(self) -> str:
        """What it printed so far, warnings included."""
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    def has_ended(self) -> bool:
        """Return whether the process is gone."""
        return self._process is None or self._process.poll() is not None

    def kill(self) -> None:
        """End it with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Program:
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        if error is not None:
            error.add_note(self.output[-3000:])
