"""Batches that wait before they are appended: their order, their refusals, their memory."""

from __future__ import annotations

import pytest
from tests.unit.runtime.log_site import batch

from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.records.batch import Batch
from millstream.runtime.replicas.admission import AdmissionBudget, AdmissionQueue
from millstream.storage.log import AppendResult


class Site:
    """One queue before a list that stands for a log."""

    def __init__(self, limit_bytes: int = 1 << 20) -> None:
        self.budget = AdmissionBudget(limit_bytes)
        self.queue = AdmissionQueue(self.budget)
        self.log: list[bytes] = []
        self.refusal: KafkaError | None = None

    def append(self, appended: Batch) -> AppendResult:
        if self.refusal is not None:
            raise self.refusal
        self.log.append(bytes(appended.buffer)[-2:-1])
        return AppendResult(len(self.log) - 1, len(self.log) - 1, -1, 0)

    def admit(self, wait: Deferred[Batch], size: int = 100) -> Deferred[AppendResult]:
        return self.queue.admit(size, lambda: wait, self.append)

    @property
    def waits(self) -> bool:
        return bool(self.queue.entries)


def error_of(outcome: Deferred[AppendResult]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        outcome.result()
    return caught.value.error


def test_batches_are_appended_in_the_order_in_which_they_were_admitted() -> None:
    site = Site()
    first: Deferred[Batch] = Deferred()
    second: Deferred[Batch] = Deferred()
    outcomes = [site.admit(first), site.admit(second), site.admit(Deferred.of(batch(b"c")))]
    second.complete(batch(b"b"))
    assert not any(outcome.done for outcome in outcomes)
    first.complete(batch(b"a"))
    assert [outcome.result().base_offset for outcome in outcomes] == [0, 1, 2]
    assert site.log == [b"a", b"b", b"c"]
    assert not site.waits


def test_a_batch_whose_wait_fails_is_refused_and_the_next_goes_on() -> None:
    site = Site()
    first: Deferred[Batch] = Deferred()
    outcome, behind = site.admit(first), site.admit(Deferred.of(batch(b"b")))
    first.fail(KafkaError(ErrorCode.INVALID_RECORD))
    assert error_of(outcome) is ErrorCode.INVALID_RECORD
    assert behind.result().base_offset == 0
    assert site.log == [b"b"]


def test_what_nobody_foresaw_is_an_error_of_the_batch(caplog: pytest.LogCaptureFixture) -> None:
    site = Site()
    wait: Deferred[Batch] = Deferred()
    outcome = site.admit(wait)
    wait.fail(MemoryError("a codec is out of memory"))
    assert error_of(outcome) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "a codec is out of memory" in caplog.text


def test_an_append_that_refuses_is_an_error_of_the_batch() -> None:
    site = Site()
    wait: Deferred[Batch] = Deferred()
    outcome = site.admit(wait)
    site.refusal = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    wait.complete(batch(b"a"))
    assert error_of(outcome) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_end_of_a_role_refuses_all_that_wait_and_drops_what_comes_late() -> None:
    site = Site()
    first: Deferred[Batch] = Deferred()
    outcomes = [site.admit(first), site.admit(Deferred.of(batch(b"b")))]
    site.queue.refuse_all(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert [error_of(each) for each in outcomes] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert site.budget.used_bytes == 100, "the batch that is still prepared"
    first.complete(batch(b"a"))
    assert (site.log, site.waits, site.budget.used_bytes) == ([], False, 0)


def test_an_append_that_ends_the_role_refuses_those_behind_it() -> None:
    site = Site()
    gone = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    def append(_: Batch) -> AppendResult:
        site.queue.refuse_all(gone)
        raise gone

    wait: Deferred[Batch] = Deferred()
    outcome = site.queue.admit(100, lambda: wait, append)
    behind = site.admit(Deferred.of(batch(b"b")))
    wait.complete(batch(b"a"))
    assert [error_of(each) for each in (outcome, behind)] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert (site.log, site.budget.used_bytes) == ([], 0)


def test_a_batch_that_an_answer_brings_follows_those_that_wait() -> None:
    """A producer sends its next batch when it has heard of the one before."""
    site = Site()
    first: Deferred[Batch] = Deferred()
    outcome = site.admit(first)
    site.admit(Deferred.of(batch(b"b")))
    outcome.on_done(lambda _: site.admit(Deferred.of(batch(b"c"))))
    first.complete(batch(b"a"))
    assert site.log == [b"a", b"b", b"c"]


def test_what_does_not_fit_into_memory_is_refused_unread() -> None:
    site = Site(limit_bytes=250)
    first: Deferred[Batch] = Deferred()
    site.admit(first)
    site.admit(Deferred.of(batch(b"b")))
    waited: list[int] = []

    def wait() -> Deferred[Batch]:
        waited.append(1)
        return Deferred.of(batch(b"c"))

    refused = site.queue.admit(100, wait, site.append)
    assert (error_of(refused), waited) == (ErrorCode.REQUEST_TIMED_OUT, [])
    first.complete(batch(b"a"))
    assert site.budget.used_bytes == 0
    large: Deferred[Batch] = Deferred()
    site.admit(large, size=1_000)
    assert site.budget.used_bytes == 1_000, "one batch fits always"
    large.complete(batch(b"d"))
    assert site.log == [b"a", b"b", b"d"]


def test_the_end_of_a_role_is_told_to_all_though_one_answer_raises(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = Site()

    def fault(_: object) -> None:
        raise RuntimeError("a fault of ours")

    site.admit(Deferred()).on_done(fault)
    behind = site.admit(Deferred())
    site.queue.refuse_all(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert error_of(behind) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert "a fault of ours" in caplog.text


def test_a_wait_that_cannot_begin_leaves_nothing_counted() -> None:
    site = Site()

    def wait() -> Deferred[Batch]:
        raise MemoryError("no room for a copy")

    with pytest.raises(MemoryError):
        site.queue.admit(100, wait, site.append)
    assert (site.budget.used_bytes, site.waits) == (0, False)


def test_an_answer_that_raises_holds_up_nobody_behind_it() -> None:
    site = Site()
    first: Deferred[Batch] = Deferred()

    def fault(_: object) -> None:
        raise RuntimeError("a fault of ours")

    site.admit(first).on_done(fault)
    behind = site.admit(Deferred.of(batch(b"b")))
    with pytest.raises(RuntimeError, match="a fault of ours"):
        first.complete(batch(b"a"))
    assert behind.result().base_offset == 1
