"""A replica moves to another log directory while it is written to and read, and nothing is lost."""

from __future__ import annotations

import errno
import random
from dataclasses import replace

import pytest
from tests.unit.runtime.log_site import OTHER_BROKER, LogSite, Outcomes, append, read, write

from millstream.config.broker import BrokerConfig
from millstream.config.dynamic import DynamicConfig
from millstream.model.deferred import Deferred
from millstream.model.errors import StorageError
from millstream.model.leadership import PartitionState
from millstream.model.topic import TopicPartition
from millstream.records.batch import iter_batches
from millstream.records.record import read_records
from millstream.runtime.logs import replica_mover
from millstream.runtime.logs.log_maintenance import LogMaintenance
from millstream.runtime.logs.replica_mover import ReplicaMover
from millstream.runtime.replicas.partition import Partition
from millstream.runtime.replicas.partition_requests import delete_records_before
from millstream.storage.flush import FlushPlan

T0 = TopicPartition("t", 0)
SMALL = {"internal_segment_bytes": "1000", "index_interval_bytes": "100"}


@pytest.fixture
def site() -> LogSite:
    return LogSite("/one", "/two")


def mover_of(site: LogSite, settings: dict[str, str] | None = None) -> ReplicaMover:
    return ReplicaMover(
        site.clock,
        site.offload,
        DynamicConfig(BrokerConfig(settings)),
        log_manager=site.log_manager,
        partitions=site.partitions,
    )


def other(directory: str) -> str:
    return {"/one": "/two", "/two": "/one"}[directory]


def values(partition: Partition) -> list[bytes | None]:
    """Return what a consumer gets from the log start to the end."""
    found: list[bytes | None] = []
    offset = partition.log.log_start_offset
    while data := read(partition, offset):
        for batch in iter_batches(data):
            found += [record.value for record in read_records(batch) if record.offset >= offset]
            offset = batch.next_offset
    return found


@pytest.mark.parametrize("fails", ["/t-0.", "/t-0/"])
def test_a_replica_whose_copy_cannot_take_its_place_is_where_it_was(
    site: LogSite, fails: str
) -> None:
    """What is written later would be removed at the next start, with a directory to be deleted."""
    site.create("t", **SMALL)
    partition = site.partition()
    written = fill(partition, 50)
    was = site.directory_of("t")

    def fail(step: str, path: str) -> None:
        is_name = fails.endswith("/") or path.endswith("-future")
        if step == "rename" and path.startswith(other(was) + fails) and is_name:
            raise OSError(errno.ENOSPC, "no room for a name", path)

    mover_of(site).move(partition, other(was))
    site.files.hook = fail
    site.clock.settle()
    assert site.failed_directories == [other(was)]
    assert site.partition() is partition
    written += fill(partition, 50, 50)
    site.clock.settle()
    assert values(partition) == written
    assert partition.log.directory == f"{was}/t-0"
    site.restart()
    assert values(site.partition()) == written


def test_a_topic_is_deleted_whatever_the_disk_of_a_copy_does(site: LogSite) -> None:
    site.create("t", **SMALL)
    was = site.directory_of("t")
    site.log_manager.begin_move(site.partition().log, other(was), now_ms=site.clock.now_ms())
    site.files.broken, site.files.below = {"rename"}, other(was)
    site.delete()
    assert site.failed_directories == [other(was)]
    assert site.log_manager.get(T0) is None
    names = [entry.name for entry in site.files.scan(was) if entry.is_directory]
    assert [name.endswith("-delete") for name in names] == [True]


@pytest.mark.parametrize("how", ["deleted", "reassigned"])
def test_a_copy_whose_replica_is_gone_with_its_directory_goes_with_the_topic(
    site: LogSite, how: str
) -> None:
    image = site.create("t", **SMALL)
    fill(site.partition(), 50)
    was = site.directory_of("t")
    site.log_manager.begin_move(site.partition().log, other(was), now_ms=site.clock.now_ms())
    site.partitions.storage_failed(StorageError(was, "broken"))
    assert T0 in site.log_manager.future_logs
    if how == "deleted":
        site.delete()
    else:
        elsewhere = PartitionState((OTHER_BROKER,), OTHER_BROKER, 1, (OTHER_BROKER,))
        site.partitions.topic_changed(replace(image, partitions=(elsewhere,)), created=False)
    assert T0 not in site.log_manager.future_logs
    assert all(
        entry.name.endswith("-delete")
        for entry in site.files.scan(other(was))
        if entry.is_directory
    )


