"""Reading input until its end, or until a signal."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from millstream.cli import interruption
from millstream.cli.interruption import StoppableInput, repeated_signals_ignored
from millstream.cli.load import StopRequest
from millstream.cli.zookeeper import stop_on_signal


@pytest.fixture
def signals() -> Iterator[None]:
    """What the process does on signals is put back afterwards."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe: what is read from and what is written to."""
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)
    os.close(writing)


def test_input_until_its_end() -> None:
    reading, writing = os.pipe()
    with StoppableInput(reading) as source:
        os.write(writing, b"one")
        assert source.read(2) == b"on"
        assert source.read(2) == b"e"
        os.close(writing)
        assert source.read(2) == b""
    assert source.exit_code == 0
    os.close(reading)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait_for_input(pipe: tuple[int, int], number: signal.Signals) -> None:
    reading, _ = pipe
    before = signal.getsignal(number)
    with StoppableInput(reading) as source:
        threading.Timer(0.05, os.kill, (os.getpid(), number)).start()
        assert source.read(10) == b""
        assert source.exit_code == 128 + number
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert signal.getsignal(number) is before


def test_a_signal_between_two_reads_leaves_what_was_read(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    with StoppableInput(reading) as source:
        os.write(writing, b"one")
        data = source.read(10)
        signal.raise_signal(signal.SIGTERM)
        assert data == b"one"
        os.write(writing, b"two")
        assert source.read(10) == b""


def test_a_signal_that_is_switched_off_stays_so(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with StoppableInput(reading) as source:
            signal.raise_signal(signal.SIGINT)
            os.write(writing, b"one")
            assert source.read(10) == b"one"
        assert source.exit_code == 0
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_second_signal_does_not_wait(signals: None) -> None:
    stopped = stop_on_signal()
    signal.raise_signal(signal.SIGTERM)
    assert stopped.is_set()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_load_knows_by_which_signal_it_was_stopped(
    signals: None, capsys: pytest.CaptureFixture[str]
) -> None:
    should_stop = StopRequest()
    assert not should_stop()
    signal.raise_signal(signal.SIGTERM)
    assert should_stop()
    assert should_stop.exit_code == 143
    assert "again to stop now" in capsys.readouterr().err
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
def test_a_signal_that_is_sent_twice_leaves_the_end_of_a_block_alone(
    signals: None,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    raised: type[BaseException],
) -> None:
    now = 0.0
    monkeypatch.setattr(interruption.time, "monotonic", lambda: now)
    ended = []
    with pytest.raises(raised), repeated_signals_ignored():  # noqa: PT012
        try:
            signal.raise_signal(number)
        finally:
            signal.raise_signal(number)
            ended.append("after the second")
            now = 5.0
            with pytest.raises(raised):
                signal.raise_signal(number)
    assert ended == ["after the second"]


def test_who_repeats_it_without_a_pause_gets_through_after_a_second(
    signals: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = [0.0]
    monkeypatch.setattr(interruption.time, "monotonic", lambda: times[-1])
    ended = 0
    with repeated_signals_ignored():
        for now in (0.0, 0.6, 1.2):
            times.append(now)
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                ended += 1
    assert ended == 2, "the one after 0.6 s is one with the first"


def test_a_signal_that_is_switched_off_ends_no_block(signals: None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with repeated_signals_ignored():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
