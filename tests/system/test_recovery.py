"""Recovery after kill -9: many partitions, several segments, damaged files, the same answers.

A *picture* is all that a reader can learn of a topic: every batch byte for byte, and the answers to
look-ups by time. It is taken before the broker is killed and has to be the same afterwards.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.system.wire import (
    PRODUCE_VERSION,
    Wire,
    create_topic,
    offset_for,
    offsets_for,
    produce,
    produce_request,
    read_batches,
)

from millstream.protocol.messages.produce import ProduceResponse
from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.records.compression import Codec

pytestmark = pytest.mark.system

TOPIC = "ledger"
PARTITIONS = 12
BATCHES = 24
FIRST_MS = time.time_ns() // 1_000_000 - 600_000
"""Lately: producers whose last batch is a day old are forgotten."""
SMALL_SEGMENTS = {
    "internal.segment.bytes": "5000",
    "index.interval.bytes": "500",
    "segment.index.bytes": "4096",
    "retention.ms": "-1",
}
EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3


def batch_of(chance: random.Random, partition: int, number: int) -> bytes:
    """One batch of some records: its codec and its producer depend on the partition."""
    codec = Codec(partition % 5)
    producer_id = 1_000 + partition if partition % 3 == 0 else -1
    count = chance.randint(1, 12)
    options = BatchOptions(
        codec=codec,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=number * 12 if producer_id >= 0 else -1,
    )
    if producer_id >= 0:
        count = 12  # so that the next base sequence is known
    builder = BatchBuilder(options)
    for index in range(count):
        timestamp = FIRST_MS + number * 1_000 + chance.randint(0, 5_000)
        builder.append(timestamp, f"{number}.{index}".encode(), chance.randbytes(60))
    return builder.build()


def fill(wire: Wire, first: int, last: int) -> list[int]:
    """Produce the batches of these numbers to every partition; return the last base offsets."""
    base_offsets: list[int] = []
    for number in range(first, last):
        batches = {
            partition: batch_of(random.Random(f"{partition} {number}"), partition, number)
            for partition in range(PARTITIONS)
        }
        response = wire.call(produce_request(TOPIC, batches), PRODUCE_VERSION, ProduceResponse)
        answers = response.responses[0].partition_responses
        assert not any(answer.error_code for answer in answers), (number, answers)
        base_offsets = [answer.base_offset for answer in answers]
    return base_offsets


def repeat_last(wire: Wire, written: list[int]) -> None:
    """Send once more what an idempotent producer sent last: it is known, and not written again."""
    for partition in range(0, PARTITIONS, 3):
        number = BATCHES - 1
        batch = batch_of(random.Random(f"{partition} {number}"), partition, number)
        answer = produce(wire, TOPIC, partition, batch)
        assert (answer.error_code, answer.base_offset) == (0, written[partition])


def picture(wire: Wire) -> list[object]:
    """Return all that can be read and looked up of the topic."""
    seen: list[object] = []
    times = [FIRST_MS - 1, *range(FIRST_MS, FIRST_MS + (BATCHES + 7) * 1_000, 2_300)]
    for partition in range(PARTITIONS):
        seen.append([bytes(batch.buffer) for batch in read_batches(wire, TOPIC, partition)])
        for found in offsets_for(wire, TOPIC, partition, [*times, EARLIEST, MAX_TIMESTAMP]):
            assert found.error_code == 0
            seen.append((found.offset, found.timestamp, found.leader_epoch))
        # Its epoch is the leader's own, which rises when the broker was killed.
        seen.append(offset_for(wire, TOPIC, partition, LATEST).offset)
    return seen


@contextlib.contextmanager
def running(broker: BrokerProcess) -> Iterator[None]:
    """Start a broker and stop its last run, however the test ends."""
    broker.start()
    try:
        yield
    finally:
        broker.stop()


def connect(broker: BrokerProcess) -> Wire:
    return Wire(broker.host, broker.port)


def partition_directory(broker: BrokerProcess, partition: int) -> Path:
    return broker.data_directory / f"{TOPIC}-{partition}"


def segments(broker: BrokerProcess, partition: int, extension: str) -> list[Path]:
    return sorted(partition_directory(broker, partition).glob(f"*.{extension}"))


def leave_alone(_broker: BrokerProcess) -> None:
    pass


def damage_indexes(broker: BrokerProcess) -> None:
    """By turns of the partitions: deleted, filled with zeros, filled with noise."""
    chance = random.Random(5)
    for partition in range(PARTITIONS):
        for extension in ("index", "timeindex"):
            for path in segments(broker, partition, extension):
                size = path.stat().st_size
                match partition % 3:
                    case 0:
                        path.unlink()
                    case 1:
                        path.write_bytes(bytes(size))
                    case _:
                        path.write_bytes(chance.randbytes(size))


def damage_one_index(broker: BrokerProcess) -> None:
    """The same with one index of the two, and in whole multiples of its entry or not."""
    for partition in range(PARTITIONS):
        extension = ("index", "timeindex")[partition % 2]
        for path in segments(broker, partition, extension):
            size = path.stat().st_size
            match partition // 2 % 3:
                case 0:
                    path.unlink()
                case 1:
                    path.write_bytes(bytes(size))
                case _:
                    path.write_bytes(path.read_bytes()[: size // 2 - 1])


def append_garbage(broker: BrokerProcess) -> None:
    """Noise, zeros, or half a batch, by turns: what a torn write may leave."""
    chance = random.Random(6)
    for partition in range(PARTITIONS):
        last = segments(broker, partition, "log")[-1]
        sound = last.read_bytes()
        half = bytearray(batch_of(chance, partition, BATCHES))
        garbage = (chance.randbytes(333), bytes(4096), half[:-20])[partition % 3]
        last.write_bytes(sound + garbage)


def delete_small_files(broker: BrokerProcess) -> None:
    """Checkpoints are hints. Producer snapshots are, too, after a crash; without any after a clean
    shutdown nobody reads the log for producers, as in Kafka.
    """
    for path in broker.data_directory.glob("*-checkpoint"):
        path.unlink()
    if not (broker.data_directory / ".kafka_cleanshutdown").exists():
        for partition in range(PARTITIONS):
            for path in segments(broker, partition, "snapshot"):
                path.unlink()


@dataclass
class Filled:
    """A data directory as it was left, and what could be read of it."""

    root: Path
    before: list[object]
    last_base_offsets: list[int]

    def copy_to(self, root: Path) -> None:
        shutil.copytree(self.root, root, dirs_exist_ok=True)


@pytest.fixture(scope="module", params=["killed", "killed after a checkpoint", "stopped"])
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Filled:
    """A killed broker's logs are read whole, from the last checkpoint on, or not at all."""
    root = tmp_path_factory.mktemp("filled")
    interval_ms = "100" if request.param == "killed after a checkpoint" else "60000"
    broker = BrokerProcess(root, {"log.flush.offset.checkpoint.interval.ms": interval_ms})
    broker.start()
    try:
        with connect(broker) as wire:
            create_topic(wire, TOPIC, PARTITIONS, SMALL_SEGMENTS)
            last = fill(wire, 0, BATCHES)
            before = picture(wire)
        if request.param == "killed after a checkpoint":
            wait_for_checkpoint(broker, last)
        if request.param != "stopped":
            broker.kill()
    finally:
        broker.stop()
    assert all(len(segments(broker, index, "log")) >= 3 for index in range(PARTITIONS))
    return Filled(root, before, last)


