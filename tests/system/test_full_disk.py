"""Disks that run full or fail under a running broker.

The room on a disk is played by the limit on the size of files (``RLIMIT_FSIZE``): set on the
running process, a write beyond it comes back short and the next one fails, as on a full disk. A
directory that cannot be used at start is played by a file in its place.
"""

from __future__ import annotations

import contextlib
import resource
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.system.wire import (
    PRODUCE_VERSION,
    HungUpError,
    Wire,
    create_topic,
    fetch,
    produce,
    produce_request,
    read_all,
)

from millstream.model.errors import ErrorCode
from millstream.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from millstream.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from millstream.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from millstream.protocol.messages.produce import ProduceResponse
from millstream.records.builder import BatchBuilder

pytestmark = pytest.mark.system

STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR.code
UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
SMALL_INDEXES = {"segment.index.bytes": "4096"}
VALUE_BYTES = 10_000


def batch(number: int) -> bytes:
    builder = BatchBuilder()
    value = b"%05d " % number + bytes(VALUE_BYTES)
    builder.append(time.time_ns() // 1_000_000, None, value)
    return builder.build()


def numbers(wire: Wire, topic: str, partition: int) -> list[int]:
    return [int((record.value or b"").split()[0]) for record in read_all(wire, topic, partition)]


def limit_files(broker: BrokerProcess, size: int) -> None:
    """From now on no file of the broker grows beyond ``size`` bytes."""
    resource.prlimit(broker.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def ended(broker: BrokerProcess) -> int:
    """Wait for the end of the process; return its exit code."""
    code = broker.process.wait(30)
    broker.kill()
    return code


@contextlib.contextmanager
def cleaned_up(broker: BrokerProcess) -> Iterator[None]:
    try:
        yield
    finally:
        broker.kill()


def test_the_only_disk_runs_full(tmp_path: Path) -> None:
    """What does not fit is refused, nothing of it stays, and the broker ends and says why."""
    broker = BrokerProcess(tmp_path)
    broker.start()
    with cleaned_up(broker):
        log = broker.data_directory / "t-0" / f"{0:020d}.log"
        with Wire(broker.host, broker.port) as wire:
            create_topic(wire, "t", 1, SMALL_INDEXES)
            for number in range(50):
                assert produce(wire, "t", 0, batch(number)).error_code == 0
            room = log.stat().st_size + 3 * VALUE_BYTES + 5_000
            limit_files(broker, room)
            answers = [produce(wire, "t", 0, batch(number)) for number in range(50, 53)]
            assert [answer.error_code for answer in answers] == [0, 0, 0]
            refused = produce(wire, "t", 0, batch(53))
            assert (refused.error_code, refused.base_offset) == (STORAGE_ERROR, -1)
        assert ended(broker) == 1
        assert log.stat().st_size < room
        assert log.stat().st_size == 53 * len(batch(0))
        assert "log directory offline" in broker.log
        assert "File too large" in broker.log
        assert not (broker.data_directory / ".kafka_cleanshutdown").exists()
        broker.start()
        with Wire(broker.host, broker.port) as wire:
            assert numbers(wire, "t", 0) == list(range(53))
            assert produce(wire, "t", 0, batch(53)).base_offset == 53
        broker.stop()


def test_everybody_who_waits_hears_of_it(tmp_path: Path) -> None:
    """Producers whose batch was written and not yet flushed, in the moment the disk fails."""
    broker = BrokerProcess(tmp_path)
    broker.start()
    with cleaned_up(broker):
        with contextlib.ExitStack() as stack:
            wires = [stack.enter_context(Wire(broker.host, broker.port)) for _ in range(4)]
            create_topic(wires[0], "t", 4, SMALL_INDEXES)
            limit_files(broker, 40 * VALUE_BYTES)
            acknowledged: dict[int, list[int]] = {index: [] for index in range(4)}
            number = 0
            with contextlib.suppress(HungUpError, ConnectionError):
                while True:
                    for index, wire in enumerate(wires):
                        request = produce_request("t", {index: batch(number)})
                        wire.send(request, PRODUCE_VERSION)
                    for index, wire in enumerate(wires):
                        _, response = wire.receive()
                        assert isinstance(response, ProduceResponse)
                        (answer,) = response.responses[0].partition_responses
                        assert answer.error_code in (0, STORAGE_ERROR)
                        if answer.error_code == 0:
                            acknowledged[index].append(number)
                    number += 1
        assert ended(broker) == 1
        assert all(acknowledged.values())
        broker.start()
        with Wire(broker.host, broker.port) as wire:
            for index, kept in acknowledged.items():
                found = numbers(wire, "t", index)
                assert found[: len(kept)] == kept
                assert len(found) <= len(kept) + 1
        broker.stop()


class TwoDirectories:
    """A broker with two log directories; the first one holds the metadata, too."""

    def __init__(self, root: Path) -> None:
        self.paths = [root / "first", root / "second"]
        self.broker = BrokerProcess(root)
        self.broker.data_directory = f"{self.paths[0]},{self.paths[1]}"  # type: ignore[assignment]

    def holder(self, topic: str, partition: int) -> int:
        """Return which directory a partition lies in; it is in one of them."""
        (found,) = [
            index
            for index, path in enumerate(self.paths)
            if (path / f"{topic}-{partition}").exists()
        ]
        return found

    def one_in(self, directory: int) -> int:
        """Return a partition that lies in a directory."""
        return next(index for index in range(6) if self.holder("t", index) == directory)

    def connect(self) -> Wire:
        return Wire(self.broker.host, self.broker.port)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[TwoDirectories]:
    directories = TwoDirectories(tmp_path)
    directories.broker.start()
    with cleaned_up(directories.broker):
        with directories.connect() as wire:
            create_topic(wire, "t", 6, SMALL_INDEXES)
            for partition in range(6):
                for number in range(10):
                    assert produce(wire, "t", partition, batch(number)).error_code == 0
        assert {directories.holder("t", partition) for partition in range(6)} == {0, 1}
        yield directories


def log_dirs(wire: Wire) -> dict[str, int]:
    response = wire.call(DescribeLogDirsRequest(topics=None), 4, DescribeLogDirsResponse)
    return {result.log_dir: result.error_code for result in response.results}


def topic_id(wire: Wire, topic: str) -> bytes:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    return bytes(wire.call(request, 12, MetadataResponse).topics[0].topic_id)


def check_half(two: TwoDirectories, wire: Wire, failed: int, holders: dict[int, int]) -> None:
    """Partitions of the failed directory are refused, the others read and written."""
    for partition, holder in holders.items():
        answer = produce(wire, "t", partition, batch(10))
        data = fetch(wire, "t", partition, 0)
        if holder == failed:
            assert (answer.error_code, data.error_code) == (STORAGE_ERROR, STORAGE_ERROR)
        else:
            assert (answer.error_code, data.error_code) == (0, 0)
            assert numbers(wire, "t", partition) == list(range(11))
    assert log_dirs(wire) == {
        str(path): STORAGE_ERROR if index == failed else 0 for index, path in enumerate(two.paths)
    }


@pytest.mark.parametrize("failed", [0, 1])
def test_one_of_two_disks_runs_full(two: TwoDirectories, failed: int) -> None:
    """Its partitions answer KAFKA_STORAGE_ERROR, those of the other disk go on, and new topics go
    there; when there is room again a restart serves everything.
    """
    broker = two.broker
    holders = {partition: two.holder("t", partition) for partition in range(6)}
    victim = next(partition for partition, holder in holders.items() if holder == failed)
    with two.connect() as wire:
        for number in range(10, 40):
            assert produce(wire, "t", victim, batch(number)).error_code == 0
        limit_files(broker, 40 * VALUE_BYTES + 8_000)
        assert produce(wire, "t", victim, batch(40)).error_code == STORAGE_ERROR
        check_half(two, wire, failed, holders)
        create_topic(wire, "new", 2, SMALL_INDEXES)
        assert [two.holder("new", partition) for partition in range(2)] == [1 - failed] * 2
        assert produce(wire, "new", 0, batch(0)).error_code == 0
        identity = topic_id(wire, "t")
    assert "log directory offline" in broker.log
    broker.stop()
    assert not (two.paths[failed] / ".kafka_cleanshutdown").exists()
    assert (two.paths[1 - failed] / ".kafka_cleanshutdown").exists()
    broker.start()
    with two.connect() as wire:
        assert topic_id(wire, "t") == identity
        assert log_dirs(wire) == dict.fromkeys(map(str, two.paths), 0)
        for partition, holder in holders.items():
            wanted = 40 if partition == victim else 10 if holder == failed else 11
            assert numbers(wire, "t", partition) == list(range(wanted))
        assert numbers(wire, "new", 0) == [0]
    broker.stop()


def hide(path: Path) -> None:
    path.rename(path.with_name("hidden"))
    path.write_text("in the way")


def show(path: Path) -> None:
    path.unlink()
    path.with_name("hidden").rename(path)


def test_a_disk_that_is_missing_at_start_is_waited_for(two: TwoDirectories) -> None:
    """Its partitions are not made anew on the other disk, so they are whole when it comes back."""
    broker = two.broker
    holders = {partition: two.holder("t", partition) for partition in range(6)}
    broker.stop()
    hide(two.paths[1])
    broker.start()
    with two.connect() as wire:
        check_half(two, wire, 1, holders)
        create_topic(wire, "new", 1, SMALL_INDEXES)
        assert produce(wire, "new", 0, batch(0)).error_code == 0
    broker.stop()
    assert not any((two.paths[0] / f"t-{p}").exists() for p, where in holders.items() if where)
    show(two.paths[1])
    broker.start()
    with two.connect() as wire:
        for partition, holder in holders.items():
            assert numbers(wire, "t", partition) == list(range(10 if holder == 1 else 11))
        assert numbers(wire, "new", 0) == [0]
    broker.stop()


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_without_the_disk_that_holds_the_metadata_there_is_no_start(
    two: TwoDirectories, ending: str
) -> None:
    """Metadata made anew on the other disk would contradict what is there when it comes back.

    The other disk stays as it was: no marker that says it needs no recovery, no checkpoint of logs
    that were never opened.
    """
    broker = two.broker
    shortened = two.one_in(1)
    delete_records(two, partition=shortened, offset=4)
    broker.stop() if ending == "stop" else broker.kill()
    hide(two.paths[0])
    before = files_of(two.paths[1])
    assert (".kafka_cleanshutdown" in before) == (ending == "stop")
    started = subprocess.run(
        broker.command(), capture_output=True, text=True, timeout=60, check=False
    )
    assert started.returncode == 1
    assert "listening" not in started.stdout
    assert str(two.paths[0]) in started.stderr
    assert "Traceback" not in started.stderr
    assert files_of(two.paths[1]) == before
    show(two.paths[0])
    broker.start()
    with two.connect() as wire:
        for partition in range(6):
            first = 4 if partition == shortened else 0
            data = fetch(wire, "t", partition, first)
            assert (data.error_code, data.high_watermark) == (0, 10)
            assert data.log_start_offset == first
    broker.stop()


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def delete_records(two: TwoDirectories, *, partition: int, offset: int) -> None:
    wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name="t", partitions=[wanted])], timeout_ms=1_000
    )
    with two.connect() as wire:
        response = wire.call(request, 2, DeleteRecordsResponse)
    assert response.topics[0].partitions[0].error_code == 0


def test_both_disks_fail_one_after_the_other(two: TwoDirectories) -> None:
    """With the last directory the broker ends."""
    holders = {partition: two.holder("t", partition) for partition in range(6)}
    limit_files(two.broker, 9 * VALUE_BYTES)
    with two.connect() as wire, contextlib.suppress(HungUpError, ConnectionError):
        for partition in (min(holders, key=holders.__getitem__), max(holders, key=holders.get)):  # type: ignore[arg-type]
            assert produce(wire, "t", partition, batch(10)).error_code == STORAGE_ERROR
    assert ended(two.broker) == 1
    assert "no log directory is left" in two.broker.log
    shutil.rmtree(two.paths[0], ignore_errors=True)
