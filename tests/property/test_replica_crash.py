"""A power loss in the life of a replica that is cut back, rolled, moved, compacted and made anew.

Each seed is one life of a replica: batches of a leader, flushes, checkpoints, rolls, truncations,
moves between two log directories, compactions, deletion and a new topic of the same name, clean
restarts. While it lives, images of the disks are taken as a power loss at that step may leave them.
Every image is then opened, and has to hold one history: what was flushed, in one piece, as it was
written, nothing of two histories mixed. ``CRASH_IMAGES`` says how many images are looked at::

    CRASH_IMAGES=10000 pytest tests/property/test_replica_crash.py
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import pytest
from tests.memory_files import MemoryFileSystem
from tests.unit.storage.cleaning_support import clean_now, keyed_batch, make_map
from tests.unit.storage.support import NOW_MS, read_batches

from millstream.config.topic import TopicConfig
from millstream.model.errors import MillstreamError
from millstream.model.topic import TopicId, TopicPartition
from millstream.records.record import read_records
from millstream.storage.checkpoint_claims import CheckpointClaims
from millstream.storage.cleanable import find_cleanable
from millstream.storage.cleaner import Cleaning
from millstream.storage.durability import Durability
from millstream.storage.environment import LogEnvironment
from millstream.storage.log import Log
from millstream.storage.log_compaction import plan_cleaning
from millstream.storage.log_manager import LogManager

IMAGES: Final = int(os.environ.get("CRASH_IMAGES", "400"))
IMAGES_OF_A_LIFE: Final = 10
ORDERS: Final = TopicPartition("orders", 0)
DIRECTORIES: Final = ("/a", "/b")
SETTINGS: Final = {
    "internal.segment.bytes": "600",
    "index.interval.bytes": "100",
    "segment.index.bytes": "1200",
    "file.delete.delay.ms": "0",
    "retention.ms": "-1",
}
DELETED = TopicConfig(SETTINGS)
COMPACTED = TopicConfig(SETTINGS | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})

ACTIONS: Final = (
    ("append", 14), ("flush", 3), ("flush closed", 3), ("checkpoint", 4), ("roll", 4),
    ("truncate", 5), ("restart at", 1), ("move", 1), ("compact", 2), ("anew", 1), ("remove", 2),
    ("restart", 1), ("delete records", 2),
)  # fmt: skip

Row = tuple[int, int, bytes, bytes]
"""A record: offset, leader epoch, key, value."""


@dataclass
class Expected:
    """What a log may hold after a power loss at some moment."""

    topic: int
    """How many topics of the name there were before."""
    histories: list[list[Row]]
    """What the log held, one entry for each time it was cut; the last one is what it holds."""
    durable: list[Row] = field(default_factory=list)
    """What was flushed and has not been cut off since."""
    durable_end: int = 0
    compacts: bool = False
    log_start: int = 0
    """The largest log start that the log may have."""

    def copy(self) -> Expected:
        return Expected(
            self.topic,
            [list(each) for each in self.histories],
            list(self.durable),
            self.durable_end,
            self.compacts,
            self.log_start,
        )


@dataclass
class Image:
    """Disks after a power loss."""

    files: MemoryFileSystem
    expected: Expected
    step: str


class Replica:
    """One replica's storage on two disks in memory, and what it was given."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.config = COMPACTED if seed % 3 == 0 else DELETED
        self.files = MemoryFileSystem()
        self.expected = Expected(0, [[]], compacts=self.config is COMPACTED)
        self.epoch = 0
        self.images: list[Image] = []
        self.now_ms = NOW_MS
        self.cleaned: int | None = None
        self.cuts = 0
        self.doing = ""

    # A life

    def live(self, actions: int = 30) -> None:
        """Act at random, and take an image at each step that is wanted."""
        self.start()
        names = [name for name, _ in ACTIONS]
        weights = [weight for _, weight in ACTIONS]
        for name in self.chance.choices(names, weights, k=actions):
            self.now_ms += 1_000
            self.doing = name
            self.act(name)

    def take_images_at(self, steps: set[int]) -> None:
        chance = random.Random(len(steps))

        def hook(step: str, path: str) -> None:
            if self.files.steps in steps:
                left = self.files.crashed(chance)
                self.images.append(
                    Image(left, self.expected.copy(), f"{self.doing}: {step} {path}")
                )

        self.files.hook = hook

    def start(self) -> None:
        self.manager = LogManager(
            DIRECTORIES,
            LogEnvironment(file_system=self.files, new_id=lambda: self.chance.randbytes(16)),
            broker_id=1,
        )
        self.manager.topic_id_of = lambda topic: self.topic_id
        self.manager.lock()
        self.manager.start(config_of=lambda _, __: self.config, now_ms=self.now_ms)

    @property
    def topic_id(self) -> TopicId:
        return TopicId(bytes([self.expected.topic + 1]) * 16)

    @property
    def log(self) -> Log:
        return self.manager.get_or_create(ORDERS, self.topic_id, self.config, now_ms=self.now_ms)

    @property
    def history(self) -> list[Row]:
        return self.expected.histories[-1]

    @property
    def end(self) -> int:
        return self.log.log_end_offset

    def act(self, name: str) -> None:
        log, chance = self.log, self.chance
        if name == "append":
            for _ in range(chance.randint(1, 4)):
                self.append(log)
        elif name == "flush":
            self.flush(log)
        elif name == "flush closed":
            plan = log.closed_flush_plan()
            if plan is not None:
                plan.run()
                log.flushed(plan)
                self.flushed_up_to(plan.recovery_point)
        elif name == "checkpoint":
            self.manager.checkpoint_plan()()
        elif name == "roll":
            log.appender.roll(now_ms=self.now_ms)
        elif name == "truncate":
            self.truncate(log)
        elif name == "restart at":
            self.restart_at(log)
        elif name == "move":
            self.move(log)
        elif name == "compact":
            self.compact(log)
        elif name == "anew":
            self.make_anew()
        elif name == "remove":
            self.manager.removals.run_due(self.now_ms)
        elif name == "delete records":
            offset = chance.randint(log.log_start_offset, log.high_watermark)
            self.expected.log_start = max(self.expected.log_start, offset)
            log.truncation.increment_log_start_offset(offset)
        else:
            self.manager.close()
            self.flushed_up_to(log.log_end_offset)
            self.start()
            self.log.offsets.update_high_watermark(self.expected.durable_end)

    def append(self, log: Log) -> None:
        """Append as a leader, or as a follower what a leader has written."""
        chance, offset = self.chance, log.log_end_offset
        self.epoch += chance.random() < 0.2
        pairs = [
            (b"k%d" % chance.randrange(4), b"%d-%d" % (self.cuts, offset + n) * 4)
            for n in range(chance.randint(1, 3))
        ]
        for n, (key, value) in enumerate(pairs):
            self.history.append((offset + n, self.epoch, key, value))
        batch = keyed_batch(pairs, producer_id=1, producer_epoch=0, base_sequence=offset)
        if self.config is DELETED and chance.random() < 0.5:
            batch.assign(base_offset=offset, leader_epoch=self.epoch)
            log.follower_appender.append_as_follower(bytes(batch.buffer), now_ms=self.now_ms)
        else:
            log.appender.append_as_leader(batch, leader_epoch=self.epoch, now_ms=self.now_ms)

    def flush(self, log: Log) -> None:
        plan = log.flush_plan()
        if plan is not None:
            plan.run()
            log.flushed(plan)
        self.flushed_up_to(log.log_end_offset)

    def flushed_up_to(self, offset: int) -> None:
        expected = self.expected
        if offset <= expected.durable_end:
            return
        expected.durable = [row for row in self.history if row[0] < offset]
        expected.durable_end = offset
        # What a flush has replaced cannot come back.
        expected.histories = [
            each
            for each in expected.histories
            if [row for row in each if row[0] < offset] == expected.durable
        ]
        self.log.offsets.update_high_watermark(offset)

    def cut_expected(self, offset: int) -> None:
        """Expect the log as it is, or cut at ``offset``: before it is cut."""
        expected = self.expected
        self.cuts += 1
        expected.histories.append([row for row in self.history if row[0] < offset])
        expected.durable = [row for row in expected.durable if row[0] < offset]
        expected.durable_end = min(expected.durable_end, offset)

    def truncate(self, log: Log) -> None:
        # The cleaner cleans what is committed, and relies on it that nobody cuts that off.
        first = log.high_watermark if self.expected.compacts else log.segment_base_offsets[0]
        if first >= log.log_end_offset:
            return
        starts = [row[0] for row in self.batch_starts(log) if row[0] >= first]
        if not starts:
            return
        offset = self.chance.choice(starts)
        self.cut_expected(offset)
        log.truncation.truncate_to(offset, now_ms=self.now_ms)
        self.expected.log_start = log.log_start_offset
        self.epoch += 1

    def batch_starts(self, log: Log) -> list[tuple[int]]:
        return [
            (each.base_offset,)
            for segment in log.local.segments
            for each in segment.records.headers()
        ]

    def restart_at(self, log: Log) -> None:
        if self.expected.compacts:
            return
        offset = log.log_end_offset + self.chance.randrange(3)
        self.cuts += 1
        self.expected.histories.append([])
        self.expected.durable, self.expected.durable_end = [], 0
        self.expected.log_start = offset
        log.truncation.truncate_fully_and_start_at(offset, now_ms=self.now_ms)

    def move(self, log: Log) -> None:
        """Move to the other directory, as ``replica_mover`` does it."""
        other = DIRECTORIES[log.log_directory == DIRECTORIES[0]]
        future = self.manager.begin_move(log, other, now_ms=self.now_ms)
        for batch in read_batches(log, log.log_start_offset):
            future.follower_appender.append_as_follower(bytes(batch.buffer), now_ms=self.now_ms)
            if self.chance.random() < 0.1:
                future.truncation.truncate_to(
                    max(future.log_start_offset, future.log_end_offset - 2), now_ms=self.now_ms
                )
                self.manager.cancel_move(ORDERS, now_ms=self.now_ms)
                return
            if self.chance.random() < 0.1:
                self.manager.checkpoint_plan()()
        if future.log_end_offset < log.log_end_offset:
            future.appender.skip_to(log.log_end_offset, now_ms=self.now_ms)
        plan = future.flush_plan()
        if plan is not None:
            plan.run()
            future.flushed(plan)
        moved, left = self.manager.finish_move(ORDERS)
        self.manager.future_logs.sync_plan([left.parent, moved.log_directory])()
        self.manager.remove_later(left, self.now_ms)
        self.flush(moved)

    def compact(self, log: Log) -> None:
        if not self.expected.compacts:
            return
        dirty = find_cleanable(log, self.cleaned, now_ms=self.now_ms)
        if dirty.dirty_bytes:
            cleaning = Cleaning(
                LogEnvironment(file_system=self.files),
                plan_cleaning(log, dirty, now_ms=self.now_ms),
                make_map(100),
                buffer_bytes=700,
                on_bytes=lambda count: None,
            )
            self.cleaned = clean_now(log, cleaning, now_ms=self.now_ms)

    def make_anew(self) -> None:
        """Delete the topic, and make another one of its name; not always is a checkpoint written
        in between.
        """
        topic = self.expected.topic + 1
        self.expected = Expected(topic, [[]], compacts=self.expected.compacts)
        self.manager.delete(ORDERS, now_ms=self.now_ms)
        if self.chance.random() < 0.5:
            self.manager.checkpoint_plan()()
        self.cleaned = None
        assert self.log.log_end_offset == 0


