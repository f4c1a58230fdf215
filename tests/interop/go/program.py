"""A Go program of these tests: built once, run in one of its modes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest
from tests.broker_process import BrokerProcess

BUILD_TIMEOUT_S: Final = 400
TIMEOUT_S: Final = 150

Line = list[str]


class GoProgram:
    """MODE BOOTSTRAP NAME=VALUE ...; it prints lines and ends with status 0."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def start(self, mode: str, broker: BrokerProcess, **settings: object) -> subprocess.Popen[str]:
        words = [f"{name}={value}" for name, value in settings.items()]
        return subprocess.Popen(
            [str(self._path), mode, broker.bootstrap, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, mode: str, broker: BrokerProcess, **settings: object) -> list[Line]:
        """Run it to its end and return its lines, split into words."""
        return self.finish(self.start(mode, broker, **settings))

    @staticmethod
    def finish(process: subprocess.Popen[str]) -> list[Line]:
        try:
            output, errors = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()
        assert process.returncode == 0, errors
        return [line.split() for line in output.splitlines()]


def built(source: Path, directory: Path) -> GoProgram:
    """Build the module in ``source`` in ``directory``; skips where its modules cannot be had."""
    for name in ("main.go", "go.mod", "go.sum"):
        shutil.copy(source / name, directory)

    def go(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["go", *words],
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )

    fetched = go("mod", "download")
    if fetched.returncode != 0:
        pytest.skip(f"Go modules cannot be downloaded: {fetched.stderr[-300:]}")
    compiled = go("build", "-o", "program", ".")
    assert compiled.returncode == 0, compiled.stderr
    return GoProgram(directory / "program")
