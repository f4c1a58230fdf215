"""Real file systems that lose what was not flushed, or run full, under a broker with load.

An ext4 on a loop device is shut down by ``FS_IOC_SHUTDOWN``, which drops all that is not on the
device, the journal's tail included, as a power loss does. A tmpfs of a few megabytes runs full.
Mounting needs root: elsewhere these tests are skipped and say so.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.broker_process import BrokerProcess
from tests.system.wire import Wire, create_topic
from tests.waiting import wait_until

pytestmark = [pytest.mark.system, pytest.mark.slow]

FS_IOC_SHUTDOWN: Final = 0x8004587D
NO_LOG_FLUSH: Final = struct.pack("I", 2)
PARTITIONS: Final = 3
CONFIGS = {"segment.bytes": str(1 << 20), "segment.index.bytes": "4096"}


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


def mount(*arguments: str) -> None:
    """Mount, or skip the test with the reason why that cannot be."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    try:
        run("mount", *arguments)
    except OSError as error:
        pytest.skip(f"file systems cannot be mounted here: {error}")


@contextlib.contextmanager
def unmounted_after(place: Path) -> Iterator[Path]:
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], capture_output=True, check=False)


@pytest.fixture
def ext4(tmp_path: Path) -> Iterator[Path]:
    """An ext4 of 256 MB on a loop device; the image lies beside the place."""
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("mkfs.ext4 is not installed")
    image, place = tmp_path / "image", tmp_path / "disk"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(256 << 20)
    run("mkfs.ext4", "-q", "-F", str(image))
    mount("-o", "loop", str(image), str(place))
    with unmounted_after(place):
        yield place


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mount("-t", "tmpfs", "-o", "size=12m", "millstream-test", str(place))
    with unmounted_after(place):
        yield place


def shut_down(place: Path) -> None:
    """Cut the power of the file system."""
    descriptor = os.open(place, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, FS_IOC_SHUTDOWN, NO_LOG_FLUSH)
    except OSError as error:
        pytest.skip(f"FS_IOC_SHUTDOWN is refused here: {error}")
    finally:
        os.close(descriptor)


class Load:
    """An idempotent producer to every partition, and what it was promised."""

    def __init__(self, bootstrap: str, first: int, *, patience_ms: int = 2_000) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": patience_ms,
                "log_level": 0,
            }
        )
        self._number = first
        self.acknowledged: list[tuple[int, int, bytes]] = []
        self.failed = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            value = b"%08d" % self._number * 120
            with contextlib.suppress(BufferError):
                self._producer.produce(
                    "t", value, partition=self._number % PARTITIONS, on_delivery=self._delivered
                )
                self._number += 1
            self._producer.poll(0.0005)

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.failed += 1
        else:
            self.acknowledged.append(
                (message.partition(), message.offset(), message.value())  # type: ignore[attr-defined]
            )

    def end(self) -> int:
        self._stop.set()
        self._thread.join()
        self._producer.flush(60)
        return self._number


def everything(bootstrap: str) -> set[tuple[int, int, bytes]]:
    """Return all records; their offsets have no gap, and no value is there twice."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "check.crcs": True})
    found: set[tuple[int, int, bytes]] = set()
    ends = [
        consumer.get_watermark_offsets(TopicPartition("t", index), timeout=30)[1]
        for index in range(PARTITIONS)
    ]
    consumer.assign([TopicPartition("t", index, 0) for index in range(PARTITIONS)])
    while len(found) < sum(ends):
        for message in consumer.consume(5_000, timeout=0.3):
            assert message.error() is None
            found.add((message.partition(), message.offset(), message.value()))
    consumer.close()
    places: dict[bytes, list[tuple[int, int]]] = {}
    for partition, offset, value in found:
        places.setdefault(value[:8], []).append((partition, offset))
    twice = {number: where for number, where in places.items() if len(where) > 1}
    assert not twice, f"{len(twice)} records are there twice: {sorted(twice.items())[:5]}"
    return found


def new_topic(broker: BrokerProcess) -> None:
    with Wire(broker.host, broker.port) as wire:
        create_topic(wire, "t", PARTITIONS, CONFIGS)


@pytest.mark.long
@pytest.mark.timeout(150)
def test_the_power_of_an_ext4_fails_under_load(ext4: Path, tmp_path: Path) -> None:
    """Twice: each time all that was ever acknowledged is there afterwards."""
    broker = BrokerProcess(tmp_path / "broker")
    broker.data_directory = ext4 / "data"
    acknowledged: list[tuple[int, int, bytes]] = []
    number = 0
    try:
        broker.start()
        new_topic(broker)
        for round_ in range(2):
            load = Load(broker.bootstrap, number)
            wait_until(lambda load=load: bool(load.acknowledged), "a first write")  # type: ignore[misc]
            time.sleep(0.2 + 0.37 * round_)
            shut_down(ext4)
            assert broker.process.wait(30) == 1, "its only disk is gone"
            broker.kill()
            number = load.end()
            acknowledged += load.acknowledged
            assert load.acknowledged
            assert "offline" in broker.log
            run("umount", str(ext4))
            run("mount", "-o", "loop", str(tmp_path / "image"), str(ext4))
            broker.start()
            found = everything(broker.bootstrap)
            assert set(acknowledged) <= found
        broker.stop()
    finally:
        broker.kill()


@pytest.mark.timeout(120)
def test_a_tmpfs_runs_full_under_load(tmpfs: Path, tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "broker")
    broker.data_directory = tmpfs / "data"
    try:
        broker.start()
        new_topic(broker)
        load = Load(broker.bootstrap, 0)
        assert broker.process.wait(60) == 1, "no log directory is left"
        broker.kill()
        load.end()
        assert "No space left on device" in broker.log
        assert load.acknowledged
        assert load.failed
        run("mount", "-o", "remount,size=1g", str(tmpfs))
        broker.start()
        assert set(load.acknowledged) <= everything(broker.bootstrap)
        again = Load(broker.bootstrap, 10_000_000, patience_ms=60_000)
        wait_until(lambda: bool(again.acknowledged), "a write after there was room")
        again.end()
        assert again.acknowledged
        assert not again.failed
        broker.stop()
    finally:
        broker.kill()


def partitions(load: Load) -> set[int]:
    """Return the partitions that have acknowledged something."""
    return {row[0] for row in list(load.acknowledged)}


@pytest.mark.timeout(120)
def test_one_of_two_disks_loses_its_power(ext4: Path, tmp_path: Path) -> None:
    """The partitions on the other disk are served on, those on the lost one after a restart."""
    safe = tmp_path / "safe"
    broker = BrokerProcess(tmp_path / "broker")
    broker.data_directory = f"{safe},{ext4 / 'data'}"  # type: ignore[assignment]
    try:
        broker.start()
        new_topic(broker)
        load = Load(broker.bootstrap, 0)
        wait_until(lambda: len(partitions(load)) == PARTITIONS, "a write to every partition")
        shut_down(ext4)
        before = partitions(load)
        wait_until(lambda: load.failed > 0, "a write that fails")
        count = len(load.acknowledged)
        wait_until(lambda: len(load.acknowledged) > count, "the other disk goes on")
        load.end()
        assert before == set(range(PARTITIONS))
        assert load.failed
        broker.stop()
        run("umount", str(ext4))
        run("mount", "-o", "loop", str(tmp_path / "image"), str(ext4))
        broker.start()
        assert set(load.acknowledged) <= everything(broker.bootstrap)
        broker.stop()
    finally:
        broker.kill()
