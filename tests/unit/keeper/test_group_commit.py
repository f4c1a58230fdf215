"""Several requests share a transaction, and each fails or succeeds by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from millstream.keeper.group_commit import MAX_BATCH, GroupCommit
from millstream.model.deferred import Deferred
from millstream.model.errors import StorageError
from millstream.model.metadata_store import BadVersionError, Create, Operation, SetData

T = TypeVar("T")


class HandLane:
    """Work waits until the test runs it."""

    def __init__(self) -> None:
        self.works: list[Callable[[], None]] = []

    def run(self, lane: str, function: Callable[[], T]) -> Deferred[T]:
        outcome: Deferred[T] = Deferred()

        def work() -> None:
            try:
                value = function()
            except Exception as error:
                outcome.fail(error)
            else:
                outcome.complete(value)

        self.works.append(work)
        return outcome

    def step(self) -> None:
        self.works.pop(0)()


@pytest.fixture
def lane() -> HandLane:
    return HandLane()


@pytest.fixture
def store(lane: HandLane, tmp_path: Path) -> GroupCommit:
    made = GroupCommit(lane, tmp_path, on_failed=lambda error: pytest.fail(str(error)))
    made.open()
    lane.step()
    return made


def multi(store: GroupCommit, *operations: Operation) -> Deferred[object]:
    return store.run(lambda database: database.multi(operations))


def test_what_comes_during_a_transaction_shares_the_next(
    lane: HandLane, store: GroupCommit
) -> None:
    first = multi(store, Create("/a", b""))
    others = [multi(store, Create(f"/a{number}", b"")) for number in range(10)]
    lane.step()
    assert first.done
    assert not any(each.done for each in others)
    lane.step()
    assert all(each.done for each in others)
    assert store.commits == 2


def test_one_that_is_refused_takes_nobody_with_it(lane: HandLane, store: GroupCommit) -> None:
    multi(store)
    before = multi(store, Create("/a", b"one"))
    refused = multi(store, Create("/b", b""), SetData("/a", b"two", 7))
    after = multi(store, SetData("/a", b"three", 0))
    reading = store.run(lambda database: (database.get("/a").data, database.children("/")))
    lane.step()
    lane.step()
    before.result()
    after.result()
    with pytest.raises(BadVersionError):
        refused.result()
    assert reading.result() == (b"three", ("a",))


def test_a_transaction_is_bounded(lane: HandLane, store: GroupCommit) -> None:
    multi(store)
    works = [multi(store, Create(f"/{number}", b"")) for number in range(MAX_BATCH + 1)]
    lane.step()
    lane.step()
    assert [each.done for each in works].count(False) == 1


def test_a_commit_that_fails_answers_nobody(lane: HandLane, tmp_path: Path) -> None:
    failures: list[Exception] = []
    store = GroupCommit(lane, tmp_path, on_failed=failures.append)
    store.open()
    lane.step()
    assert store._database is not None
    store._database.abandon()
    works = [multi(store, Create("/a", b"")), multi(store, Create("/b", b""))]
    lane.step()
    assert len(failures) == 1
    assert lane.works == []
    assert not any(each.done for each in works)


def test_a_directory_that_somebody_uses_is_named(
    lane: HandLane, store: GroupCommit, tmp_path: Path
) -> None:
    opening = GroupCommit(lane, tmp_path, on_failed=lambda error: pytest.fail(str(error))).open()
    lane.step()
    with pytest.raises(StorageError, match="another process is using this directory"):
        opening.result()
