"""Share partitions' state: batches against a plain model of offsets, and records against memory."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from millstream.coordinator.result import CoordinatorRecord, Instant, Result
from millstream.coordinator.share.coordinator import ShareCoordinator, ShareCoordinatorSettings
from millstream.coordinator.share.state_batches import combine_batches
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicId
from millstream.share.state import SharePartitionKey, ShareStateUpdate, StateBatch

TOPIC = TopicId(bytes(range(16)))
LAST_OFFSET = 30


@st.composite
def state_batches(draw: st.DrawFn) -> StateBatch:
    first = draw(st.integers(0, LAST_OFFSET))
    last = draw(st.integers(first, LAST_OFFSET))
    return StateBatch(first, last, draw(st.sampled_from([0, 2, 4])), draw(st.integers(0, 3)))


def by_offset(batches: tuple[StateBatch, ...] | list[StateBatch], start: int) -> dict[int, object]:
    """Return the count and state of each offset: the highest count wins, then the highest state."""
    model: dict[int, tuple[int, int]] = {}
    for each in batches:
        for offset in range(max(each.first_offset, start), each.last_offset + 1):
            said = (each.delivery_count, each.delivery_state)
            model[offset] = max(model.get(offset, said), said)
    return dict(model)


@pytest.mark.slow
@settings(max_examples=examples(500))
@given(st.lists(state_batches(), max_size=12), st.integers(-1, LAST_OFFSET + 2))
def test_combined_batches_say_of_each_offset_what_the_model_says(
    batches: list[StateBatch], start_offset: int
) -> None:
    combined = combine_batches(batches, start_offset=start_offset)
    assert by_offset(combined, 0) == by_offset(batches, start_offset)
    for before, after in itertools.pairwise(combined):
        assert before.last_offset < after.first_offset, "in order, none overlapping"
        is_neighbour = before.last_offset + 1 == after.first_offset
        assert not (is_neighbour and before[2:] == after[2:]), "neighbours of one state are one"
    assert combine_batches(combined, start_offset=start_offset) == combined


@given(st.lists(state_batches(), max_size=8), st.lists(state_batches(), max_size=8))
def test_the_order_of_batches_does_not_matter(
    one: list[StateBatch], other: list[StateBatch]
) -> None:
    assert combine_batches([*one, *other], start_offset=-1) == combine_batches(
        [*other, *one], start_offset=-1
    )


@dataclass
class Driver:
    """A share coordinator whose records go to a list, with the offset of each."""

    settings: ShareCoordinatorSettings
    time_ms: int = 1_000_000
    log: list[tuple[int, CoordinatorRecord]] | None = None
    next_offset: int = 0

    def __post_init__(self) -> None:
        self.log = self.log or []
        self.shard = self.new()

    def new(self) -> ShareCoordinator:
        return ShareCoordinator(self.settings, lambda topic_id: 3 if topic_id == TOPIC else None)

    def run(self, result: Result[Any]) -> None:
        assert self.log is not None
        for record in result.records:
            key, value = record.encode()
            decoded = self.shard.decode(key, value)
            assert decoded is not None
            self.shard.replay(decoded, record_offset=self.next_offset)
            self.log.append((self.next_offset, decoded))
            self.next_offset += 1

    def rebuilt(self) -> ShareCoordinator:
        """Return a coordinator loaded from what the log holds now."""
        assert self.log is not None
        shard = self.new()
        for offset, record in self.log:
            shard.replay(record, record_offset=offset)
        return shard

    def prune(self) -> None:
        assert self.log is not None
        found = self.shard.redundant_offset().response
        assert found is not None
        self.log[:] = [each for each in self.log if each[0] >= found]


def seen(shard: ShareCoordinator, key: SharePartitionKey) -> object:
    """Return all that requests can find out about a share partition, fencing included."""
    answers: list[object] = [shard.read_summary(key).response]
    for epoch in range(6):
        now = Instant(0, 0.0)
        update = ShareStateUpdate(state_epoch=epoch, leader_epoch=epoch)
        try:
            answers.append(shard.read(key, leader_epoch=epoch, now=now).response)
        except KafkaError as error:
            answers.append(error.error)
        try:
            answers.append([r.encode() for r in shard.write(key, update, now).records])
        except KafkaError as error:
            answers.append(error.error)
    return answers


KEYS = [SharePartitionKey("g", TOPIC, 0), SharePartitionKey("g", TOPIC, 1)]

steps = st.one_of(
    st.tuples(st.just("initialize"), st.sampled_from(KEYS), st.integers(0, 4), st.integers(-1, 9)),
    st.tuples(st.just("read"), st.sampled_from(KEYS), st.integers(0, 5)),
    st.tuples(
        st.just("write"),
        st.sampled_from(KEYS),
        st.integers(0, 4),
        st.integers(0, 5),
        st.integers(-1, LAST_OFFSET),
        st.lists(state_batches(), max_size=3).map(tuple),
    ),
    st.tuples(st.just("delete"), st.sampled_from(KEYS)),
    st.tuples(st.just("cold")),
    st.tuples(st.just("reload")),
)


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(st.lists(steps, max_size=40), st.integers(0, 3))
def test_a_coordinator_that_is_loaded_answers_as_the_one_that_wrote(
    program: list[tuple[Any, ...]], updates_per_snapshot: int
) -> None:
    """With snapshots, cold snapshots, state that is begun anew, and reloads in the middle."""
    driver = Driver(ShareCoordinatorSettings(updates_per_snapshot, cold_snapshot_interval_ms=5))
    refusals: set[ErrorCode] = set()
    for step in program:
        now = Instant(driver.time_ms, 0.0)
        driver.time_ms += 3
        try:
            match step:
                case ("initialize", key, epoch, start):
                    driver.run(
                        driver.shard.initialize(key, state_epoch=epoch, start_offset=start, now=now)
                    )
                case ("read", key, epoch):
                    driver.run(driver.shard.read(key, leader_epoch=epoch, now=now))
                case ("write", key, state_epoch, leader_epoch, start, batches):
                    update = ShareStateUpdate(state_epoch, leader_epoch, start, 0, batches)
                    driver.run(driver.shard.write(key, update, now))
                case ("delete", key):
                    driver.run(driver.shard.delete(key))
                case ("cold",):
                    driver.run(driver.shard.snapshot_cold(now))
                case _:
                    driver.shard = driver.rebuilt()
        except KafkaError as error:
            refusals.add(error.error)
        rebuilt = driver.rebuilt()
        for key in KEYS:
            assert seen(rebuilt, key) == seen(driver.shard, key)
        assert rebuilt.redundant_offset().response == driver.shard.redundant_offset().response
    assert refusals <= {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.INVALID_REQUEST,
    }


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(
    st.lists(
        st.tuples(
            st.sampled_from(KEYS),
            st.integers(-1, LAST_OFFSET),
            st.lists(state_batches(), max_size=3).map(tuple),
            st.booleans(),
        ),
        max_size=40,
    ),
    st.integers(0, 3),
)
def test_what_is_pruned_is_not_needed(
    writes: list[tuple[SharePartitionKey, int, tuple[StateBatch, ...], bool]],
    updates_per_snapshot: int,
) -> None:
    driver = Driver(ShareCoordinatorSettings(updates_per_snapshot, cold_snapshot_interval_ms=5))
    now = Instant(0, 0.0)
    for key in KEYS:
        driver.run(driver.shard.initialize(key, state_epoch=1, start_offset=0, now=now))
    for key, start_offset, batches, prunes in writes:
        update = ShareStateUpdate(1, 0, start_offset, 0, batches)
        driver.run(driver.shard.write(key, update, now))
        if prunes:
            driver.prune()
        for each in KEYS:
            assert seen(driver.rebuilt(), each) == seen(driver.shard, each)
