"""Starts the worker of each client, and says why one cannot be had."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tests.interop.kafka_cluster import JavaTool, KafkaUnavailableError, kafka_jars

HERE: Final = Path(__file__).parent
GO: Final = HERE.parent / "go"
JS: Final = HERE.parent / "js"
ROOT: Final = HERE.parents[2]
BUILD_TIMEOUT_S: Final = 400
ANSWER_TIMEOUT_S: Final = 90.0


class NotAvailableError(Exception):
    """A client cannot be had on this machine; the text says what is missing."""


class Program:
    """A worker that runs: it is asked and answers, one line each."""

    def __init__(self, command: list[str], directory: Path) -> None:
        self._errors = (directory / "worker.err").open("w+b")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"},
            bufsize=0,
        )

    def ask(self, do: str, settings: Mapping[str, object], **more: object) -> dict[str, Any]:
        """Return the answer to one request (`worker`)."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"do": do, "settings": dict(settings), **more}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self._process.stdout], [], [], ANSWER_TIMEOUT_S)
            assert ready, f"no answer to {request}\n{self._told()}"
            piece = os.read(self._process.stdout.fileno(), 1 << 16)
            assert piece, f"it ended at {request}\n{self._told()}"
            line += piece
        found: dict[str, Any] = json.loads(line)
        return found

    def _told(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-3000:].decode(errors="replace")

    def stop(self) -> None:
        """End it: a worker ends with its input."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()


def _python(module: str) -> Callable[[Path, bool], list[str]]:
    def command(directory: Path, may_download: bool) -> list[str]:
        return [sys.executable, "-m", f"tests.interop.secured.{module}"]

    return command


def _java(directory: Path, may_download: bool) -> list[str]:
    if shutil.which("java") is None:
        raise NotAvailableError("Java is not on the path")
    try:
        return JavaTool(kafka_jars()).command(str(HERE / "Worker.java"))
    except KafkaUnavailableError as error:
        raise NotAvailableError(str(error)) from error


def _needs(what: str, said: str, may_download: bool) -> str:
    """Say why it is not there: nobody has brought it here yet, or it could not be brought."""
    if may_download:
        return f"{what} cannot be had: {said[-300:]}"
    return f"needs {what}, which make interop, or pytest tests/interop --java, downloads"


def _franz_go(directory: Path, may_download: bool) -> list[str]:
    if shutil.which("go") is None:
        raise NotAvailableError("Go is not on the path")
    source = directory / "go"
    shutil.copytree(GO, source)
    environment = dict(os.environ) if may_download else {**os.environ, "GOPROXY": "off"}
    fetched = _run(["go", "mod", "download"], source, environment)
    if fetched.returncode != 0:
        raise NotAvailableError(_needs("the modules of franz-go", fetched.stderr, may_download))
    built = _run(["go", "build", "-o", "worker", "./secured"], source, environment)
    assert built.returncode == 0, built.stderr
    return [str(source / "worker")]


def _kafkajs(directory: Path, may_download: bool) -> list[str]:
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise NotAvailableError("node and npm are not on the path")
    for file in ("package.json", "package-lock.json", "worker.js"):
        shutil.copy(JS / file, directory)
    words = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    words.append("--prefer-offline" if may_download else "--offline")
    done = _run(words, directory, os.environ)
    if done.returncode != 0:
        raise NotAvailableError(_needs("kafkajs", done.stderr, may_download))
    return ["node", "worker.js"]


def _run(
    words: list[str], directory: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )


PROGRAMS: Final[Mapping[str, Callable[[Path, bool], list[str]]]] = {
    "java": _java,
    "librdkafka": _python("librdkafka_worker"),
    "kafka-python": _python("kafka_python_worker"),
    "aiokafka": _python("aiokafka_worker"),
    "franz-go": _franz_go,
    "kafkajs": _kafkajs,
}
"""By the name of a client: what returns the command of its worker, in a directory of its own. What
is not on this machine is brought here where that is allowed.
"""


def start(client: str, directory: Path, *, may_download: bool) -> Program:
    """Start the worker of a client; NotAvailableError where it cannot be had."""
    return Program(PROGRAMS[client](directory, may_download), directory)
