"""Compaction against a dict: random keys, tombstones, transactions, times, codecs and passes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.memory_files import MemoryFileSystem, PowerLossError
from tests.unit.storage.cleaning_support import clean_now, compacted, keyed_batch, make_map
from tests.unit.storage.support import NOW_MS

from millstream.model.topic import TopicId, TopicPartition
from millstream.records.batch import iter_batches
from millstream.records.compression import Codec
from millstream.records.control import ControlType, EndTransactionMarker, MarkerBatch
from millstream.records.isolation import CommittedOnly
from millstream.records.record import read_records
from millstream.storage.cleanable import find_cleanable
from millstream.storage.cleaner import Cleaning
from millstream.storage.environment import LogEnvironment
from millstream.storage.log import Log
from millstream.storage.log_compaction import plan_cleaning
from millstream.storage.log_manager import LogManager

ORDERS = TopicPartition("orders", 0)
TOPIC_ID = TopicId(bytes(range(16)))
RETENTION_MS = 1000
CONFIG = compacted(
    **{
        "delete.retention.ms": str(RETENTION_MS),
        "segment.index.bytes": "1200",
        "file.delete.delay.ms": "0",
    }
)
READ_BYTES = 700


@dataclass(frozen=True)
class Put:
    """A batch of one producer: (key, has a value) for each record."""

    producer: int
    transactional: bool
    codec: Codec
    records: tuple[tuple[int, bool], ...]


@dataclass(frozen=True)
class End:
    """The end of a producer's transaction."""

    producer: int
    commit: bool


Step = Put | End | str

puts = st.builds(
    Put,
    producer=st.integers(0, 2),
    transactional=st.booleans(),
    codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.ZSTD, Codec.GZIP]),
    records=st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=4).map(
        tuple
    ),
)
ends = st.builds(End, producer=st.integers(0, 2), commit=st.booleans())
others = st.sampled_from(["clean", "clean", "roll", "wait", "restart", "remove", "flush"])
steps = st.lists(st.one_of(puts, puts, puts, ends, others), min_size=1, max_size=40)


@dataclass
class Written:
    key: bytes
    value: bytes | None
    offset: int
    transaction: int | None


class Model:
    """What clients wrote, and how transactions ended; nothing of how logs are kept."""

    def __init__(self) -> None:
        self.records: list[Written] = []
        self.ended: dict[int, bool] = {}
        self.end_offset = 0

    def committed(self, up_to: int) -> list[Written]:
        return [
            record
            for record in self.records
            if record.offset < up_to
            and (record.transaction is None or self.ended.get(record.transaction))
        ]

    def table(self, up_to: int) -> dict[bytes, bytes]:
        """What a consumer that reads everything in order ends up with."""
        table: dict[bytes, bytes] = {}
        for record in self.committed(up_to):
            if record.value is None:
                table.pop(record.key, None)
            else:
                table[record.key] = record.value
        return table


