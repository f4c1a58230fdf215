"""SIGTERM in the middle of everything: exit code 0, a clean marker, nothing acknowledged is lost.

A clean start is told from a recovery by the leader epochs, which rise only after a crash, and by
the marker that the last run left.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from tests.broker_process import BrokerProcess
from tests.system.group_story import SETTINGS, quiet, wait_until
from tests.system.wire import (
    FETCH_VERSION,
    HungUpError,
    Wire,
    create_topic,
    fetch_request,
    produce,
    read_all,
)

from millstream.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from millstream.records.builder import BatchBuilder

pytestmark = [pytest.mark.system, pytest.mark.own_interpreter]

TOPIC = "busy"
IDLE_TOPIC = "idle"
PARTITIONS = 6
ROUNDS = 2
GONE = (HungUpError, ConnectionError)
MARKER = ".kafka_cleanshutdown"


class Load:
    """Threads that use the broker until it goes away, and what was acknowledged to them."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._ended = threading.Event()
        self.acknowledged: dict[int, list[bytes]] = {index: [] for index in range(PARTITIONS)}
        self.consumed = 0
        jobs = [
            *(lambda index=index: self._write_raw(index) for index in range(PARTITIONS - 2)),
            self._write_with_client,
            self._poll,
            self._read_in_a_group,
        ]
        self._threads = [threading.Thread(target=job, daemon=True) for job in jobs]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def _write_raw(self, partition: int) -> None:
        """Write, one record at a time, until the broker hangs up."""
        number = 0
        with Wire(self._broker.host, self._broker.port) as wire, contextlib.suppress(*GONE):
            while True:
                value = b"%d of %d" % (number, partition)
                builder = BatchBuilder()
                builder.append(time.time_ns() // 1_000_000, None, value)
                answer = produce(wire, TOPIC, partition, builder.build())
                assert answer.error_code == 0
                self.acknowledged[partition].append(value)
                number += 1

    def _write_with_client(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._broker.bootstrap,
                "log_level": 0,
                "error_cb": quiet,
            }
        )
        number = 0
        while not self._ended.is_set():
            partition = PARTITIONS - 1 - number % 2

            def note(error: object, message: object, partition: int = partition) -> None:
                if error is None:
                    self.acknowledged[partition].append(message.value())  # type: ignore[attr-defined]

            with contextlib.suppress(BufferError):
                producer.produce(TOPIC, b"%d" % number, partition=partition, callback=note)
            producer.poll(0)
            time.sleep(0.001)
            number += 1
        producer.flush(5)

    def _poll(self) -> None:
        """Wait for records where none are written, until the broker hangs up."""
        with Wire(self._broker.host, self._broker.port) as wire, contextlib.suppress(*GONE):
            while True:
                wire.send(fetch_request(IDLE_TOPIC, {0: 0}, max_wait_ms=20_000), FETCH_VERSION)
                wire.receive()

    def _read_in_a_group(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._broker.bootstrap,
                "group.id": "shutdown",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 100,
                "session.timeout.ms": 6_000,
                "log_level": 0,
                "error_cb": quiet,
            }
        )
        consumer.subscribe([TOPIC])
        while not self._ended.is_set():
            with contextlib.suppress(KafkaException):
                self.consumed += len(consumer.consume(500, 0.1))
        consumer.close()


def leader_epochs(broker: BrokerProcess) -> list[int]:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=TOPIC), MetadataRequestTopic(name="__consumer_offsets")],
        allow_auto_topic_creation=False,
    )
    with Wire(broker.host, broker.port) as wire:
        response = wire.call(request, 9, MetadataResponse)
    return [each.leader_epoch for topic in response.topics for each in topic.partitions]


@pytest.mark.parametrize("policy", ["ack", "os"])
def test_sigterm_under_load_is_a_clean_stop(tmp_path: Path, policy: str) -> None:
    broker = BrokerProcess(tmp_path, SETTINGS | {"log.flush.policy": policy})
    broker.start()
    try:
        with Wire(broker.host, broker.port) as wire:
            create_topic(wire, TOPIC, PARTITIONS, {"internal.segment.bytes": "20000"})
            create_topic(wire, IDLE_TOPIC, 1)
        kept: dict[int, list[bytes]] = {index: [] for index in range(PARTITIONS)}
        for _ in range(ROUNDS):
            load = Load(broker)
            load.start()
            wait_until(lambda load=load: load.count > 1_000 and load.consumed > 0)  # type: ignore[misc]
            epochs = leader_epochs(broker)
            assert not (broker.data_directory / MARKER).exists()
            broker.stop()  # fails unless the exit code is 0
            assert (broker.data_directory / MARKER).exists()
            broker.start()
            assert leader_epochs(broker) == epochs
            load.end()
            with Wire(broker.host, broker.port) as wire:
                for partition, values in load.acknowledged.items():
                    kept[partition] += values
                    found = [record.value for record in read_all(wire, TOPIC, partition)]
                    missing = set(kept[partition]) - set(found)
                    assert not missing
        assert "Traceback" not in broker.log
    finally:
        broker.stop()


def test_a_second_signal_changes_nothing(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    with Wire(broker.host, broker.port) as wire:
        create_topic(wire, TOPIC, 200)
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
        broker.process.send_signal(number)
    assert broker.process.wait(30) == 0
    broker.kill()
    assert (broker.data_directory / MARKER).exists()
    assert "Traceback" not in broker.log
