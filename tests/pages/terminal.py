"""A reader's terminal: one bash, in which the commands of a page are typed one after the other.

Services (`millstream serve` and the like) go on in the background once they have said where they
listen, as in a second terminal. A command that waits for more until Ctrl-C gets it when it has
printed its first line. Nothing is installed: `pip` looks whether the project has the extras that
are named. Directories such as /var and /data are inside the terminal's own.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import psutil
from tests.pages.blocks import ROOT
from tests.pages.ports import Ports
from tests.pages.screen import Screen

from millstream import platform

_SERVICE: Final = re.compile(
    r"^millstream (serve|console|zookeeper start|cluster start)\b(?!.*--help)"
)
_LISTENS: Final = re.compile(r"listening on |running on http|http://127\.0\.0\.1:\d+/|connect to ")
_WAITS: Final = re.compile(
    r"^millstream (?:[^|#]*--follow\b|consume (?![^|#]*(?:\s-[ec]\b|--exit|--count)))"
)
_ABSOLUTE: Final = re.compile(r"(?<![\w.}])/(var|srv|data|disks|disk1|disk2|backup)/")
_PIP: Final = 'pip() { python -m tests.pages.pip "$@"; }'
_PATIENCE_S: Final = 600.0
_ENDED_BY_CTRL_C: Final = (0, 130)


class PageError(AssertionError):
    """A command of a page did not do what it should."""


class Terminal:
    """A bash and a Python in a directory. The first line that is typed there finds no broker."""

    def __init__(self, directory: Path) -> None:
        self.ports = Ports()
        self._directory = directory
        self._notes = directory / ".typed"
        self._root = directory / "root"
        self._count = 0
        self._services: list[tuple[int, Path]] = []
        self._python: subprocess.Popen[str] | None = None
        self._bash: subprocess.Popen[str] | None = None
        self._screen = Screen()

    def __enter__(self) -> Terminal:
        self._notes.mkdir(parents=True)
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=self._directory,
            env=self._environment(),
            start_new_session=True,
            pass_fds=[self._screen.descriptor],
        )
        self._say(f"set -m -o pipefail; {_PIP}")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._bash is not None
        if self._python is not None:
            _end(self._python)
        shell = psutil.Process(self._bash.pid)
        mine = {each.pid: each for each in shell.children(recursive=True)}
        for pid, _log in reversed(self._services):
            if pid in mine:
                _stop(mine[pid])
        left = shell.children(recursive=True)
        for each in left:
            each.kill()
        _end(self._bash)
        self._screen.close()

    def _environment(self) -> Mapping[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if name == platform.SWITCH or not name.startswith("MILLSTREAM_")
        }
        return {
            **kept,
            "REPOSITORY": str(ROOT),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self._directory),
            "MILLSTREAM_BOOTSTRAP_SERVERS": f"127.0.0.1:{self.ports[9092]}",
            "MILLSTREAM_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
            "COLUMNS": "200",
            "NO_COLOR": "1",
            "TERM": "xterm",
            "PYTHONPATH": str(ROOT),
        }

    def type(self, text: str, *, expected_status: int = 0) -> str:
        """Type a command, wait until it ends, and return what it has printed.

        Its standard output is a terminal, its standard error is not: progress is told in lines.
        """
        if _SERVICE.match(text):
            return self._start(text)
        if _WAITS.match(text):
            return self._interrupt(text)
        command, _, errors = self._written(text)
        status = self._say(f". {command} </dev/null >&{self._screen.descriptor} 2>{errors}")
        said = self._back(self._screen.taken() + errors.read_text())
        if status != str(expected_status) or "Traceback (most recent call last)" in said:
            raise PageError(f"$ {text}\nended with {status}\n{said}{self._logs()}")
        return said

    def run_python(self, text: str) -> str:
        """Run a block of Python and return what it has printed."""
        if self._python is None:
            self._python = subprocess.Popen(
                [sys.executable, "-W", "error", str(Path(__file__).with_name("namespace.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=self._directory,
                env=self._environment(),
            )
        block, output, _ = self._written(text)
        failed = _ask(self._python, f"{block} {output}")
        said = self._back(output.read_text())
        if failed != "0":
            raise PageError(f"{text}\n{said}{self._logs()}")
        return said

    def _written(self, text: str) -> tuple[Path, Path, Path]:
        self._count += 1
        names = [self._notes / f"{self._count}.{kind}" for kind in ("typed", "out", "err")]
        there = self.ports.into(_ABSOLUTE.sub(rf"{self._root}/\1/", text))
        names[0].write_text(there + "\n")
        names[1].touch()
        names[2].touch()
        return names[0], names[1], names[2]

    def _back(self, text: str) -> str:
        """Return what was printed, in the words of the page."""
        return self.ports.back(text).replace(f"{self._root}/", "/")

    def _say(self, line: str) -> str:
        """Have bash do something; return its exit status."""
        assert self._bash is not None
        return _ask(self._bash, f"{line}\nprintf '%s\\n' $?")

    def _start(self, text: str) -> str:
        """Start a service, and wait until it listens."""
        line = re.sub(r"\s+#.*", "", text).rstrip().removesuffix("&").rstrip()
        if not re.search(r"--ports?\b|listeners=|\.properties", line):
            line += " --port 8090" if line.startswith("millstream console") else " --port 9092"
        pid, output, errors = self._in_background(line)
        self._services.append((pid, errors))
        deadline = time.monotonic() + _PATIENCE_S
        while not _LISTENS.search(said := output.read_text() + errors.read_text()):
            if not _runs(pid) or time.monotonic() > deadline:
                raise PageError(f"$ {text}\ndoes not listen\n{said}")
            time.sleep(0.02)
        return self._back(output.read_text())

    def _interrupt(self, text: str) -> str:
        """Run a command that goes on for ever, and stop it when it has printed something."""
        pid, output, errors = self._in_background(text)
        deadline = time.monotonic() + _PATIENCE_S
        while "\n" not in output.read_text() + errors.read_text():
            if not _runs(pid) or time.monotonic() > deadline:
                raise PageError(f"$ {text}\nprinted nothing\n{errors.read_text()}{self._logs()}")
            time.sleep(0.02)
        os.killpg(pid, signal.SIGINT)
        status = int(self._say(f"wait {pid}"))
        said = self._back(output.read_text() + errors.read_text())
        if status not in _ENDED_BY_CTRL_C:
            raise PageError(f"$ {text}\nended with {status} at Ctrl-C\n{said}")
        return said

    def _in_background(self, text: str) -> tuple[int, Path, Path]:
        # The comment at the end of a line must not swallow the ampersand.
        command, output, errors = self._written(re.sub(r"\s+#.*", "", text) + " &")
        self._say(f". {command} </dev/null >{output} 2>{errors}")
        assert self._bash is not None
        return int(_ask(self._bash, "printf '%s\\n' $!")), output, errors

    def _logs(self) -> str:
        """Return the ends of the services' logs, for who reads the failure."""
        return "".join(f"\n--- a service\n{log.read_text()[-2000:]}" for _, log in self._services)


def _ask(process: subprocess.Popen[str], line: str) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()
    ready, _, _ = select.select([process.stdout], [], [], _PATIENCE_S)
    if not ready:
        raise PageError(f"no answer within {_PATIENCE_S:.0f} s: {line}")
    return process.stdout.readline().strip()


def _runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _stop(process: psutil.Process) -> None:
    try:
        process.terminate()
        process.wait(_PATIENCE_S)
    except psutil.NoSuchProcess:
        pass


def _end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
