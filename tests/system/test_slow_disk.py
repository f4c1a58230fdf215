"""Disks that hang: one loop owns the state, and nobody waits for a disk but who needs it.

The broker runs in this process, over files whose flushes and reads stop at a gate. What is asked
while the gate is closed is answered, or not, before it opens: no test here measures a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.slow_files import SlowFiles
from tests.system.group_story import wait_until
from tests.system.wire import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    Wire,
    create_topic,
    fetch,
    fetch_request,
    offset_for,
    produce,
    produce_request,
    read_all,
    read_batches,
)

from millstream.config.broker import BrokerConfig
from millstream.model.errors import ErrorCode
from millstream.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from millstream.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from millstream.protocol.messages.fetch import FetchResponse, PartitionData
from millstream.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from millstream.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from millstream.protocol.messages.metadata import MetadataRequest, MetadataResponse
from millstream.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from millstream.records.batch import iter_batches
from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.server.broker import Broker
from millstream.storage.environment import LogEnvironment

pytestmark = pytest.mark.system

QUICK = {"flush.policy": "os"}


class Gate:
    """A place where a thread waits while the gate is closed."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        self.passed: list[str] = []
        self.waiting = 0

    def close(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def pass_through(self, path: str) -> None:
        self.waiting += 1
        self._open.wait(60)
        self.waiting -= 1
        self.passed.append(path)


class LocalBroker:
    """A broker on a thread of this process, over files that can be slow."""

    def __init__(self, directories: list[Path], settings: Mapping[str, str]) -> None:
        self.files = SlowFiles()
        self.flushes = Gate()
        self.reads = Gate()
        self.files.on_sync = self.flushes.pass_through
        self.files.on_read_ahead = self.reads.pass_through
        self.ended = threading.Event()
        self._loop = asyncio.new_event_loop()
        config = {
            "log.dirs": ",".join(map(str, directories)),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.cleaner.enable": "false",
            **settings,
        }
        environment = LogEnvironment(file_system=self.files)
        self._broker = Broker(
            BrokerConfig(config), self._loop, on_fatal=self._end, environment=environment
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._stopped = False
        self._started = threading.Event()

    def start(self) -> None:
        self._thread.start()
        assert self._started.wait(30)

    def _run(self) -> None:
        try:
            self._broker.start()
            self._started.set()
            while not self._stopped:
                self._loop.run_forever()
        finally:
            self._broker.stop()
            self._loop.close()
            self.ended.set()

    def _end(self) -> None:
        self._stopped = True
        self._loop.call_soon_threadsafe(self._loop.stop)

    def stop(self) -> None:
        self.flushes.open()
        self.reads.open()
        if not self.ended.is_set():
            self._end()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def connect(self) -> Wire:
        return Wire(*self._broker.bound)


@contextlib.contextmanager
def local_broker(
    *directories: Path, settings: Mapping[str, str] | None = None
) -> Iterator[LocalBroker]:
    broker = LocalBroker(list(directories), settings or {})
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with local_broker(tmp_path) as running:
        yield running


def batch(*values: bytes, **options: int) -> bytes:
    builder = BatchBuilder(BatchOptions(**options))  # type: ignore[arg-type]
    for value in values:
        builder.append(time.time_ns() // 1_000_000, None, value)
    return builder.build()


def produced(wire: Wire) -> PartitionProduceResponse:
    _, response = wire.receive()
    assert isinstance(response, ProduceResponse)
    return response.responses[0].partition_responses[0]


def fetched(wire: Wire) -> PartitionData:
    _, response = wire.receive()
    assert isinstance(response, FetchResponse)
    return response.responses[0].partitions[0]


def values(data: PartitionData) -> list[bytes | None]:
    found: list[bytes | None] = []
    for one in iter_batches(memoryview(bytes(data.records))):  # type: ignore[arg-type]
        one.ensure_valid()
        found.append(bytes(one.records_view))
    return found


def ask_about_everything(broker: LocalBroker, quick_topic: str) -> None:
    """Questions that need no slow disk, each on a connection of its own."""
    with broker.connect() as wire:
        assert wire.call(ApiVersionsRequest(), 2, ApiVersionsResponse).error_code == 0
    with broker.connect() as wire:
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        assert wire.call(request, 9, MetadataResponse).brokers
    with broker.connect() as wire:
        identity = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        assert wire.call(identity, 4, InitProducerIdResponse).error_code == 0
    with broker.connect() as wire:
        end = offset_for(wire, quick_topic, 0, -1).offset
        assert produce(wire, quick_topic, 0, batch(b"meanwhile")).base_offset == end
        assert fetch(wire, quick_topic, 0, end).high_watermark == end + 1


# Flushes


def test_others_are_served_while_a_flush_hangs(broker: LocalBroker) -> None:
    with broker.connect() as producer, broker.connect() as reader:
        create_topic(producer, "safe", 2)
        create_topic(producer, "quick", 1, QUICK)
        assert produce(producer, "safe", 0, batch(b"before")).base_offset == 0
        broker.flushes.close()
        producer.send(produce_request("safe", {0: batch(b"slow")}), PRODUCE_VERSION)
        reader.send(fetch_request("safe", {0: 1}, max_wait_ms=60_000), FETCH_VERSION)
        wait_until(lambda: broker.flushes.waiting >= 1)
        for _ in range(3):
            ask_about_everything(broker, "quick")
        with broker.connect() as other:
            create_topic(other, "new", 3, QUICK)
            known = fetch(other, "safe", 0, 0)
            # What is not flushed is not committed: nobody sees it yet.
            assert known.high_watermark == 1
            assert len(values(known)) == 1
        assert not producer.has_answer()
        assert not reader.has_answer()
        broker.flushes.open()
        assert produced(producer).base_offset == 1
        assert fetched(reader).high_watermark == 2


def test_writes_that_come_while_a_flush_hangs_share_the_next_one(broker: LocalBroker) -> None:
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(broker.connect()) for _ in range(6)]
        create_topic(wires[0], "safe", 1)
        produce(wires[0], "safe", 0, batch(b"before"))
        broker.flushes.close()
        wires[0].send(produce_request("safe", {0: batch(b"first")}), PRODUCE_VERSION)
        wait_until(lambda: broker.flushes.waiting >= 1)
        flushed_before = len(broker.flushes.passed)
        for number in range(50):
            request = produce_request("safe", {0: batch(b"%d" % number)})
            wires[1 + number % 5].send(request, PRODUCE_VERSION)
        log = next(log for log in broker._broker._core.log_manager.logs())
        wait_until(lambda: log.log_end_offset == 52)
        broker.flushes.open()
        answers = [produced(wires[0]), *(produced(wires[1 + n % 5]) for n in range(50))]
        assert sorted(answer.base_offset for answer in answers) == list(range(1, 52))
        assert not any(answer.error_code for answer in answers)
        assert len(broker.flushes.passed) - flushed_before == 2


def test_who_gives_up_and_repeats_finds_it_there_once(broker: LocalBroker) -> None:
    """A batch that is written and not flushed is no success, not even for one that repeats it."""
    data = batch(b"once", producer_id=77, producer_epoch=0, base_sequence=0)
    with broker.connect() as wire:
        create_topic(wire, "safe", 1)
        broker.flushes.close()
        with broker.connect() as impatient:
            impatient.send(produce_request("safe", {0: data}), PRODUCE_VERSION)
            wait_until(lambda: broker.flushes.waiting >= 1)
        wire.send(produce_request("safe", {0: data}), PRODUCE_VERSION)
        with broker.connect() as other:
            for _ in range(3):
                assert offset_for(other, "safe", 0, -1).offset == 0
        assert not wire.has_answer()
        broker.flushes.open()
        answer = produced(wire)
        assert (answer.error_code, answer.base_offset) == (0, 0)
        assert [record.value for record in read_all(wire, "safe", 0)] == [b"once"]


def test_a_disk_that_hangs_holds_up_no_other_disk(tmp_path: Path) -> None:
    paths = [tmp_path / "first", tmp_path / "second"]
    with local_broker(*paths) as broker, broker.connect() as slow, broker.connect() as fast:
        create_topic(slow, "t", 2)
        (hanging,) = [n for n in range(2) if (paths[0] / f"t-{n}").exists()]

        def hang(path: str) -> None:
            if path.startswith(str(paths[0])):
                broker.flushes.pass_through(path)

        broker.files.on_sync = hang
        broker.flushes.close()
        slow.send(produce_request("t", {hanging: batch(b"slow")}), PRODUCE_VERSION)
        wait_until(lambda: broker.flushes.waiting >= 1)
        for number in range(20):
            assert produce(fast, "t", 1 - hanging, batch(b"fast")).base_offset == number
        assert not slow.has_answer()
        broker.flushes.open()
        assert produced(slow).base_offset == 0


# Reads

COLD_SETTINGS = {"internal.segment.bytes": "400000", "index.interval.bytes": "1000", **QUICK}
COLD_BATCHES = 200
LOOK_UP_VERSION = 7


def fill_and_drop(broker: LocalBroker, wire: Wire, topic: str) -> list[bytes]:
    """Fill a topic's two partitions, and put nothing of it in memory; return the batches' bytes."""
    create_topic(wire, topic, 2, COLD_SETTINGS)
    chance = random.Random(9)
    contents = []
    for _ in range(COLD_BATCHES):
        data = batch(chance.randbytes(8_000))
        contents.append(data[61:])
        for partition in range(2):
            assert produce(wire, topic, partition, data).error_code == 0
    broker.files.drop_cache()
    return contents


def test_others_are_served_while_a_cold_read_hangs(broker: LocalBroker) -> None:
    """A reader far behind waits for the disk; the loop does not, not even for an index."""
    with broker.connect() as wire, broker.connect() as behind:
        contents = fill_and_drop(broker, wire, "cold")
        create_topic(wire, "quick", 1, QUICK)
        produce(wire, "quick", 0, batch(b"warm"))
        broker.reads.close()
        behind.send(fetch_request("cold", {0: 3, 1: 100}), FETCH_VERSION)
        wait_until(lambda: broker.reads.waiting == 1)
        for _ in range(3):
            ask_about_everything(broker, "quick")
        assert not behind.has_answer()
        assert broker.files.stalls == []
        broker.reads.open()
        _, response = behind.receive()
        assert isinstance(response, FetchResponse)
        for data, first in zip(response.responses[0].partitions, (3, 100), strict=True):
            assert data.error_code == 0
            found = values(data)
            assert len(found) > 20
            assert found == contents[first : first + len(found)]
        assert broker.files.stalls == []


def test_a_whole_log_is_read_from_the_disk_without_a_stall(broker: LocalBroker) -> None:
    with broker.connect() as wire:
        contents = fill_and_drop(broker, wire, "cold")
        found: list[bytes | None] = []
        while len(found) < COLD_BATCHES:
            wire.send(fetch_request("cold", {0: len(found)}, max_bytes=70_000), FETCH_VERSION)
            found += values(fetched(wire))
        assert found == contents
        assert broker.files.stalls == []
        assert len(broker.reads.passed) > 5


def test_others_are_served_while_a_look_up_by_time_hangs(tmp_path: Path) -> None:
    """A log that was opened anew is searched by time: were the loop to read it, it would hang."""
    with local_broker(tmp_path) as broker, broker.connect() as wire:
        fill_and_drop(broker, wire, "cold")
        create_topic(wire, "quick", 1, QUICK)
        produce(wire, "quick", 0, batch(b"warm"))
    with local_broker(tmp_path) as broker, broker.connect() as wire, broker.connect() as behind:
        last = offset_for(wire, "cold", 0, -1).offset - 1
        broker.files.drop_cache()

        def hang(path: str) -> None:
            if "/cold-" in path:
                broker.reads.pass_through(path)

        broker.files.on_stall = hang
        broker.reads.close()
        partition = ListOffsetsPartition(partition_index=0, timestamp=-3)
        behind.send(
            ListOffsetsRequest(
                replica_id=-1, topics=[ListOffsetsTopic(name="cold", partitions=[partition])]
            ),
            LOOK_UP_VERSION,
        )
        wait_until(lambda: broker.reads.waiting == 1)
        for _ in range(3):
            ask_about_everything(broker, "quick")
        assert not behind.has_answer()
        broker.reads.open()
        _, response = behind.receive()
        assert isinstance(response, ListOffsetsResponse)
        answer = response.topics[0].partitions[0]
        assert answer.error_code == 0
        assert 0 < answer.offset <= last


def test_a_topic_that_goes_while_it_is_read(broker: LocalBroker) -> None:
    with broker.connect() as wire, broker.connect() as behind:
        fill_and_drop(broker, wire, "cold")
        broker.reads.close()
        behind.send(fetch_request("cold", {0: 0}), FETCH_VERSION)
        wait_until(lambda: broker.reads.waiting == 1)
        delete = DeleteTopicsRequest(topic_names=["cold"], timeout_ms=10_000)
        deleted = wire.call(delete, 5, DeleteTopicsResponse)
        assert deleted.responses[0].error_code == 0
        broker.reads.open()
        assert fetched(behind).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code


def test_a_peer_that_goes_while_it_is_read_for(broker: LocalBroker) -> None:
    with broker.connect() as wire:
        contents = fill_and_drop(broker, wire, "cold")
        broker.reads.close()
        with broker.connect() as behind:
            behind.send(fetch_request("cold", {0: 0}), FETCH_VERSION)
            wait_until(lambda: broker.reads.waiting == 1)
        broker.reads.open()
        wire.send(fetch_request("cold", {0: 0}), FETCH_VERSION)
        assert values(fetched(wire))[0] == contents[0]


def test_a_disk_that_cannot_be_read_goes_offline(tmp_path: Path) -> None:
    paths = [tmp_path / "first", tmp_path / "second"]
    with local_broker(*paths) as broker, broker.connect() as wire:
        fill_and_drop(broker, wire, "cold")
        (failing,) = [n for n in range(2) if (paths[1] / f"cold-{n}").exists()]

        def fail(path: str) -> None:
            if path.startswith(str(paths[1])):
                raise OSError(5, "Input/output error", path)

        broker.files.on_read_ahead = fail
        wire.send(fetch_request("cold", {0: 0, 1: 0}), FETCH_VERSION)
        _, response = wire.receive()
        assert isinstance(response, FetchResponse)
        codes = {each.partition_index: each.error_code for each in response.responses[0].partitions}
        assert codes == {failing: ErrorCode.KAFKA_STORAGE_ERROR.code, 1 - failing: 0}
        assert not broker.ended.is_set()


def test_what_the_system_has_dropped_from_memory_is_served(tmp_path: Path) -> None:
    """The same with the real page cache, as far as this file system lets go of it."""
    with BrokerProcess(tmp_path) as process, Wire(process.host, process.port) as wire:
        create_topic(wire, "t", 1, {"segment.bytes": "2097152"})
        contents = []
        chance = random.Random(4)
        for _ in range(80):
            data = batch(chance.randbytes(100_000))
            contents.append(data[61:])
            assert produce(wire, "t", 0, data).error_code == 0
        for path in (process.data_directory / "t-0").iterdir():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        found = [bytes(one.records_view) for one in read_batches(wire, "t", 0)]
        assert found == contents
