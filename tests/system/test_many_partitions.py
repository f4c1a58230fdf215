"""Ten thousand partitions: created, used, found again after a stop and after kill -9.

The times and the memory are printed (``pytest -s``) for comparison with the bench, and not judged.
"""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest
from tests.broker_process import BrokerProcess
from tests.system.wire import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    Wire,
    create_topics,
    fetch_request,
    produce_request,
)

from millstream.protocol.messages.fetch import FetchResponse
from millstream.protocol.messages.metadata import MetadataRequest, MetadataResponse
from millstream.protocol.messages.produce import ProduceResponse
from millstream.records.batch import iter_batches
from millstream.records.builder import BatchBuilder
from millstream.records.record import read_records

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(300)]

TOPICS = [f"topic-{number}" for number in range(20)]
PARTITIONS = 500


def write_everywhere(wire: Wire, round_: int) -> None:
    """Write one record to every partition, a topic to a request."""
    for topic in TOPICS:
        batches = {}
        for partition in range(PARTITIONS):
            builder = BatchBuilder()
            value = f"{topic} {partition} {round_}".encode()
            builder.append(time.time_ns() // 1_000_000, None, value)
            batches[partition] = builder.build()
        request = produce_request(topic, batches)
        response = wire.call(request, PRODUCE_VERSION, ProduceResponse)
        for answer in response.responses[0].partition_responses:
            assert (answer.error_code, answer.base_offset) == (0, round_)


def check_everywhere(wire: Wire, rounds: int) -> None:
    """Every partition has a leader and exactly what was written to it."""
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    told = wire.call(request, 9, MetadataResponse)
    leaders = {
        topic.name: [each.leader_id for each in topic.partitions]
        for topic in told.topics
        if topic.error_code == 0
    }
    assert leaders == {topic: [1] * PARTITIONS for topic in TOPICS}
    for topic in TOPICS:
        wanted = fetch_request(topic, dict.fromkeys(range(PARTITIONS), 0))
        response = wire.call(wanted, FETCH_VERSION, FetchResponse)
        for data in response.responses[0].partitions:
            assert (data.error_code, data.high_watermark) == (0, rounds)
            batches = iter_batches(memoryview(bytes(data.records)))  # type: ignore[arg-type]
            assert [record.value for batch in batches for record in read_records(batch)] == [
                f"{topic} {data.partition_index} {round_}".encode() for round_ in range(rounds)
            ]


class Report:
    """Prints what each step took."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._begun = time.monotonic()

    def step(self, name: str) -> None:
        now = time.monotonic()
        process = psutil.Process(self._broker.process.pid)
        megabytes = process.memory_info().rss / 1_000_000
        print(f"{name}: {now - self._begun:.2f} s, RSS {megabytes:.0f} MB, {process.num_fds()} fds")
        self._begun = time.monotonic()


@pytest.mark.long
def test_ten_thousand_partitions_are_served(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    try:
        report = Report(broker)
        with Wire(broker.host, broker.port, timeout_s=120) as wire:
            for first in range(0, len(TOPICS), 5):
                create_topics(wire, TOPICS[first : first + 5], PARTITIONS)
            report.step("\n10,000 partitions created")
            write_everywhere(wire, 0)
            report.step("a record written to each")
            check_everywhere(wire, 1)
            report.step("all of them read")
        broker.stop()
        broker.start()
        report.step("stopped and started")
        with Wire(broker.host, broker.port, timeout_s=120) as wire:
            check_everywhere(wire, 1)
            report.step("all of them read")
            write_everywhere(wire, 1)
            report.step("a record written to each")
        broker.kill()
        broker.start()
        report.step("killed and started")
        with Wire(broker.host, broker.port, timeout_s=120) as wire:
            check_everywhere(wire, 2)
            report.step("all of them read")
    finally:
        broker.stop()
