"""Producer ids: unique across restarts and brokers, one reservation for many who wait."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from millstream.controller import paths
from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred
from millstream.model.errors import KafkaError, StorageError
from millstream.model.metadata_store import Create, Done, Node, Operation
from millstream.runtime.offload import InlineOffload
from millstream.runtime.producer_ids import (
    BLOCK_SIZE,
    MAX_PRODUCER_ID,
    ProducerIds,
    first_unused_id,
)
from millstream.sqlite.metadata_store import SqliteMetadataStore


class SlowStore(SqliteMetadataStore):
    """Keeps the outcomes of writes back until told to let them go."""

    def __init__(self, directory: Path) -> None:
        super().__init__(InlineOffload(), directory)
        self.held: list[tuple[Deferred[tuple[Done, ...]], Sequence[Operation]]] | None = None
        self.writes = 0

    def multi(self, operations: Sequence[Operation]) -> Deferred[tuple[Done, ...]]:
        self.writes += 1
        if self.held is None:
            return super().multi(operations)
        outcome: Deferred[tuple[Done, ...]] = Deferred()
        self.held.append((outcome, operations))
        return outcome

    def release(self) -> None:
        assert self.held is not None
        held, self.held = self.held, None
        for outcome, operations in held:
            super().multi(operations).on_done(lambda done, to=outcome: to.complete(done.result()))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SlowStore]:
    store = SlowStore(tmp_path)
    yield store
    store.close().result()


def ids(store: SlowStore, broker_id: int = 1) -> ProducerIds:
    return ProducerIds(store, BrokerId(broker_id), on_store_failed=lambda _: None)


def test_ids_follow_each_other_and_a_block_is_one_write(store: SlowStore) -> None:
    producer_ids = ids(store)
    handed_out = [producer_ids.next().result() for _ in range(BLOCK_SIZE + 2)]
    assert handed_out == list(range(BLOCK_SIZE + 2))
    assert store.writes == 2


def test_a_restart_and_another_broker_get_other_ids(store: SlowStore) -> None:
    handed_out = [ids(store, broker).next().result() for broker in (1, 1, 2)]
    assert handed_out == [0, BLOCK_SIZE, 2 * BLOCK_SIZE]


def test_a_new_store_begins_above_what_the_logs_remember(store: SlowStore) -> None:
    assert first_unused_id([]) == 0
    assert first_unused_id([4, 17, 3]) == 18
    assert first_unused_id([4, MAX_PRODUCER_ID]) == 5, "a client made that one up"
    first = ProducerIds(store, BrokerId(1), on_store_failed=lambda _: None, first_id=18)
    assert first.next().result() == 18
    again = ProducerIds(store, BrokerId(1), on_store_failed=lambda _: None, first_id=7)
    assert again.next().result() == 18 + BLOCK_SIZE


def test_all_who_wait_share_a_reservation(store: SlowStore) -> None:
    producer_ids = ids(store)
    store.held = []
    waiting = [producer_ids.next() for _ in range(BLOCK_SIZE + 5)]
    assert not any(each.done for each in waiting)
    store.release()
    assert sorted(each.result() for each in waiting) == list(range(BLOCK_SIZE + 5))
    assert store.writes == 2


def test_a_faster_broker_wins_and_the_other_tries_again(store: SlowStore) -> None:
    ids(store).next().result()
    slow = ids(store, 2)
    read = store.get
    faster = [ids(store, 3), ids(store, 4)]

    def get(path: str) -> Deferred[Node]:
        node = read(path)
        if faster:
            faster.pop().next()
        return node

    store.get = get  # type: ignore[method-assign]
    assert slow.next().result() == 3 * BLOCK_SIZE


def test_a_damaged_block_hands_out_nothing(store: SlowStore) -> None:
    store.multi([Create(paths.PRODUCER_ID_BLOCK, b"{}")]).result()
    with pytest.raises(Exception, match="no block"):
        ids(store).next().result()


def test_a_failed_disk_is_reported(store: SlowStore) -> None:
    failures: list[StorageError] = []
    producer_ids = ProducerIds(store, BrokerId(1), failures.append)

    def multi(operations: Sequence[Operation]) -> Deferred[tuple[Done, ...]]:
        outcome: Deferred[tuple[Done, ...]] = Deferred()
        outcome.fail(StorageError("/disk", "full"))
        return outcome

    store.multi = multi  # type: ignore[method-assign]
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        producer_ids.next().result()
    assert [each.directory for each in failures] == ["/disk"]
    del store.multi
    assert producer_ids.next().result() == 0
