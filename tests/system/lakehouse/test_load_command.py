"""`millstream load` as a process: how it ends when it is told to."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest
from tests.broker_process import BrokerProcess
from tests.system.lakehouse.topic_site import TopicSite

from millstream.cli.main import main

pytestmark = pytest.mark.system


@pytest.fixture
def site(broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path) -> TopicSite:
    """A topic that is loaded in some thousand steps when a step is 1 kB."""
    site = TopicSite(broker.bootstrap, f"{new_topic()}-long", tmp_path)
    site.create(1)
    site.write(0, [b"%0100d" % number for number in range(20_000)])
    return site


@pytest.mark.parametrize(
    ("number", "more", "code"),
    [
        (signal.SIGINT, [], 130),
        (signal.SIGTERM, [], 143),
        (signal.SIGINT, ["--follow"], 0),
        (signal.SIGTERM, ["--follow"], 0),
    ],
)
def test_the_exit_code_tells_whether_the_end_was_reached(
    site: TopicSite, tmp_path: Path, number: signal.Signals, more: list[str], code: int
) -> None:
    words = ["load", site.topic, "--to", f"parquet:{tmp_path}/t", "--engine", "local"]
    words += ["--batch-size", "1KB", "--group", "", "-b", site.bootstrap, *more]
    with subprocess.Popen(
        [sys.executable, "-m", "millstream.cli.main", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as load:
        try:
            assert load.stderr is not None
            assert load.stderr.readline().startswith("batch 1: ")
            load.send_signal(number)
            said = load.stderr.read()
            assert load.wait(60) == code
        finally:
            load.kill()
    assert "stopping after this batch" in said
    assert ("millstream: stopped before the end" in said) == bool(code)
    assert "Traceback" not in said
    found = main(["audit", site.topic, f"parquet:{tmp_path}/t", "-b", site.bootstrap])
    assert found == 0  # what is there is whole


def test_a_load_that_follows_tells_whom_it_waits_for(tmp_path: Path) -> None:
    """And in the pauses between its attempts it does not claim that they are back."""
    with BrokerProcess(tmp_path / "broker") as broker:
        site = TopicSite(broker.bootstrap, "followed", tmp_path)
        site.create(1)
        site.write(0, [b"before"])
        words = ["load", site.topic, "--to", f"parquet:{tmp_path}/t", "--engine", "local"]
        words += ["--follow", "--freshness", "200ms", "--group", "", "-b", site.bootstrap]
        words += ["--option", "kafka.request.timeout.ms=2000"]
        with subprocess.Popen(
            [sys.executable, "-m", "millstream.cli.main", *words],
            stderr=subprocess.PIPE,
            text=True,
        ) as load:
            try:
                assert load.stderr is not None
                assert load.stderr.readline().startswith("batch 1: 1 rows")
                broker.kill()
                told = until(load.stderr, "the load restarts in 4 s")
                waiting = f"millstream: waiting for {broker.bootstrap} since "
                assert [line for line in told if line.startswith(waiting)]
                assert not [line for line in told if "going on" in line]
                broker.start()
                told = until(load.stderr, "millstream: going on after ")
                site.write(0, [b"after"])
                assert until(load.stderr, "batch 2: 1 rows")
            finally:
                load.send_signal(signal.SIGINT)
                load.wait(60)


def until(lines: IO[str], beginning: str) -> list[str]:
    """Read lines up to the one that begins so."""
    told = []
    for line in lines:
        told.append(line)
        if line.startswith(beginning):
            return told
    raise AssertionError(told)
