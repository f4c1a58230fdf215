"""Every client reads across thousands of tiny segments: none skips or repeats a record at a roll.

A segment is named by the offset of the first record that it will receive. A name that is wrong by
one would show at each of these rolls.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition
from tests.broker_process import BrokerProcess
from tests.interop.clients.carriers import run_kcat
from tests.interop.clients.patience import ASK_AGAIN_MS
from tests.interop.kafka_cluster import JavaTool, KafkaUnavailableError, kafka_jars
from tests.system.wire import PRODUCE_VERSION, Wire, create_topic, produce_request

from millstream.protocol.messages.produce import ProduceResponse
from millstream.records.builder import BatchBuilder

pytestmark = [pytest.mark.interop, pytest.mark.slow]

SEGMENTS = 2_500
CONFIGS = {
    "segment.ms": "1",
    "segment.index.bytes": "64",
    "flush.policy": "os",
    "retention.ms": "-1",
}
START_MS = 1_700_000_000_000
IN_FLIGHT = 50


def values() -> list[bytes]:
    """One to three records for each segment."""
    return [b"%d.%d" % (n, k) for n in range(SEGMENTS) for k in range(n % 3 + 1)]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose topic ``t`` rolled at every batch."""
    with BrokerProcess(tmp_path_factory.mktemp("tiny")) as broker:
        with Wire(broker.host, broker.port) as wire:
            create_topic(wire, "t", 1, CONFIGS)
            waiting = 0
            for number in range(SEGMENTS):
                builder = BatchBuilder()
                for k in range(number % 3 + 1):
                    # Each batch is older than segment.ms against the one before.
                    builder.append(START_MS + 10 * number, None, b"%d.%d" % (number, k))
                wire.send(produce_request("t", {0: builder.build()}), PRODUCE_VERSION)
                waiting += 1
                while waiting > (IN_FLIGHT if number + 1 < SEGMENTS else 0):
                    _, response = wire.receive()
                    assert isinstance(response, ProduceResponse)
                    (answer,) = response.responses[0].partition_responses
                    assert answer.error_code == 0
                    waiting -= 1
        yield broker


def test_there_are_as_many_segments(tiny: BrokerProcess) -> None:
    names = sorted(Path(tiny.data_directory, "t-0").glob("*.log"))
    assert len(names) == SEGMENTS
    starts = [0]
    for number in range(SEGMENTS - 1):
        starts.append(starts[-1] + number % 3 + 1)
    assert [int(name.stem) for name in names] == starts


@pytest.mark.long
def test_confluent_kafka(tiny: BrokerProcess) -> None:
    consumer = Consumer(
        {"bootstrap.servers": tiny.bootstrap, "group.id": "g", "enable.partition.eof": True}
    )
    consumer.assign([ConfluentPartition("t", 0, 0)])
    found: list[tuple[int, bytes]] = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        found.append((message.offset(), message.value()))
    consumer.close()
    assert found == list(enumerate(values()))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_kafka_python(tiny: BrokerProcess) -> None:
    from kafka import KafkaConsumer
    from kafka import TopicPartition as PythonPartition

    consumer = KafkaConsumer(
        bootstrap_servers=tiny.bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        metadata_max_age_ms=ASK_AGAIN_MS,
    )
    place, wanted = PythonPartition("t", 0), values()
    consumer.assign([place])
    found: list[tuple[int, bytes]] = []
    while len(found) < len(wanted):
        for record in consumer.poll(timeout_ms=30_000).get(place, []):
            found.append((record.offset, record.value))
    consumer.close()
    assert found == list(enumerate(wanted))


def test_aiokafka(tiny: BrokerProcess) -> None:
    async def read(count: int) -> list[tuple[int, bytes]]:
        consumer = AIOKafkaConsumer(bootstrap_servers=tiny.bootstrap, enable_auto_commit=False)
        await consumer.start()
        place = AioPartition("t", 0)
        consumer.assign([place])
        consumer.seek(place, 0)
        found: list[tuple[int, bytes]] = []
        while len(found) < count:
            for record in (await consumer.getmany(place, timeout_ms=30_000)).get(place, []):
                found.append((record.offset, record.value))
        await consumer.stop()
        return found

    wanted = values()
    assert asyncio.run(read(len(wanted))) == list(enumerate(wanted))


def test_kcat(tiny: BrokerProcess) -> None:
    found = run_kcat(
        *("-C", "-q", "-b", tiny.bootstrap, "-t", "t", "-p", "0", "-o", "beginning", "-e"),
        *("-f", "%o %s\n"),
    )
    assert found == b"".join(b"%d %s\n" % pair for pair in enumerate(values()))


@pytest.mark.long
def test_our_own_command(tiny: BrokerProcess) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "millstream.cli.main", "consume", "t"),
            *("--offset", "beginning", "--exit", "--bootstrap-server", tiny.bootstrap),
        ],
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines() == values()


def test_every_record_by_its_own_offset_and_time(tiny: BrokerProcess) -> None:
    """Starting at, before and after each of some rolls."""
    consumer = Consumer({"bootstrap.servers": tiny.bootstrap, "group.id": "g"})
    wanted = values()
    chosen = [*range(8), *range(1_000, 1_008), len(wanted) - 1]
    for offset in chosen:
        consumer.assign([ConfluentPartition("t", 0, offset)])
        message = consumer.poll(30)
        assert message is not None
        assert (message.offset(), message.value()) == (offset, wanted[offset])
    for number in (0, 1, 2, 1_000, SEGMENTS - 1):
        (place,) = consumer.offsets_for_times(
            [ConfluentPartition("t", 0, START_MS + 10 * number)], timeout=30
        )
        assert wanted[place.offset] == b"%d.0" % number
    consumer.close()


@pytest.mark.java
@pytest.mark.timeout(180)
def test_kafkas_console_consumer(tiny: BrokerProcess) -> None:
    try:
        tool = JavaTool(kafka_jars())
    except KafkaUnavailableError as missing:
        pytest.skip(str(missing))
    wanted = values()
    done = tool.run(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", tiny.bootstrap, "--topic", "t", "--partition", "0"),
        *("--offset", "earliest", "--max-messages", str(len(wanted)), "--timeout-ms", "60000"),
        *("--formatter-property", "print.offset=true"),
    )
    expected = [f"Offset:{offset}\t{value.decode()}" for offset, value in enumerate(wanted)]
    assert done.stdout.splitlines() == expected, done.stderr


def test_after_recovery(tiny: BrokerProcess) -> None:
    """The last test: a kill, and all segments are read by recovery."""
    tiny.kill()
    tiny.start()
    found = run_kcat(
        *("-C", "-q", "-b", tiny.bootstrap, "-t", "t", "-p", "0", "-e", "-J", "-o", "beginning")
    )
    rows = [json.loads(line) for line in found.splitlines()]
    assert [(row["offset"], row["payload"].encode()) for row in rows] == list(enumerate(values()))
