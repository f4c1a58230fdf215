"""What tests fork from a loaded process is as what a fresh interpreter runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests import forks

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(sys.platform != "linux", reason="forks are adopted on Linux only"),
]


@pytest.fixture(params=[True, False], ids=["forked", "fresh"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """The same of a fork and of an interpreter of its own."""
    monkeypatch.setattr(forks, "may_fork", request.param)
    return bool(request.param)


@contextmanager
def keeper(directory: Path, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process that runs until it is ended; it has said that it listens."""
    command = [*forks.COMMAND, "keeper", str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options) as process:
        assert process.stdout is not None
        try:
            assert "listening on" in process.stdout.readline()
            yield process
        finally:
            process.kill()


def is_fork(process: subprocess.Popen[str]) -> bool:
    return "tests.forks" in psutil.Process(process.pid).cmdline()


def test_it_is_a_child_with_its_own_directory_environment_and_session(
    either: bool, tmp_path: Path
) -> None:
    place = {**os.environ, "MARK": "of this one", "PYTHONFAULTHANDLER": "1"}
    with keeper(tmp_path / "k", cwd=tmp_path, env=place, start_new_session=True) as process:
        seen = psutil.Process(process.pid)
        assert (is_fork(process), seen.ppid(), Path(seen.cwd())) == (either, os.getpid(), tmp_path)
        assert os.getsid(process.pid) == process.pid != os.getsid(0)
        assert {Path(f"/proc/{process.pid}/fd/{number}").exists() for number in range(3)} == {True}
        assert process.poll() is None
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_heeds_signals_and_is_gone(either: bool, tmp_path: Path, number: int) -> None:
    with keeper(tmp_path / "k") as process:
        assert is_fork(process) is either
        process.send_signal(number)
        assert process.wait(60) == 0
    assert not psutil.pid_exists(process.pid)


@pytest.mark.parametrize(
    ("words", "code"), [(["--version"], 0), (["topic", "nonsense"], 2), (["log", "dump"], 2)]
)
def test_it_says_and_answers_the_same(
    words: list[str], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = []
    for may in (True, False):
        monkeypatch.setattr(forks, "may_fork", may)
        done = subprocess.run(
            [*forks.COMMAND, *words], capture_output=True, text=True, check=False, timeout=60
        )
        ended.append((done.returncode, done.stdout, done.stderr))
    assert ended[0] == ended[1]
    assert ended[0][0] == code


def test_it_reads_what_is_piped_to_it(either: bool) -> None:
    """Nobody listens there: the lines are read, and not written."""
    command = [*forks.COMMAND, "produce", "t", "-b", "127.0.0.1:1", "--timeout", "1s"]
    done = subprocess.run(
        command, input="a line\n", capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr


@pytest.mark.parametrize("name", ["MILLSTREAM_KERNEL", "PYTHONWARNINGS", "LC_ALL"])
def test_one_that_would_load_otherwise_has_its_own_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(forks, "may_fork", True)
    with keeper(tmp_path / "k", env={**os.environ, name: "C"}) as process:
        assert not is_fork(process)
    with keeper(tmp_path / "k") as process:
        assert is_fork(process)


@pytest.mark.own_interpreter
def test_the_marker_gives_a_test_its_own(tmp_path: Path) -> None:
    with keeper(tmp_path / "k") as process:
        assert not is_fork(process)