# What an image holds


def rows_of(log: Log) -> list[Row]:
    return [
        (record.offset, batch.partition_leader_epoch, record.key or b"", record.value or b"")
        for batch in read_batches(log, log.log_start_offset)
        for record in read_records(batch)
        if record.offset >= log.log_start_offset
    ]


def fault_of(image: Image) -> str | None:
    """Return what is wrong with the log of an image; None where nothing is."""
    expected = image.expected
    replica = Replica(0)
    replica.config = COMPACTED if expected.compacts else DELETED
    replica.files = image.files
    replica.expected = expected
    replica.start()
    log = replica.manager.get(ORDERS)
    if log is None or log.topic_id != replica.topic_id:
        return "the log is gone" if expected.durable_end else None
    fault = _fault(log, expected)
    if fault is not None:
        return fault
    # What is written now stands at the log end, and outlives a restart.
    found, end = rows_of(log), log.log_end_offset
    batch = keyed_batch([(b"k", b"after")])
    log.appender.append_as_leader(batch, leader_epoch=10_000, now_ms=NOW_MS)
    replica.manager.close()
    replica.start()
    again = replica.manager.get(ORDERS)
    assert again is not None
    if rows_of(again) != [*found, (end, 10_000, b"k", b"after")]:
        return "what was appended after the recovery is not what a restart finds"
    return None


