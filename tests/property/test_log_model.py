"""A log against a list: random operations, small segments, restarts clean and not."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.examples import examples
from tests.unit.storage.support import (
    NOW_MS,
    append,
    close,
    create_log,
    look_up_time,
    read_batches,
    read_values,
    reopen,
    values_batch,
)

from millstream.config.topic import TopicConfig
from millstream.model.errors import KafkaError
from millstream.records.record import read_records
from millstream.storage.environment import LogEnvironment
from millstream.storage.log_retention import delete_old_segments
from millstream.storage.open_files import OpenFiles

CONFIGS = [
    TopicConfig({"internal.segment.bytes": str(size), "index.interval.bytes": str(interval)})
    for size, interval in ((400, 0), (1000, 100), (3000, 4096), (100_000, 300))
]

values = st.lists(st.binary(max_size=60), min_size=1, max_size=5)
times = st.integers(0, 300)


@dataclass
class Written:
    value: bytes
    timestamp: int
    epoch: int
    base_offset: int


class LogMachine(RuleBasedStateMachine):
    """The list is ``records``: what offset ``n`` holds is ``records[n]``."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="millstream-log-"))
        self.records: list[Written] = []
        self.start = 0
        self.epoch = 0

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    @initialize(config=st.sampled_from(CONFIGS), open_files=st.sampled_from([1, 2, 100]))
    def create(self, config: TopicConfig, open_files: int) -> None:
        self.config = config
        self.environment = LogEnvironment(open_files=OpenFiles(open_files))
        self.log = create_log(self.root, config, self.environment)

    @rule(batch=values, timestamps=st.lists(times, min_size=5, max_size=5))
    def append(self, batch: list[bytes], timestamps: list[int]) -> None:
        stamps = [NOW_MS + t for t in timestamps[: len(batch)]]
        base = len(self.records)
        result = append(self.log, *batch, timestamps=stamps, epoch=self.epoch)
        assert (result.base_offset, result.last_offset) == (base, base + len(batch) - 1)
        self.records += [
            Written(v, t, self.epoch, base) for v, t in zip(batch, stamps, strict=True)
        ]

    @rule(batches=st.lists(values, min_size=1, max_size=4))
    def append_as_follower(self, batches: list[list[bytes]]) -> None:
        data = b""
        for batch in batches:
            base = len(self.records)
            data += bytes(values_batch(batch, base_offset=base, leader_epoch=self.epoch).buffer)
            self.records += [Written(v, NOW_MS, self.epoch, base) for v in batch]
        self.log.follower_appender.append_as_follower(data, now_ms=NOW_MS)
        self.log.offsets.update_high_watermark(self.log.log_end_offset)

    @rule()
    def roll(self) -> None:
        self.log.appender.roll(now_ms=NOW_MS)

    @rule()
    def new_leader(self) -> None:
        self.epoch += 1
        self.log.assign_epoch_start(self.epoch)

    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        wanted = self.start + int(part * (len(self.records) - self.start))
        kept = self.records[wanted].base_offset if wanted < len(self.records) else wanted
        self.log.truncation.truncate_to(wanted, now_ms=NOW_MS)
        # A batch that the offset cuts goes as a whole, but the log ends where it was told.
        if kept != wanted:
            self.log.truncation.truncate_to(kept, now_ms=NOW_MS)
        del self.records[max(kept, 0) :]
        self.start = min(self.start, kept)
        self.log.offsets.update_high_watermark(self.log.log_end_offset)

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        self.start += int(part * (len(self.records) - self.start))
        self.log.truncation.increment_log_start_offset(self.start)
        delete_old_segments(self.log, now_ms=NOW_MS)

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        if clean:
            close(self.log)
        self.log = reopen(
            self.root,
            self.config,
            clean=clean,
            log_start_offset=self.start,
            environment=self.environment,
        )

    @precondition(lambda self: hasattr(self, "log"))
    @invariant()
    def ends_agree(self) -> None:
        assert self.log.log_start_offset == self.start
        assert self.log.log_end_offset == len(self.records)

    @precondition(lambda self: hasattr(self, "log"))
    @rule(part=st.floats(0, 1), max_bytes=st.integers(1, 2000))
    def read(self, part: float, max_bytes: int) -> None:
        offset = self.start + int(part * (len(self.records) - self.start))
        expected = [(n, self.records[n].value) for n in range(offset, len(self.records))]
        assert read_values(self.log, offset, max_bytes) == expected

    @precondition(lambda self: hasattr(self, "log"))
    @rule(time=times)
    def look_up_by_time(self, time: int) -> None:
        found = look_up_time(self.log, NOW_MS + time)
        expected = next(
            (n for n in range(self.start, len(self.records))
             if self.records[n].timestamp >= NOW_MS + time),
            None,
        )  # fmt: skip
        assert (None if found is None else found.offset) == expected

    @precondition(lambda self: hasattr(self, "log") and self.records)
    @rule(epoch=st.integers(0, 5))
    def look_up_by_epoch(self, epoch: int) -> None:
        found = self.log.end_offset_for_epoch(epoch)
        if found.end_offset >= 0 and found.leader_epoch >= 0:
            for n in range(self.start, min(found.end_offset, len(self.records))):
                assert self.records[n].epoch <= max(epoch, found.leader_epoch)
            for n in range(max(found.end_offset, self.start), len(self.records)):
                assert self.records[n].epoch > epoch

    @precondition(lambda self: hasattr(self, "log"))
    @rule()
    def batches_are_whole(self) -> None:
        for batch in read_batches(self.log, self.start):
            batch.ensure_valid()
            assert len(read_records(batch)) == batch.count


TestLogMachine = pytest.mark.filterwarnings("default")(LogMachine.TestCase)
TestLogMachine.settings = settings(
    max_examples=examples(40),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@settings(max_examples=examples(25), deadline=None)
@given(
    operations=st.lists(
        st.tuples(st.integers(0, 2), st.integers(-1, 6), st.integers(1, 3), st.integers(0, 1)),
        max_size=40,
    )
)
def test_producer_state_after_a_restart_is_what_it_was(
    operations: list[tuple[int, int, int, int]],
) -> None:
    with tempfile.TemporaryDirectory() as name:
        log = create_log(Path(name), CONFIGS[0])
        next_sequence = {0: 0, 1: 0, 2: 0}
        for producer, hop, count, epoch in operations:
            sequence = next_sequence[producer] if hop < 0 else hop
            try:
                result = append(
                    log,
                    *[b"v"] * count,
                    producer_id=producer,
                    producer_epoch=epoch,
                    base_sequence=sequence,
                )
            except KafkaError:
                continue
            if not result.duplicate:
                next_sequence[producer] = sequence + count
        before = log.producers.active()
        assert reopen(Path(name), CONFIGS[0], clean=False).producers.active() == before
        close(log)
        assert reopen(Path(name), CONFIGS[0]).producers.active() == before
