"""Replicas move between log directories of a real broker while a producer writes to them, and the
broker is killed on the way.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.broker_process import BrokerProcess
from tests.system.wire import Wire, create_topic
from tests.waiting import wait_until

from millstream.cli.main import main

pytestmark = [pytest.mark.system, pytest.mark.slow]

SETTINGS = {"log.retention.check.interval.ms": "1000"}
SEGMENTS = {"segment.bytes": str(1 << 20), "file.delete.delay.ms": "100"}


@pytest.fixture
def two(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path, SETTINGS)
    broker.data_directory = f"{tmp_path / 'one'},{tmp_path / 'two'}"  # type: ignore[assignment]
    with broker:
        with Wire(broker.host, broker.port) as wire:
            create_topic(wire, "t", 1, SEGMENTS)
        yield broker


class Load:
    """An idempotent producer that never stops, and what it has been promised."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 60_000,
            }
        )
        self.acknowledged: list[tuple[int, bytes]] = []
        self.failures: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            value = b"%08d" % number * 100
            self._producer.produce("t", value, partition=0, on_delivery=self._delivered)
            number += 1
            self._producer.poll(0)
            if number % 50 == 0:
                time.sleep(0.005)
        self._producer.flush(60)

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.failures.append(str(error))
        else:
            self.acknowledged.append((message.offset(), message.value()))  # type: ignore[attr-defined]

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()


def everything(broker: BrokerProcess) -> list[tuple[int, bytes]]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
    try:
        place = TopicPartition("t", 0, 0)
        _, end = consumer.get_watermark_offsets(place, timeout=30)
        consumer.assign([place])
        found: list[tuple[int, bytes]] = []
        while len(found) < end:
            for message in consumer.consume(5000, timeout=0.3):
                assert message.error() is None
                found.append((message.offset(), message.value()))
        return found
    finally:
        consumer.close()


def holds(root: Path, name: str) -> bool:
    return (root / name / "t-0").exists()


def test_a_replica_moves_under_load(
    two: BrokerProcess,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MILLSTREAM_BOOTSTRAP_SERVERS", two.bootstrap)
    load = Load(two)
    with load.running():
        wait_until(lambda: bool(load.acknowledged), "a first write")
        for target in ("two", "one", "two"):
            if holds(tmp_path, target):
                continue
            before = len(load.acknowledged)
            assert main(["log-dirs", "move", "t", str(tmp_path / target)]) == 0
            assert holds(tmp_path, target)
            wait_until(lambda before=before: len(load.acknowledged) > before, "writes go on")  # type: ignore[misc]
    assert load.failures == []
    assert everything(two) == load.acknowledged
    capsys.readouterr()
    assert main(["log-dirs", "describe", "t", "--json"]) == 0
    shown = {Path(each["directory"]).name: each for each in json.loads(capsys.readouterr().out)}
    assert [row["topic"] for row in shown["two"]["replicas"]] == ["t"]
    assert shown["one"]["replicas"] == []
    assert main(["log-dirs", "move", "t", "/nowhere"]) == 1
    assert "the broker has no such log directory" in capsys.readouterr().err
    two.stop()
    two.start()
    assert everything(two) == load.acknowledged


@pytest.mark.parametrize("kill_after_s", [0.02, 0.2])
def test_a_kill_during_a_move(
    two: BrokerProcess, tmp_path: Path, kill_after_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLSTREAM_BOOTSTRAP_SERVERS", two.bootstrap)
    source, target = ("one", "two") if holds(tmp_path, "one") else ("two", "one")
    load = Load(two)
    with load.running():
        time.sleep(0.7)
        assert main(["log-dirs", "move", "--no-wait", "t", str(tmp_path / target)]) == 0
        time.sleep(kill_after_s)
        two.kill()
        two.start()
        deadline = time.monotonic() + 30
        while not holds(tmp_path, target) or holds(tmp_path, source):
            assert time.monotonic() < deadline, two.log[-2000:]
            time.sleep(0.05)
        time.sleep(0.3)
    assert load.failures == []
    found = everything(two)
    assert [offset for offset, _ in found] == list(range(len(found)))
    assert set(load.acknowledged) <= set(found)
    values = [value for _, value in found]
    assert values == sorted(set(values)), "in order, and none twice"


def test_a_cordoned_directory_takes_nothing_new(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.data_directory = f"{tmp_path / 'one'},{tmp_path / 'two'}"  # type: ignore[assignment]
    broker.settings["cordoned.log.dirs"] = str(tmp_path / "one")
    with broker, Wire(broker.host, broker.port) as wire:
        create_topic(wire, "t", 4, {})
        assert [(tmp_path / "two" / f"t-{n}").exists() for n in range(4)] == [True] * 4