def _fault(log: Log, expected: Expected) -> str | None:
    found, start, end = rows_of(log), log.log_start_offset, log.log_end_offset
    if end < expected.durable_end:
        return f"it ends at {end}, and was flushed up to {expected.durable_end}"
    if start > expected.log_start and any(r[0] >= expected.log_start for r in expected.durable):
        return f"it begins at {start}, and at most {expected.log_start} was asked for"
    for batch in read_batches(log, start):
        if not batch.is_valid:
            return f"a batch at {batch.base_offset} is damaged"
        epoch = log.epoch_for_offset(max(batch.base_offset, start))
        if epoch != batch.partition_leader_epoch:
            return f"the epochs say {epoch} for {batch!r}"
    if not any(_fits(found, end, start, each, expected) for each in expected.histories):
        offsets = [row[0] for row in found]
        return f"no history has these records: {offsets} in [{start}, {end})"
    kept = {row[0]: row for row in found}
    if not expected.compacts and any(
        kept.get(row[0]) != row for row in expected.durable if row[0] >= start
    ):
        return "something that was flushed is missing or another"
    return None


def _fits(found: list[Row], end: int, start: int, history: list[Row], expected: Expected) -> bool:
    """Tell whether the records are those of a history from ``start`` up to ``end``."""
    wanted = [row for row in history if start <= row[0] < end]
    if not expected.compacts:
        return found == wanted and (not found or found[-1][0] == end - 1)
    # Of what was not flushed a compacted log may lack the middle: a gap between two segments is
    # what compaction leaves as well.
    latest = {row[2]: row for row in wanted if row[0] < expected.durable_end}
    return set(found) <= set(wanted) and set(latest.values()) <= set(found)