class Site:
    """One broker's storage with one compacted log, and the model beside it."""

    def __init__(self, files: MemoryFileSystem, map_keys: int, *, kernel: bool = False) -> None:
        self.kernel = kernel
        self.files = files
        self.map_keys = map_keys
        self.model = Model()
        self.now_ms = NOW_MS
        self.checkpoint: int | None = None
        self.sequences = [0, 0, 0]
        self.open: dict[int, int] = {}
        self.transactions = 0
        self.flushed = 0

    def start(self) -> None:
        self.manager = LogManager(["/data"], LogEnvironment(file_system=self.files), broker_id=1)
        self.manager.lock()
        self.manager.start(config_of=lambda partition, topic_id: CONFIG, now_ms=self.now_ms)
        self.log = self.manager.get_or_create(ORDERS, TOPIC_ID, CONFIG, now_ms=self.now_ms)
        self.log.offsets.update_high_watermark(self.log.log_end_offset)

    def act(self, step: Step) -> None:
        self.now_ms += 10
        if isinstance(step, Put):
            self.put(step)
        elif isinstance(step, End):
            self.end(step)
        elif step == "clean":
            self.clean()
        elif step == "roll":
            self.log.appender.roll(now_ms=self.now_ms)
        elif step == "wait":
            self.now_ms += RETENTION_MS
        elif step == "remove":
            self.manager.removals.run_due(self.now_ms)
        elif step == "flush":
            plan = self.log.flush_plan()
            if plan is not None:
                plan.run()
                self.log.flushed(plan)
            self.flushed = self.log.log_end_offset
        else:
            self.manager.close()
            self.flushed = self.model.end_offset
            self.start()

    def put(self, step: Put) -> None:
        transaction = None
        if step.transactional or step.producer in self.open:
            if step.producer not in self.open:
                self.transactions += 1
                self.open[step.producer] = self.transactions
            transaction = self.open[step.producer]
        pairs = [
            (b"key-%d" % key, b"%d" % len(self.model.records) * 8 if has_value else None)
            for key, has_value in step.records
        ]
        base = self.model.end_offset
        batch = keyed_batch(
            pairs,
            timestamps=[self.now_ms + n for n in range(len(pairs))],
            codec=step.codec,
            producer_id=step.producer,
            producer_epoch=0,
            base_sequence=self.sequences[step.producer],
            is_transactional=transaction is not None,
        )
        # The model takes it first: after a crash it may be there, unless the log end says no.
        for number, (key, value) in enumerate(pairs):
            self.model.records.append(Written(key, value, base + number, transaction))
        self.model.end_offset += len(pairs)
        self.sequences[step.producer] += len(pairs)
        result = self.log.appender.append_as_leader(batch, leader_epoch=0, now_ms=self.now_ms)
        assert result.base_offset == base
        self.log.offsets.update_high_watermark(self.log.log_end_offset)

    def end(self, step: End) -> None:
        if step.producer not in self.open:
            return
        kind = ControlType.COMMIT if step.commit else ControlType.ABORT
        marker = MarkerBatch.of(
            EndTransactionMarker(kind, 0),
            producer_id=step.producer,
            producer_epoch=0,
            timestamp_ms=self.now_ms,
        )
        self.model.end_offset += 1
        self.model.ended[self.open.pop(step.producer)] = step.commit
        self.log.appender.append_marker(marker, leader_epoch=0, now_ms=self.now_ms)
        self.log.offsets.update_high_watermark(self.log.log_end_offset)

    def clean(self) -> None:
        dirty = find_cleanable(self.log, self.checkpoint, now_ms=self.now_ms)
        if dirty.dirty_bytes:
            cleaning = Cleaning(
                LogEnvironment(file_system=self.files),
                plan_cleaning(self.log, dirty, now_ms=self.now_ms),
                make_map(self.map_keys, kernel=self.kernel),
                buffer_bytes=READ_BYTES,
                on_bytes=lambda count: None,
            )
            self.checkpoint = clean_now(self.log, cleaning, now_ms=self.now_ms)
            # Cleaning flushes first, unless all that it relies on is on disk.
            self.flushed = max(self.flushed, self.log.recovery_point)


def read(log: Log, start: int = 0) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """Yield what a committed reader sees, fetch by fetch, as a client would."""
    offset = start
    while offset < log.last_stable_offset:
        found = log.reader.read(
            offset,
            max_bytes=READ_BYTES,
            upper_bound_offset=log.last_stable_offset,
            min_one_batch=True,
        )
        if found.records is None:
            return
        aborted = [(a.producer_id, a.first_offset) for a in log.reader.aborted_transactions(found)]
        wanted = CommittedOnly(aborted)
        last = offset
        for batch in iter_batches(found.records.read()):
            batch.ensure_valid()
            if wanted(batch):
                for record in read_records(batch):
                    if record.offset >= offset:
                        yield record.offset, record.key, record.value
            last = max(last, batch.next_offset)
        assert last > offset, "a read that found something leads on"
        offset = last


