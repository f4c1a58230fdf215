"""`millstream check history` against a broker that is killed, and one that loses records."""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import hanging_transaction as hanging
from tests.broker_process import BrokerProcess

from millstream.cli.main import main

pytestmark = pytest.mark.system

SETTINGS = hanging.SETTINGS | {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
}


class Steered:
    """A broker that a shell command breaks: it asks by one file and waits for another."""

    def __init__(self, broker: BrokerProcess, directory: Path) -> None:
        self.broker = broker
        self._asked, self._done = directory / "asked", directory / "done"
        self._stopped = threading.Event()
        self.times = 0
        self.at_stop: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def command(self) -> str:
        asked, done = shlex.quote(str(self._asked)), shlex.quote(str(self._done))
        return f"touch {asked}; while ! test -e {done}; do sleep 0.05; done; rm {done}"

    def _run(self) -> None:
        while not self._stopped.wait(0.02):
            if self._asked.exists():
                self._asked.unlink()
                self.broker.kill()
                self.at_stop()
                self.broker.start()
                self.times += 1
                self._done.touch()

    def __enter__(self) -> Steered:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(60)


@pytest.fixture
def steered(tmp_path: Path) -> Iterator[Steered]:
    with BrokerProcess(tmp_path / "broker", SETTINGS) as broker, Steered(broker, tmp_path) as it:
        yield it


def checked(
    capsys: pytest.CaptureFixture[str], steered: Steered, tmp_path: Path, *words: str
) -> tuple[int, dict[str, Any]]:
    """Run the command with a fault; return its exit code and its report."""
    file = tmp_path / "report.json"
    code = main(
        [
            *("check", "history", "-b", steered.broker.bootstrap, "--report", str(file)),
            *("--seconds", "3", "--rate", "60", "--producers", "1", "--readers", "1"),
            *("--fault-every", "1s", "--fault", steered.command, *words),
        ]
    )
    report: dict[str, Any] = json.loads(file.read_text())
    said = capsys.readouterr()
    rows = [line.split("\t") for line in said.out.splitlines()]
    assert {row[0]: row[1] for row in rows}["acknowledged"] == str(report["acknowledged"])
    assert [row[4] for row in rows if row[0] == "fault"] == [steered.command] * steered.times
    summary = (tmp_path / "report.json.txt").read_text()
    assert summary.splitlines()[-1] == said.err.splitlines()[-1]
    assert report["ok"] is (code == 0)
    assert steered.times >= 1
    assert len(report["faults"]) == steered.times
    return code, report


@pytest.mark.parametrize("words", [(), ("--transactions",)], ids=["idempotent", "transactional"])
def test_a_broker_that_is_killed_loses_nothing(
    capsys: pytest.CaptureFixture[str], steered: Steered, tmp_path: Path, words: tuple[str, ...]
) -> None:
    code, report = checked(capsys, steered, tmp_path, *words)
    assert (code, report["examples"]) == (0, {})
    assert report["acknowledged"] > 0
    assert report["read"] >= report["acknowledged"]
    assert report["longest_gap_seconds"] > 0
    assert bool(report["transactions_committed"]) is bool(words)


def test_what_a_disk_has_lost_is_found(
    capsys: pytest.CaptureFixture[str], steered: Steered, tmp_path: Path
) -> None:
    def lose() -> None:
        """Cut the second half off the log of each partition."""
        for log in steered.broker.data_directory.glob("millstream-history-*/*.log"):
            data = log.read_bytes().rstrip(b"\0")
            log.write_bytes(data[: len(data) // 2])

    steered.at_stop = lose
    code, report = checked(capsys, steered, tmp_path)
    assert code == 1
    assert report["anomalies"]["lost"] > 0
    assert report["anomalies"]["read and then gone"] > 0
    assert any("is lost" in text for text in report["examples"]["lost"])


def test_wrong_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "history", "--acks", "2"]) == 2
    assert main(["check", "history", "--acks", "1"]) == 2
    assert "--no-idempotent" in capsys.readouterr().err