def wait_for_checkpoint(broker: BrokerProcess, last_base_offsets: list[int]) -> None:
    """Wait until the checkpoint says that the last batches are on disk."""
    path = broker.data_directory / "recovery-point-offset-checkpoint"
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        lines = path.read_text().splitlines()[2:] if path.exists() else []
        points = {int(number): int(point) for _, number, point in map(str.split, lines)}
        if all(points.get(n, 0) > offset for n, offset in enumerate(last_base_offsets)):
            return
        time.sleep(0.05)
    pytest.fail("the recovery points were not written")


@pytest.mark.parametrize(
    "damage",
    [leave_alone, damage_indexes, damage_one_index, append_garbage, delete_small_files],
    ids=lambda damage: damage.__name__,
)
def test_everything_is_served_as_before(
    tmp_path: Path, filled: Filled, damage: Callable[[BrokerProcess], None]
) -> None:
    filled.copy_to(tmp_path)
    broker = BrokerProcess(tmp_path)
    damage(broker)
    with running(broker):
        with connect(broker) as wire:
            assert picture(wire) == filled.before
            repeat_last(wire, filled.last_base_offsets)
            fill(wire, BATCHES, BATCHES + 2)
            assert offset_for(wire, TOPIC, 0, LATEST).offset == (BATCHES + 2) * 12
            grown = picture(wire)
        broker.kill()
        broker.start()
        with connect(broker) as wire:
            assert picture(wire) == grown


@pytest.mark.slow
@pytest.mark.parametrize("filled", ["killed"], indirect=True)
@pytest.mark.parametrize("moment", ["starting", "stopping"])
def test_kills_in_the_middle_of_a_start_and_of_a_stop(
    tmp_path: Path, filled: Filled, moment: str
) -> None:
    """Recovery that is cut short begins again; a stop that is cut short is no stop."""
    filled.copy_to(tmp_path)
    broker = BrokerProcess(tmp_path)
    append_garbage(broker)
    for step in range(8):
        if moment == "starting":
            kill_after(start_without_waiting(broker), 0.1 + 0.02 * step)
        else:
            broker.start()
            process = broker.process
            process.send_signal(signal.SIGTERM)
            kill_after(process, 0.004 * step)
            broker.kill()
    with running(broker), connect(broker) as wire:
        assert picture(wire) == filled.before


def start_without_waiting(broker: BrokerProcess) -> subprocess.Popen[bytes]:
    with (broker.directory / "broker.err").open("ab") as errors:
        return subprocess.Popen(broker.command(), stdout=errors, stderr=errors)


def kill_after(process: subprocess.Popen[bytes], seconds: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    process.kill()
    process.wait()
