from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from millstream.platform import end_with_parent
from millstream.server import supervisor as supervisor_module
from millstream.server.supervisor import (
    MAX_PAUSE_S,
    STEADY_S,
    Program,
    Restarts,
    StartFailedError,
    Supervisor,
)


def test_pauses_double_and_begin_anew_after_a_steady_run() -> None:
    restarts = Restarts()
    assert [restarts.after(0.1) for _ in range(9)] == [0, 0.5, 1, 2, 4, 8, 16, 30, MAX_PAUSE_S]
    assert restarts.after(STEADY_S) == 0
    assert restarts.after(1) == 0.5


class Lines:
    """An outlet that keeps what it is given."""

    def __init__(self, on_line: Callable[[str], None] = lambda _: None) -> None:
        self.lines: list[str] = []
        self._on_line = on_line

    def write(self, text: str) -> None:
        self.lines.append(text)
        self._on_line(text)

    def flush(self) -> bool:
        return False


def script(text: str) -> Callable[[str], Sequence[str]]:
    return lambda _: [sys.executable, "-c", text]


def test_a_process_that_ends_before_all_are_ready_fails_the_start() -> None:
    waits = "print('listening on x', flush=True)\nimport time; time.sleep(60)"
    fails = (
        "import sys; sys.stderr.write('one\\nmillstream: serve: the port is taken'); sys.exit(3)"
    )
    outlet = Lines()
    supervisor = Supervisor(
        Program("keeper", script(waits)),
        [Program("broker 1", script(waits)), Program("broker 2", script(fails))],
        outlet=outlet,
        on_ready=lambda _: pytest.fail("not all are ready"),
        passes_hang_up=False,
    )
    with pytest.raises(StartFailedError, match=r"^broker 2 did not start: the port is taken$"):
        supervisor.run()
    assert "[broker 2] one\n" in outlet.lines
    assert all(not each.is_running for each in (supervisor.keeper, *supervisor.brokers))


WAITS = "print('listening on x', flush=True)\nimport time; time.sleep(60)"


def stop(_: object = None) -> None:
    signal.raise_signal(signal.SIGTERM)


@pytest.mark.slow
def test_a_process_that_cannot_be_made_again_stops_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervisor_module, "FIRST_PAUSE_S", 0.01)
    refused: list[int] = []
    is_ready = False
    real = subprocess.Popen

    def popen(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        if is_ready and len(refused) < 2:
            refused.append(1)
            if len(refused) == 1:
                raise BlockingIOError(11, "Resource temporarily unavailable")
            raise subprocess.SubprocessError("Exception occurred in preexec_fn.")
        if refused:
            stop()
        return real(*arguments, **options)

    def ready(_: Sequence[str]) -> None:
        nonlocal is_ready
        is_ready = True
        process = supervisor.brokers[0].process
        assert process is not None
        process.kill()

    monkeypatch.setattr(subprocess, "Popen", popen)
    supervisor = Supervisor(
        Program("keeper", script(WAITS)),
        [Program("broker 1", script(WAITS)), Program("broker 2", script(WAITS))],
        outlet=Lines(),
        on_ready=ready,
        passes_hang_up=False,
    )
    supervisor.run()
    assert len(refused) == 2
    assert "broker 1 cannot be started" in caplog.text


def test_a_signal_without_a_name_is_an_end_as_any(caplog: pytest.LogCaptureFixture) -> None:
    number = signal.SIGRTMIN + 5

    def ready(_: Sequence[str]) -> None:
        process = supervisor.brokers[0].process
        assert process is not None
        process.send_signal(number)

    def command(address: str) -> Sequence[str]:
        if address:  # it is started again
            stop()
        return script(WAITS)(address)

    supervisor = Supervisor(
        Program("keeper", script(WAITS)),
        [Program("broker 1", command)],
        outlet=Lines(),
        on_ready=ready,
        passes_hang_up=False,
    )
    supervisor.run()
    assert f"broker 1 was ended by signal {int(number)}" in caplog.text


def test_a_hang_up_waits_for_who_is_not_ready() -> None:
    """A process that has no handler yet would end by it."""
    handles = (
        "import signal, sys, time\n"
        "sys.stderr.write('begins\\n'); sys.stderr.flush(); time.sleep(0.2)\n"
        "signal.signal(signal.SIGHUP, lambda *_: sys.stderr.write('again\\n') and None)\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
        "print('listening on x', flush=True)\n"
        "while True: time.sleep(0.01)"
    )

    def on_line(text: str) -> None:
        if "begins" in text:
            signal.raise_signal(signal.SIGHUP)
        elif "again" in text:
            stop()

    outlet = Lines(on_line)
    ready: list[object] = []
    Supervisor(
        Program("keeper", script(WAITS)),
        [Program("broker 1", script(handles))],
        outlet=outlet,
        on_ready=ready.append,
        passes_hang_up=True,
    ).run()
    assert ready == [["x"]]
    assert outlet.lines == ["[broker 1] begins\n", "[broker 1] again\n"]


def test_a_process_whose_parent_has_gone_does_not_begin() -> None:
    process = subprocess.Popen(  # the id that it looks for is its own: that is no parent's
        [sys.executable, "-c", "print('begins')"],
        stdout=subprocess.PIPE,
        preexec_fn=lambda: end_with_parent(os.getpid(), signal.SIGTERM),  # noqa: PLW1509
    )
    output, _ = process.communicate()
    assert (output, process.returncode) == (b"", 1)