def check(log: Log, model: Model, flushed: int | None = None) -> None:
    """Hold what is read against the model: records are as written, and of each key the last one is
    there, unless it is a tombstone. After a power loss that holds for those that were ``flushed``.
    """
    stable = log.last_stable_offset
    written = {record.offset: record for record in model.committed(stable)}
    found: dict[bytes | None, int] = {}
    previous = -1
    for offset, key, value in read(log):
        assert offset > previous
        previous = offset
        assert (written[offset].key, written[offset].value) == (key, value)
        found[key] = offset
    sure = model.committed(stable if flushed is None else min(stable, flushed))
    for key, record in {record.key: record for record in sure}.items():
        gone = -1 if record.value is not None else record.offset
        assert found.get(key, gone) >= record.offset
    if flushed is None:
        assert {
            key: written[offset].value
            for key, offset in found.items()
            if written[offset].value is not None
        } == model.table(stable)


@settings(max_examples=examples(80))
@given(steps=steps, map_keys=st.sampled_from([4, 6, 100]), kernel=st.booleans())
def test_compaction_against_a_dict(steps: list[Step], map_keys: int, kernel: bool) -> None:
    site = Site(MemoryFileSystem(), map_keys, kernel=kernel)
    site.start()
    for step in steps:
        before = site.log.producers.active()
        site.act(step)
        if step == "clean":
            assert site.log.producers.active() == before
        check(site.log, site.model)
    # All decided, all clean, all horizons passed twice: one record of each key is left below the
    # active segment, and no tombstone.
    for producer in list(site.open):
        site.end(End(producer, True))
    for _ in range(3):
        site.now_ms += RETENTION_MS
        site.log.appender.roll(now_ms=site.now_ms)
        site.checkpoint = None
        site.map_keys = 100
        site.clean()
    left = list(read(site.log))
    assert {key: value for _, key, value in left} == site.model.table(site.log.last_stable_offset)
    check(site.log, site.model)
    before = site.log.producers.active()
    site.act("restart")
    assert site.log.producers.active() == before
    check(site.log, site.model)


def stop_after(files: MemoryFileSystem, count: int) -> None:
    def hook(step: str, path: str) -> None:
        if files.steps == count:
            raise PowerLossError

    files.hook = hook


def run(steps: list[Step], crash_after: int, crash_again_after: int, seed: int) -> int:
    chance = random.Random(seed)
    files = MemoryFileSystem()
    site = Site(files, 6)
    stop_after(files, crash_after)
    try:
        site.start()
        for step in steps:
            site.act(step)
    except PowerLossError:
        pass
    taken = files.steps
    files = files.crashed(chance)
    stop_after(files, crash_again_after)
    with suppress(PowerLossError):
        Site(files, 6).start()
    after = Site(files.crashed(chance), 6)
    after.now_ms = site.now_ms
    after.start()
    log = after.log
    assert log.log_end_offset >= site.flushed
    # Only what was written last may be missing; a transaction whose marker is among it is open
    # again, which the last stable offset says.
    check(log, site.model, site.flushed)
    after.model = site.model
    after.clean()
    check(log, site.model, site.flushed)
    after.manager.close()
    after.start()
    check(after.log, site.model, site.flushed)
    return taken


@pytest.mark.slow
@settings(max_examples=examples(100))
@given(
    steps=steps,
    crash=st.floats(0, 1),
    again=st.integers(1, 80),
    seed=st.integers(0, 2**16),
)
@example(
    steps=[Put(0, False, Codec.NONE, ((1, True),) * 4)] * 12 + ["flush", "roll", "clean"],
    crash=0.8,
    again=30,
    seed=3,
)
def test_a_power_loss_at_any_step_of_a_cleaning(
    steps: list[Step], crash: float, again: int, seed: int
) -> None:
    taken = run(steps, -1, -1, seed)
    run(steps, int(crash * taken) + 1, again, seed)


@pytest.mark.slow
def test_a_power_loss_at_every_single_step_of_a_cleaning() -> None:
    story: list[Step] = []
    for number in range(12):
        story.append(
            Put(number % 3, number % 4 == 1, Codec.NONE, ((number % 5, True), (3, number % 2 == 0)))
        )
        if number % 4 == 3:
            story += [End(0, True), End(1, False), End(2, True)]
    story += ["flush", "roll"]
    before = run(story, -1, -1, 0)
    taken = run([*story, "clean", "wait", "clean", "remove"], -1, -1, 0)
    for crash_after in range(before, taken + 1):
        run([*story, "clean", "wait", "clean", "remove"], crash_after, 25, crash_after)
