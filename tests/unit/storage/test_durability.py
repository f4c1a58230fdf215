"""What has to be on disk before anything else may happen to a log."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tests.memory_files import MemoryFileSystem
from tests.unit.storage.support import NOW_MS, SMALL, append, read_values

from millstream.model.errors import CorruptLogError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicId, TopicPartition
from millstream.records.batch import Batch
from millstream.records.builder import encode_batch
from millstream.records.record import Record
from millstream.storage.checkpoint import parse_offsets
from millstream.storage.durability import SEGMENTS_OF_A_PLAN
from millstream.storage.environment import LogEnvironment
from millstream.storage.flush import run_together
from millstream.storage.log import Log
from millstream.storage.log_manager import LogManager

ORDERS = TopicPartition("orders", 0)
TOPIC_ID = TopicId(bytes(range(16)))
CHECKPOINT = "/data/recovery-point-offset-checkpoint"


class Storage:
    """One log directory in memory, and what was done to its files."""

    def __init__(self) -> None:
        self.files = MemoryFileSystem()
        self.steps: list[str] = []
        self.files.hook = lambda step, path: self.steps.append(f"{step} {path}")
        self.environment = LogEnvironment(file_system=self.files)
        self.manager = LogManager(["/data"], self.environment, broker_id=1)
        self.manager.lock()
        self.manager.start(config_of=lambda _, __: SMALL, now_ms=NOW_MS)

    def log(self, number: int = 0, topic_id: TopicId = TOPIC_ID) -> Log:
        return self.manager.get_or_create(
            TopicPartition("orders", number), topic_id, SMALL, now_ms=NOW_MS
        )

    def points(self, files: MemoryFileSystem | None = None) -> dict[TopicPartition, Offset]:
        contents = (files or self.files).contents(CHECKPOINT)
        return parse_offsets(bytes(contents.data).decode())

    def on_disk(self) -> dict[TopicPartition, Offset]:
        """Return the recovery points that a power loss leaves for certain."""
        return self.points(self.files.crashed(_Nothing()))

    def writes_of_checkpoint(self) -> int:
        return self.steps.count(f"rename {CHECKPOINT}.tmp")


class _Nothing(random.Random):
    """A power loss that takes all that was not flushed."""

    def randint(self, a: int, b: int) -> int:
        return a


def flush(log: Log) -> None:
    plan = log.flush_plan()
    if plan is not None:
        plan.run()
        log.flushed(plan)


def filled(storage: Storage, number: int = 0, records: int = 40) -> Log:
    """Return a log of several segments whose recovery point is at its end, and checkpointed."""
    log = storage.log(number)
    for each in range(records):
        append(log, b"%d" % each * 30)
    flush(log)
    return log


@pytest.fixture
def storage() -> Storage:
    return Storage()


def test_the_checkpoint_is_lowered_before_anything_follows_a_cut(storage: Storage) -> None:
    log = filled(storage)
    storage.manager.checkpoint_plan()()
    assert storage.on_disk() == {ORDERS: 40}
    log.truncation.truncate_to(17, now_ms=NOW_MS)
    assert storage.on_disk() == {ORDERS: 17}, "the segment was cut after that"
    append(log, b"after")
    assert log.recovery_point == 17


def test_segments_that_were_cut_off_do_not_come_back_behind_what_follows(storage: Storage) -> None:
    """Where offsets happen to meet, two histories would be one log."""
    log = filled(storage)
    log.truncation.truncate_to(17, now_ms=NOW_MS)
    bases = log.segment_base_offsets
    append(log, b"after")
    left = storage.files.crashed(_Nothing()).scan("/data/orders-0")
    assert sorted(e.name for e in left if e.name.endswith(".log")) == [
        f"{base:020d}.log" for base in bases
    ]


def append_as_follower(log: Log) -> None:
    batch = Batch(memoryview(bytearray(encode_batch([Record(0, NOW_MS, b"k", b"v")]))))
    batch.assign(base_offset=log.log_end_offset, leader_epoch=log.latest_epoch)
    log.follower_appender.append_as_follower(batch.buffer, now_ms=NOW_MS)


@pytest.mark.parametrize(
    "follow", [append_as_follower, lambda log: log.appender.roll(now_ms=NOW_MS)]
)
def test_whatever_follows_a_cut_waits_for_it(
    storage: Storage, follow: Callable[[Log], None]
) -> None:
    log = filled(storage)
    storage.manager.checkpoint_plan()()
    log.truncation.truncate_to(15, now_ms=NOW_MS)
    assert log.durability.blocks_append
    follow(log)
    assert storage.on_disk() == {ORDERS: 15}
    assert not log.durability.blocks_append


def test_the_lowest_of_several_cuts_counts(storage: Storage) -> None:
    filled(storage)
    storage.manager.checkpoint_plan()()
    points = storage.environment.checkpoint_claims("/data").recovery_points
    assert points.lower(ORDERS, 17)
    assert points.lower(ORDERS, 30)
    points.settle()
    assert storage.on_disk() == {ORDERS: 17}


def test_a_checkpoint_that_is_overtaken_by_a_later_one_is_not_written(storage: Storage) -> None:
    log = filled(storage, records=10)
    earlier = storage.manager.checkpoint_plan()
    append(log, b"more")
    flush(log)
    storage.manager.checkpoint_plan()()
    earlier()
    assert storage.on_disk() == {ORDERS: 11}


def test_an_end_that_was_cut_off_does_not_come_back_behind_what_follows(storage: Storage) -> None:
    """Nothing of the checkpoint changes here: the cut itself has to be on disk."""
    log = filled(storage, records=10)
    path = f"/data/orders-0/{0:020d}.log"
    whole = storage.files.contents(path).size
    log.truncation.truncate_to(6, now_ms=NOW_MS)
    assert (left := storage.files.contents(path).size) < whole
    append(log, b"after")
    assert storage.files.crashed(_Nothing()).contents(path).size == left


def test_a_flush_after_a_cut_takes_the_place_of_waiting_for_the_disk(storage: Storage) -> None:
    """The segment that was cut is flushed also where nothing is left of it."""
    log = filled(storage, records=3)
    path = f"/data/orders-0/{0:020d}.log"
    log.truncation.truncate_to(0, now_ms=NOW_MS)
    flush(log)
    assert storage.files.crashed(_Nothing()).contents(path).size == 0
    storage.steps.clear()
    append(log, b"after")
    assert not [step for step in storage.steps if step.startswith("sync")]


def test_a_cut_above_the_checkpoint_leaves_it(storage: Storage) -> None:
    log = filled(storage, records=10)
    storage.manager.checkpoint_plan()()
    written = storage.writes_of_checkpoint()
    for each in range(10):
        append(log, b"%d" % each)
    log.truncation.truncate_to(12, now_ms=NOW_MS)
    append(log, b"after")
    assert storage.writes_of_checkpoint() == written


def test_a_log_that_restarts_below_its_checkpoint_lowers_it(storage: Storage) -> None:
    log = filled(storage)
    storage.manager.checkpoint_plan()()
    log.truncation.truncate_fully_and_start_at(5, now_ms=NOW_MS)
    append(log, b"after")
    assert storage.on_disk() == {ORDERS: 5}


def test_a_topic_of_the_same_name_does_not_begin_with_the_point_of_the_one_before(
    storage: Storage,
) -> None:
    filled(storage)
    storage.manager.checkpoint_plan()()
    storage.manager.delete(ORDERS, now_ms=NOW_MS)
    log = storage.log(topic_id=TopicId(bytes(range(1, 17))))
    append(log, b"first")
    assert storage.on_disk()[ORDERS] == 0


def test_many_cuts_are_settled_by_one_write(storage: Storage) -> None:
    logs = [filled(storage, number) for number in range(30)]
    storage.manager.checkpoint_plan()()
    written = storage.writes_of_checkpoint()
    synced = len([s for s in storage.steps if s.startswith("sync")])
    for log in logs:
        assert log.truncation.begin_truncation(17, now_ms=NOW_MS)
    assert len([s for s in storage.steps if s.startswith("sync")]) == synced, "waits for no disk"
    plans = [plan for log in logs if (plan := log.flush_plan()) is not None]
    run_together(plans)
    for plan in plans:
        assert plan.durability.flushed(plan)
    assert storage.writes_of_checkpoint() == written + 1
    for log in logs:
        assert not log.truncation.begin_truncation(17, now_ms=NOW_MS), "nothing is left to wait for"
        log.truncation.truncate_to(17, now_ms=NOW_MS)
    assert storage.writes_of_checkpoint() == written + 1
    assert set(storage.on_disk().values()) == {17}


def test_a_checkpoint_that_was_planned_before_a_cut_does_not_raise_the_point_again(
    storage: Storage,
) -> None:
    log = filled(storage)
    write = storage.manager.checkpoint_plan()
    log.truncation.truncate_to(17, now_ms=NOW_MS)
    write()
    assert storage.on_disk() == {ORDERS: 17}
    append(log, b"after")
    assert storage.on_disk() == {ORDERS: 17}


def test_no_checkpoint_goes_beyond_a_cut_that_is_announced(storage: Storage) -> None:
    log = filled(storage)
    log.truncation.begin_truncation(17, now_ms=NOW_MS)
    flush(log)
    assert log.recovery_point > 17, "so much is on disk"
    storage.manager.checkpoint_plan()()
    assert storage.on_disk() == {ORDERS: 17}


def test_a_log_that_ends_before_its_checkpoint_lowers_it_before_the_first_append(
    storage: Storage,
) -> None:
    """Recovery has cut it, for what was flushed was damaged since."""
    log = filled(storage)
    last = log.segment_base_offsets[-1]
    storage.manager.checkpoint_plan()()
    storage.files.contents(f"/data/orders-0/{last:020d}.log").data[70] ^= 1
    again = Storage.__new__(Storage)
    again.files, again.steps = storage.files, []
    again.manager = LogManager(["/data"], LogEnvironment(file_system=again.files), broker_id=1)
    again.manager.lock()
    again.manager.start(config_of=lambda _, __: SMALL, now_ms=NOW_MS)
    log = again.log()
    assert log.log_end_offset == last
    append(log, b"after")
    assert again.on_disk() == {ORDERS: last}


def test_what_an_announced_cut_leaves_is_a_whole_log(storage: Storage) -> None:
    """The leader may have changed before it is carried out."""
    log = filled(storage)
    storage.manager.checkpoint_plan()()
    log.truncation.begin_truncation(17, now_ms=NOW_MS)
    end = log.log_end_offset
    assert 17 < end < 40
    append(log, b"after")
    assert [offset for offset, _ in read_values(log)] == list(range(end + 1))
    assert storage.on_disk() == {ORDERS: 17}


def test_a_cut_that_is_announced_and_never_made_holds_back_no_checkpoint(storage: Storage) -> None:
    """The follower was elected in between, and leads."""
    log = filled(storage)
    storage.manager.checkpoint_plan()()
    log.truncation.begin_truncation(17, now_ms=NOW_MS)
    for each in range(30):
        append(log, b"%d" % each * 30)
    flush(log)
    storage.manager.checkpoint_plan()()
    assert storage.on_disk() == {ORDERS: log.log_end_offset}


def damaged(storage: Storage, base_offset: Offset, batches: int) -> None:
    """Damage the batch in a segment that follows so many."""
    data = storage.files.contents(f"/data/orders-0/{base_offset:020d}.log").data
    position = 0
    for _ in range(batches):
        position += int.from_bytes(data[position + 8 : position + 12], "big") + 12
    data[position + 16] = 9


def idempotent(storage: Storage, records: int) -> Log:
    """Return a log that is flushed and checkpointed, and lacks the snapshots of its producers."""
    log = storage.log()
    for each in range(records):
        append(
            log, b"%d" % each * 30, timestamps=[NOW_MS + each],
            producer_id=1, producer_epoch=0, base_sequence=each,
        )  # fmt: skip
    flush(log)
    storage.manager.checkpoint_plan()()
    for offset in list(log.producers.snapshots.offsets):
        log.producers.snapshots.remove(offset)
    return log


@pytest.mark.parametrize("timestamps", ["rising", "all the same"])
def test_a_cut_above_damage_takes_the_recovery_point_back(
    storage: Storage, timestamps: str
) -> None:
    """The producers cannot be read. What is appended then is flushed all the same before it is
    acknowledged, and recovery does not pass over it.
    """
    log = storage.log()
    for each in range(8):
        append(
            log, b"%d" % each * 30,
            timestamps=[NOW_MS + (each if timestamps == "rising" else 0)],
            producer_id=1, producer_epoch=0, base_sequence=each,
        )  # fmt: skip
    flush(log)
    storage.manager.checkpoint_plan()()
    assert log.segment_base_offsets == [0]
    damaged(storage, 0, batches=1)
    with pytest.raises(CorruptLogError):
        log.truncation.truncate_to(6, now_ms=NOW_MS)
    assert log.log_end_offset == 6
    append(log, b"after")
    assert log.recovery_point <= 6
    assert log.flush_plan() is not None
    assert storage.on_disk() == {ORDERS: 6}


def test_a_cut_of_whole_segments_above_damage_takes_the_recovery_point_back(
    storage: Storage,
) -> None:
    log = idempotent(storage, 40)
    bases = log.segment_base_offsets
    damaged(storage, bases[1], batches=1)
    with pytest.raises(CorruptLogError):
        log.truncation.begin_truncation(bases[2] - 1, now_ms=NOW_MS)
    assert log.log_end_offset == bases[2]
    append(log, b"after")
    assert log.recovery_point <= bases[2]
    assert storage.on_disk() == {ORDERS: bases[2] - 1}


# Closed segments


def test_closed_segments_are_flushed_without_the_active_one(storage: Storage) -> None:
    log = storage.log()
    for each in range(40):
        append(log, b"%d" % each * 30)
    bases = log.segment_base_offsets
    assert len(bases) > SEGMENTS_OF_A_PLAN + 1
    storage.steps.clear()
    plan = log.closed_flush_plan()
    assert plan is not None
    assert plan.recovery_point == bases[SEGMENTS_OF_A_PLAN], "a few at a time"
    assert not [path for path in plan.paths if f"{bases[SEGMENTS_OF_A_PLAN]:020d}.log" in path]
    while plan is not None:
        plan.run()
        assert log.flushed(plan)
        plan = log.closed_flush_plan()
    assert log.recovery_point == bases[-1]
    assert not [step for step in storage.steps if f"{bases[-1]:020d}.log" in step]
    assert not [step for step in storage.steps if step.startswith("sync_all")]
    left = storage.files.crashed(_Nothing())
    for base in bases[:-1]:
        whole = storage.files.contents(f"/data/orders-0/{base:020d}.log").size
        assert left.contents(f"/data/orders-0/{base:020d}.log").size == whole


def test_what_is_noted_for_a_flush_does_not_grow_for_ever(storage: Storage) -> None:
    log = storage.log()
    noted = []
    for _ in range(10):
        for each in range(20):
            append(log, b"%d" % each * 30)
        while (plan := log.closed_flush_plan()) is not None:
            plan.run()
            log.flushed(plan)
        noted.append(len(log.durability.unsynced))
    assert max(noted) <= 1


def test_a_flush_of_all_brings_along_what_a_plan_on_its_way_has_taken(storage: Storage) -> None:
    """They overlap: the recovery point moves over closed segments whose indexes are not yet on
    disk, if they were left to the other plan.
    """
    log = storage.log()
    for each in range(12):
        append(log, b"%d" % each * 30)
    closed = log.closed_flush_plan()
    assert closed is not None
    whole = log.flush_plan()
    assert whole is not None
    assert set(closed.paths) <= set(whole.paths)


def test_what_was_written_again_while_a_plan_ran_is_flushed_again(storage: Storage) -> None:
    log = storage.log()
    append(log, b"first")
    plan = log.flush_plan()
    assert plan is not None
    plan.run()
    log.assign_topic_id(TopicId(bytes(range(1, 17))))
    log.flushed(plan)
    assert "partition.metadata" in log.durability.unsynced


def test_files_of_segments_that_are_gone_are_not_flushed(storage: Storage) -> None:
    log = storage.log()
    for each in range(40):
        append(log, b"%d" % each * 30)
    gone = log.segment_base_offsets[2:]
    assert [name for name in log.durability.unsynced if name.startswith(f"{gone[0]:020d}")]
    log.truncation.truncate_to(gone[0] - 1, now_ms=NOW_MS)
    left = [name for name in log.durability.unsynced if name[0].isdigit()]
    assert left
    assert not [name for name in left if int(name.partition(".")[0]) > gone[0]]


# Log starts


def after_a_power_loss(storage: Storage) -> Log:
    """Return the log as the next start finds it if nothing was kept but what was flushed."""
    manager = LogManager(
        ["/data"], LogEnvironment(file_system=storage.files.crashed(_Nothing())), broker_id=1
    )
    manager.lock()
    manager.start(config_of=lambda _, __: SMALL, now_ms=NOW_MS)
    log = manager.get(ORDERS)
    assert log is not None
    return log


def test_a_log_that_is_cut_below_its_log_start_keeps_what_follows(storage: Storage) -> None:
    """A checkpointed log start beyond the log end has all of the log dropped."""
    log = filled(storage)
    log.truncation.increment_log_start_offset(38)
    storage.manager.checkpoint_plan()()
    log.truncation.truncate_to(17, now_ms=NOW_MS)
    append(log, b"after")
    flush(log)
    left = after_a_power_loss(storage)
    assert (left.log_start_offset, left.log_end_offset) == (17, 18)
    assert read_values(left, 17) == [(17, b"after")]


def test_a_topic_of_the_same_name_does_not_begin_with_the_log_start_of_the_one_before(
    storage: Storage,
) -> None:
    log = filled(storage)
    log.truncation.increment_log_start_offset(38)
    storage.manager.checkpoint_plan()()
    storage.manager.delete(ORDERS, now_ms=NOW_MS)
    log = storage.log(topic_id=TopicId(bytes(range(1, 17))))
    append(log, b"first")
    flush(log)
    assert read_values(after_a_power_loss(storage)) == [(0, b"first")]


def test_a_log_start_that_was_planned_before_a_cut_is_not_written_after_it(
    storage: Storage,
) -> None:
    log = filled(storage)
    log.truncation.increment_log_start_offset(38)
    write = storage.manager.checkpoint_plan()
    log.truncation.truncate_to(17, now_ms=NOW_MS)
    append(log, b"after")
    flush(log)
    write()
    assert read_values(after_a_power_loss(storage), 17) == [(17, b"after")]


def after_a_kill(storage: Storage) -> Log:
    """Return the log as a process finds it whose predecessor was killed: what it wrote is there."""
    again = LogManager(["/data"], LogEnvironment(file_system=storage.files), broker_id=1)
    storage.manager.give_back()
    again.lock()
    again.start(config_of=lambda _, __: SMALL, now_ms=NOW_MS)
    log = again.get(ORDERS)
    assert log is not None
    return log


def test_a_log_that_was_cut_below_its_high_watermark_does_not_commit_what_follows(
    storage: Storage,
) -> None:
    """After an unclean election. What comes in its place is committed when the leader says so."""
    log = filled(storage)
    log.offsets.update_high_watermark(40)
    storage.manager.checkpoint_plan()()
    log.truncation.truncate_to(17, now_ms=NOW_MS)
    for each in range(23):
        append(log, b"%d" % each, commit=False)
    log = after_a_kill(storage)
    assert (log.high_watermark, log.log_end_offset) == (17, 40)


def test_a_high_watermark_that_was_planned_before_a_cut_is_not_written_after_it(
    storage: Storage,
) -> None:
    log = filled(storage)
    log.offsets.update_high_watermark(40)
    write = storage.manager.checkpoint_plan()
    log.truncation.truncate_to(17, now_ms=NOW_MS)
    append(log, b"after", commit=False)
    write()
    assert after_a_kill(storage).high_watermark == 17