def fill(partition: Partition, count: int, start: int = 0) -> list[bytes]:
    written = [b"%06d" % number * 10 for number in range(start, start + count)]
    for value in written:
        append(partition, value)
    return written


def test_a_replica_moves(site: LogSite) -> None:
    site.create("t", **SMALL)
    partition = site.partition()
    written = fill(partition, 50)
    site.clock.settle()
    was = site.directory_of("t")
    mover_of(site).move(partition, other(was))
    assert site.log_manager.future_logs.get(T0) is not None
    site.clock.settle()
    assert site.directory_of("t") == other(was)
    assert site.partition() is partition
    assert values(partition) == written
    assert site.log_manager.future_logs.get(T0) is None
    names = {entry.name for entry in site.files.scan(was)}
    assert "t-0" not in names
    assert any(name.endswith("-delete") for name in names)
    site.log_manager.removals.run_due(site.clock.now_ms() + 60_000)
    assert not any(entry.name.startswith("t-0") for entry in site.files.scan(was))
    written += fill(partition, 10, 50)
    site.clock.settle()
    assert values(partition) == written
    site.log_manager.close()
    site.restart()
    assert values(site.partition()) == written


def test_a_kill_after_a_move_has_no_more_read_than_one_before(site: LogSite) -> None:
    site.create("t", **SMALL)
    fill(site.partition(), 50)
    site.clock.settle()
    config = DynamicConfig(BrokerConfig())
    LogMaintenance(site.clock, site.offload, config, site.log_manager, site.partitions).start()
    mover_of(site).move(site.partition(), other(site.directory_of("t")))
    site.clock.settle()
    site.restart()
    partition = site.partition()
    assert len(partition.log.segment_base_offsets) > 3
    scanned = partition.log.recovery_report.scanned_bytes
    assert scanned == partition.log.local.active.size


def test_writes_and_reads_go_on_at_every_step(
    site: LogSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_mover, "COPY_BYTES", 1500)
    site.create("t", **SMALL)
    partition, outcomes = site.partition(), Outcomes()
    written = fill(partition, 60)
    site.clock.settle()
    was = site.directory_of("t")
    site.offload.held = True
    mover_of(site).move(partition, other(was))
    for number in range(400):
        site.clock.run_once()
        value = b"%06d" % (60 + number) * 10
        write(partition, outcomes, value)
        written.append(value)
        site.offload.release("flush" if number % 3 else "move")
        if number % 40 == 0:
            assert values(partition) == written[: partition.high_watermark]
        if site.directory_of("t") != was:
            break
    assert site.directory_of("t") == other(was), "it never caught up with the writes"
    site.offload.held = False
    site.offload.release()
    site.clock.settle()
    assert outcomes == ["ok"] * (len(written) - 60)
    assert values(partition) == written


