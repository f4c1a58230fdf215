"""A power loss at any step of any scenario: what was flushed is there, and nothing is broken."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.memory_files import MemoryFileSystem, PowerLossError
from tests.unit.storage.support import NOW_MS, append, read_batches, read_values

from millstream.config.topic import TopicConfig
from millstream.model.topic import TopicId, TopicPartition
from millstream.storage.environment import LogEnvironment
from millstream.storage.log import Log
from millstream.storage.log_manager import LogManager
from millstream.storage.log_retention import delete_old_segments

ORDERS = TopicPartition("orders", 0)
TOPIC_ID = TopicId(bytes(range(16)))
CONFIG = TopicConfig(
    {
        "internal.segment.bytes": "600",
        "index.interval.bytes": "100",
        "segment.index.bytes": "1200",
    }
)

ACTIONS = ["append", "append", "append", "flush", "checkpoint", "roll", "delete", "remove",
           "restart", "epoch"]  # fmt: skip


class Broker:
    """One broker's storage on a file system in memory, and what its clients were promised."""

    def __init__(self, files: MemoryFileSystem) -> None:
        self.files = files
        self.written: list[bytes] = []
        self.acknowledged = 0
        self.start_offset = 0
        self.epoch = 0
        self.now_ms = NOW_MS

    def start(self) -> None:
        self.manager = LogManager(["/data"], LogEnvironment(file_system=self.files), broker_id=1)
        self.manager.lock()
        self.manager.start(config_of=lambda partition, topic_id: CONFIG, now_ms=self.now_ms)

    @property
    def log(self) -> Log:
        return self.manager.get_or_create(ORDERS, TOPIC_ID, CONFIG, now_ms=self.now_ms)

    def act(self, action: str, number: int) -> None:
        log = self.log
        self.now_ms += 10_000
        if action == "append":
            values = [b"%d-%d" % (number, k) * 5 for k in range(number % 3 + 1)]
            self.written += values
            append(log, *values, epoch=self.epoch, producer_id=1, producer_epoch=0,
                   base_sequence=log.log_end_offset)  # fmt: skip
        elif action == "flush":
            plan = log.flush_plan()
            if plan is not None:
                plan.run()
                log.flushed(plan)
            self.acknowledged = log.log_end_offset
        elif action == "checkpoint":
            self.manager.checkpoint_plan()()
        elif action == "roll":
            log.appender.roll(now_ms=self.now_ms)
        elif action == "delete":
            self.start_offset = log.log_start_offset + 3
            if self.start_offset <= log.high_watermark:
                log.truncation.increment_log_start_offset(self.start_offset)
                delete_old_segments(log, now_ms=self.now_ms)
        elif action == "remove":
            self.manager.removals.run_due(self.now_ms)
        elif action == "epoch":
            self.epoch += 1
            log.assign_epoch_start(self.epoch)
        else:
            self.manager.close()
            self.acknowledged = len(self.written)
            self.start()


def check(broker: Broker, log: Log | None) -> None:
    if log is None:
        assert broker.acknowledged == 0, "a log with flushed records is gone"
        return
    assert log.log_end_offset >= broker.acknowledged
    assert log.log_start_offset <= max(broker.start_offset, 0)
    for batch in read_batches(log, log.log_start_offset):
        batch.ensure_valid()
    found = read_values(log, log.log_start_offset)
    assert found == [
        (n, broker.written[n]) for n in range(log.log_start_offset, log.log_end_offset)
    ]
    assert log.latest_epoch <= broker.epoch
    (producer,) = log.producers.active() or [None]
    if producer is not None:
        assert producer.last_sequence == log.log_end_offset - 1


def stop_after(files: MemoryFileSystem, steps: int) -> None:
    """Let the power go at the step after so many."""

    def hook(step: str, path: str) -> None:
        if files.steps == steps:
            raise PowerLossError

    files.hook = hook


def run(actions: Sequence[str], crash_after: int, crash_again_after: int, seed: int) -> int:
    """Run a scenario up to a power loss, and the start after it up to another; return how many
    steps the file system took.
    """
    chance = random.Random(seed)
    files = MemoryFileSystem()
    broker = Broker(files)
    stop_after(files, crash_after)
    try:
        broker.start()
        for number, action in enumerate(actions):
            broker.act(action, number)
    except PowerLossError:
        pass
    steps = files.steps
    files = files.crashed(chance)
    stop_after(files, crash_again_after)
    with suppress(PowerLossError):
        Broker(files).start()
    after = Broker(files.crashed(chance))
    after.start()
    after.written, after.acknowledged = broker.written, broker.acknowledged
    after.start_offset, after.epoch = broker.start_offset, broker.epoch
    check(after, after.manager.get(ORDERS))
    log = after.log
    del after.written[log.log_end_offset :]
    after.act("append", 99)
    after.act("restart", 0)
    check(after, after.manager.get(ORDERS))
    return steps


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None)
@given(
    actions=st.lists(st.sampled_from(ACTIONS), min_size=1, max_size=25),
    crash=st.floats(0, 1),
    again=st.integers(1, 60),
    seed=st.integers(0, 2**16),
)
@example(actions=["append", "flush", "append", "restart", "append"], crash=0.9, again=5, seed=1)
def test_a_power_loss_at_any_step(actions: list[str], crash: float, again: int, seed: int) -> None:
    steps = run(actions, -1, -1, seed)
    run(actions, int(crash * steps) + 1, again, seed)


STORY = ["append", "flush", "append", "append", "roll", "append", "flush", "checkpoint", "epoch",
         "append", "delete", "remove", "append", "flush", "roll", "restart", "append", "append",
         "flush", "delete", "checkpoint", "remove", "append", "flush"]  # fmt: skip


@pytest.mark.slow
def test_a_power_loss_at_every_step_of_one_story() -> None:
    """Every write, flush, rename and removal of this story is where the power goes once."""
    steps = run(STORY, -1, -1, 0)
    for step in range(1, steps + 1):
        run(STORY, step, 1 + step % 23, step)