def images_of(seed: int, count: int = IMAGES_OF_A_LIFE) -> list[Image]:
    """Return images of one life, at steps that the seed decides."""
    replica = Replica(seed)
    replica.live()
    steps = replica.files.steps
    wanted = set(random.Random(seed).sample(range(1, steps + 1), min(count, steps)))
    replica = Replica(seed)
    replica.take_images_at(wanted)
    replica.live()
    return replica.images


def faults_of(seeds: range) -> tuple[int, list[str]]:
    """Return how many images there were, and what was wrong with which."""
    count = 0
    faults: list[str] = []
    for seed in seeds:
        for number, image in enumerate(images_of(seed)):
            count += 1
            try:
                fault = fault_of(image)
            except (MillstreamError, AssertionError, LookupError) as error:
                fault = repr(error)
            if fault is not None:
                faults.append(f"seed {seed}, image {number} ({image.step}): {fault}")
    return count, faults


@pytest.mark.slow
def test_no_image_of_a_power_loss_is_unsound() -> None:
    count, faults = faults_of(range(max(1, IMAGES // IMAGES_OF_A_LIFE)))
    assert not faults, f"{len(faults)} of {count} images:\n" + "\n".join(faults[:20])


def _checkpoint_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CheckpointClaims, "lower", lambda self, topic_partition, offset: False)


def _cut_off_ends_come_back(patch: pytest.MonkeyPatch) -> None:
    cut = Durability.cut
    patch.setattr(Durability, "cut", lambda self, end, segment: cut(self, end, None))


@pytest.mark.slow
@pytest.mark.parametrize("fault", [_checkpoint_stays, _cut_off_ends_come_back])
def test_each_precaution_is_needed(
    fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it some image is unsound."""
    fault(monkeypatch)
    assert any(faults_of(range(seed, seed + 1))[1] for seed in range(400))