def test_a_replica_moves_that_is_written_to_faster_than_it_is_copied(
    site: LogSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many segments are begun while the copy is flushed; who waits for a flush gets it between two
    attempts to catch up.
    """
    monkeypatch.setattr(replica_mover, "COPY_BYTES", 1000)
    site.create("t", **SMALL)
    partition, outcomes = site.partition(), Outcomes()
    was = site.directory_of("t")
    run = FlushPlan.run

    def run_slowly(plan: FlushPlan) -> None:
        run(plan)
        if plan.log_directory != was:
            for _ in range(10):
                write(partition, outcomes, b"x" * 600)

    monkeypatch.setattr(FlushPlan, "run", run_slowly)
    mover_of(site).move(partition, other(was))
    for _ in range(50):
        write(partition, outcomes, b"x" * 600)
        site.clock.settle()
        site.clock.advance(60)
    assert site.directory_of("t") == other(was), "it never caught up with the writes"
    assert outcomes == ["ok"] * len(outcomes)
    assert len(outcomes) > 50


def test_nothing_is_acknowledged_between_the_copy_and_the_swap(site: LogSite) -> None:
    site.create("t")
    partition, outcomes = site.partition(), Outcomes()
    fill(partition, 3)
    site.clock.settle()
    site.offload.held = True
    mover_of(site).move(partition, other(site.directory_of("t")))
    site.clock.settle()  # the copy is asked for, flushes are held
    write(partition, outcomes, b"late")
    site.clock.settle()
    site.offload.release("flush")
    assert outcomes == []
    for _ in range(5):
        site.offload.release("move")
        assert outcomes == []
    assert site.directory_of("t") == "/two"
    future = site.log_manager.get(T0)
    assert future is not None
    assert future.log_end_offset == 4
    assert future.recovery_point == 3
    site.clock.settle()
    site.offload.release("flush")
    assert outcomes == ["ok"]
    assert future.recovery_point == 4


def test_a_log_that_was_damaged_in_the_middle_is_so_after_its_move(site: LogSite) -> None:
    """It lacks records, wherever it lies: it may not lead until it has followed."""
    site.create("t", **SMALL)
    partition = site.partition()
    fill(partition, 5)
    report = partition.log.recovery_report
    report.truncated_at, report.is_torn_tail = 5, False
    mover_of(site).move(partition, other(site.directory_of("t")))
    site.clock.settle()
    assert site.partition().log.recovery_report is report


def test_idempotence_and_epochs_survive(site: LogSite) -> None:
    site.create("t", epoch=3)
    partition = site.partition()
    for sequence in range(8):
        append(partition, b"v", producer_id=9, producer_epoch=0, base_sequence=sequence)
    partition.leader_epoch = 7
    partition.log.assign_epoch_start(7)  # an epoch without a batch
    site.clock.settle()
    mover_of(site).move(partition, other(site.directory_of("t")))
    site.clock.settle()
    repeated = append(partition, b"v", producer_id=9, producer_epoch=0, base_sequence=5)
    assert repeated.duplicate
    assert repeated.base_offset == 5
    assert partition.log.latest_epoch == 7
    assert partition.log.epoch_for_offset(4) == 3


def test_offsets_that_compaction_has_left_empty_are_left_out(site: LogSite) -> None:
    site.create("t", **SMALL, cleanup_policy="compact")
    partition = site.partition()
    for offset in (5, 9):
        append(partition, b"v", b"v")
        partition.log.appender.skip_to(offset, now_ms=site.clock.now_ms())
    partition.log.offsets.update_high_watermark(9)
    site.clock.settle()
    mover_of(site).move(partition, other(site.directory_of("t")))
    site.clock.settle()
    assert site.directory_of("t") == "/two"
    assert append(partition, b"next").base_offset == 9
    site.clock.settle()
    assert values(partition) == [b"v"] * 4 + [b"next"]
    site.log_manager.close()
    site.restart()
    assert site.partition().log.log_end_offset == 10


class Cleaner:
    """Notes who asked for what; a pause begins when a test says so."""

    def __init__(self) -> None:
        self.pausing: Deferred[None] = Deferred()
        self.calls: list[str] = []

    def abort_and_pause(self, topic_partition: TopicPartition) -> Deferred[None]:
        self.calls.append(f"pause {topic_partition}")
        return self.pausing

    def resume(self, topic_partition: TopicPartition) -> None:
        self.calls.append(f"resume {topic_partition}")


def test_the_cleaner_is_paused(site: LogSite) -> None:
    site.create("t")
    partition = site.partition()
    fill(partition, 5)
    site.clock.settle()
    cleaner, mover = Cleaner(), mover_of(site)
    mover._cleaner = cleaner  # type: ignore[assignment]
    mover.move(partition, other(site.directory_of("t")))
    site.clock.settle()
    assert cleaner.calls == ["pause t-0"]
    assert site.directory_of("t") == "/one"
    cleaner.pausing.complete(None)
    site.clock.settle()
    assert site.directory_of("t") == "/two"
    assert cleaner.calls == ["pause t-0", "resume t-0"]


def test_deleted_records_do_not_come_along(site: LogSite) -> None:
    site.create("t", **SMALL)
    partition = site.partition()
    written = fill(partition, 60)
    site.clock.settle()
    delete_records_before(partition, 33)
    site.offload.held = True
    mover_of(site).move(partition, other(site.directory_of("t")))
    site.clock.settle()
    delete_records_before(partition, 41)
    site.log_manager.delete_old_segments(now_ms=site.clock.now_ms())
    site.offload.held = False
    site.offload.release()
    site.clock.settle()
    assert site.directory_of("t") == "/two"
    assert partition.log.log_start_offset == 41
    assert values(partition) == written[41:]


def test_a_copy_behind_the_log_start_begins_anew(site: LogSite) -> None:
    site.create("t", **SMALL)
    partition = site.partition()
    written = fill(partition, 60)
    site.clock.settle()
    future = site.log_manager.begin_move(partition.log, "/two", now_ms=site.clock.now_ms())
    assert future.log_end_offset == 0
    delete_records_before(partition, 55)
    mover_of(site).resume()
    site.clock.settle()
    assert site.directory_of("t") == "/two"
    assert values(partition) == written[55:]


def test_what_the_replica_has_cut_off_is_cut_off_the_copy(site: LogSite) -> None:
    site.create("t")
    partition = site.partition()
    fill(partition, 10)
    log = partition.log
    future = site.log_manager.begin_move(log, "/two", now_ms=site.clock.now_ms())
    future.follower_appender.append_as_follower(read_all(partition), now_ms=site.clock.now_ms())
    log.offsets.update_high_watermark(4)
    log.truncation.truncate_to(4, now_ms=site.clock.now_ms())
    partition.leader_epoch = 2
    log.assign_epoch_start(2)
    for number in range(9):
        append(partition, b"new %d" % number)
    site.clock.settle()
    mover_of(site).resume()
    site.clock.settle()
    assert site.directory_of("t") == "/two"
    assert values(partition)[4:] == [b"new %d" % number for number in range(9)]


def read_all(partition: Partition) -> bytes:
    log = partition.log
    found = log.reader.read(
        0, max_bytes=1 << 30, upper_bound_offset=log.log_end_offset, min_one_batch=True
    )
    assert found.records is not None
    return found.records.read()


def test_the_copy_is_throttled(site: LogSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_mover, "COPY_BYTES", 1000)
    site.create("t", **SMALL)
    partition = site.partition()
    written = fill(partition, 60)
    size = partition.log.size
    site.clock.settle()
    was = site.directory_of("t")
    limit = {"replica.alter.log.dirs.io.max.bytes.per.second": "1000"}
    mover_of(site, limit).move(partition, other(was))
    site.clock.settle()
    waited_ms = 0
    while site.directory_of("t") == was:
        site.clock.advance(100)
        site.clock.settle()
        waited_ms += 100
        assert waited_ms < 2 * size
    assert waited_ms > size * 0.8
    assert values(partition) == written


def test_a_copy_that_waits_hears_of_another_rate(
    site: LogSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_mover, "COPY_BYTES", 1000)
    site.create("t", **SMALL)
    partition = site.partition()
    written = fill(partition, 60)
    site.clock.settle()
    was = site.directory_of("t")
    name = "replica.alter.log.dirs.io.max.bytes.per.second"
    config = DynamicConfig(BrokerConfig({name: "0"}))
    mover = ReplicaMover(
        site.clock,
        site.offload,
        config,
        log_manager=site.log_manager,
        partitions=site.partitions,
    )
    mover.move(partition, other(was))
    for _ in range(100):
        site.clock.advance(1_000)
        site.clock.settle()
    assert site.directory_of("t") == was, "0 lets nothing more through"
    config.update(of_all_brokers={name: "1000000000"}, of_this_broker={})
    for _ in range(5):
        site.clock.advance(1_000)
        site.clock.settle()
    assert site.directory_of("t") == other(was)
    assert values(partition) == written


def test_a_move_can_be_turned_to_another_directory_and_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = LogSite("/one", "/two", "/three")
    site.create("t")
    partition = site.partition()
    written = fill(partition, 5)
    site.clock.settle()
    mover = mover_of(site)
    site.offload.held = True
    mover.move(partition, "/two")
    site.clock.settle()
    mover.move(partition, "/three")
    site.offload.held = False
    site.offload.release()
    site.clock.settle()
    assert site.directory_of("t") == "/three"
    assert values(partition) == written
    site.offload.held = True
    mover.move(partition, "/one")
    site.clock.settle()
    mover.move(partition, "/three")
    site.offload.held = False
    site.offload.release()
    site.clock.settle()
    assert site.directory_of("t") == "/three"
    assert not list(site.log_manager.future_logs)
    outcomes = Outcomes()
    write(partition, outcomes)
    site.clock.settle()
    assert outcomes == ["ok"], "flushes are not held any more"


def test_a_restart_in_the_middle_goes_on(site: LogSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_mover, "COPY_BYTES", 1000)
    site.create("t", **SMALL)
    partition = site.partition()
    written = fill(partition, 60)
    site.clock.settle()
    was = site.directory_of("t")
    site.offload.held = True
    mover_of(site).move(partition, other(was))
    for _ in range(3):
        site.clock.settle()
        site.offload.release("move")
    site.offload = type(site.offload)()
    site.restart()
    future = site.log_manager.future_logs.get(T0)
    assert future is not None
    assert 0 < future.log_end_offset < 60
    mover_of(site).resume()
    site.clock.settle()
    assert site.directory_of("t") == other(was)
    assert values(site.partition()) == written


@pytest.mark.parametrize("failing", ["source", "destination"])
def test_a_directory_that_fails_during_a_move(site: LogSite, failing: str) -> None:
    site.create("t", 2)
    for index in range(2):
        fill(site.partition("t", index), 5)
    site.clock.settle()
    moving = site.partition("t", 0)
    was = site.directory_of("t", 0)
    site.offload.held = True
    mover_of(site).move(moving, other(was))
    site.clock.settle()
    site.files.below = was if failing == "source" else other(was)
    site.files.broken = {"write", "sync", "read"}
    site.offload.held = False
    site.offload.release()
    site.clock.settle()
    assert site.failed_directories == [site.files.below]
    stays = site.partition("t", 1) if failing == "source" else moving
    outcomes = Outcomes()
    write(stays, outcomes)
    site.clock.settle()
    assert outcomes == ["ok"]


def test_a_topic_deleted_during_its_move_is_gone(site: LogSite) -> None:
    site.create("t")
    partition = site.partition()
    fill(partition, 5)
    site.clock.settle()
    site.offload.held = True
    mover_of(site).move(partition, other(site.directory_of("t")))
    site.clock.settle()
    site.delete("t")
    site.offload.held = False
    site.offload.release()
    site.clock.settle()
    assert site.failed_directories == []
    site.log_manager.removals.run_due(site.clock.now_ms() + 60_000)
    for directory in ("/one", "/two"):
        assert not any(e.name.startswith("t-0") for e in site.files.scan(directory))


@pytest.mark.parametrize("seed", range(4))
def test_any_interleaving(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes, flushes, the move's steps, deletions and new settings in any order."""
    monkeypatch.setattr(replica_mover, "COPY_BYTES", 700)
    chance = random.Random(seed)
    site = LogSite("/one", "/two")
    policy = chance.choice(["ack", "os", "interval"])
    site.create("t", **SMALL, flush_policy=policy, flush_messages="7")
    partition, outcomes, mover = site.partition(), Outcomes(), mover_of(site)
    site.offload.held = True
    written: list[bytes] = []
    moves = 0
    for number in range(200):
        action = chance.choice(["write", "write", "write", "flush", "move", "turn", "go", "delete"])
        if action == "write":
            written.append(b"%06d" % number * chance.randint(1, 10))
            write(partition, outcomes, written[-1])
        elif action == "flush":
            site.offload.release("flush")
        elif action == "move":
            site.offload.release("move")
        elif action == "turn":
            site.clock.run_once()
        elif action == "go" and not list(site.log_manager.future_logs):
            moves += 1
            mover.move(partition, other(site.directory_of("t")))
        elif action == "delete" and chance.random() < 0.2:
            delete_records_before(partition, partition.high_watermark)
        if number % 40 == 0:
            start, end = partition.log.log_start_offset, partition.high_watermark
            assert values(partition) == written[start:end]
    site.offload.held = False
    site.offload.release()
    site.clock.settle()
    assert moves > 0
    assert not list(site.log_manager.future_logs)
    assert outcomes == ["ok"] * len(written)
    assert values(partition) == written[partition.log.log_start_offset :]
