"""Batches of one partition that have to wait for something before they are appended.

A batch waits for its preparation off the loop (``records.record_checks.prepare``: compression to
the topic's codec, a look into compressed records), or for anything else that a ``Deferred[Batch]``
stands for. The rules::

    order        batches are appended in the order in which they were admitted; while one waits,
                 every later one of its partition follows it, so a producer's sequence holds
    failure      a batch whose wait fails is refused with that error, and the next one goes on
    append       ``append`` is asked when the batch is due: role, lease and min ISR are looked at
                 again there, for all of them may have changed meanwhile
    end of role  :meth:`AdmissionQueue.refuse_all` answers every batch that waits; what a wait
                 yields afterwards is dropped
    memory       the copies that wait count in an :class:`AdmissionBudget`, which all partitions of
                 a broker share; a batch that does not fit is refused with REQUEST_TIMED_OUT, which
                 producers retry

A wait bounds its own time: the queue has no timers.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.records.batch import Batch
from millstream.records.limits import ProduceLimits
from millstream.records.record_checks import prepare
from millstream.runtime.offload import Offload
from millstream.storage.log import AppendResult

if TYPE_CHECKING:
    from millstream.runtime.replicas.transaction_verification import TransactionVerifier

log = logging.getLogger(__name__)

PREPARATION_LANE: Final = "prepare"

MAX_WAITING_BYTES: Final = 256 << 20
"""Bytes of all batches that wait on one broker."""


class NotAdmittedError(KafkaError):
    """A batch was refused before its log was asked, so nothing of the log is told with it."""


class AdmissionBudget:
    """Counts the bytes of the batches that wait, over all partitions of a broker."""

    __slots__ = ("limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int = MAX_WAITING_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0

    def take(self, size: int) -> bool:
        """Count ``size`` bytes; False, with nothing counted, where they are too many. A batch
        that finds nothing else waiting always fits.
        """
        if self.used_bytes and self.used_bytes + size > self.limit_bytes:
            return False
        self.used_bytes += size
        return True

    def give_back(self, size: int) -> None:
        """Count ``size`` bytes no longer."""
        self.used_bytes -= size


class Preparer:
    """Prepares batches off the loop, one after the other, for all partitions of a broker.

    ``new_verifier`` returns what verifies transactions, always the same; without it their batches
    are refused with NOT_ENOUGH_REPLICAS.
    """

    __slots__ = ("budget", "new_verifier", "offload")

    def __init__(
        self,
        offload: Offload,
        budget: AdmissionBudget | None = None,
        new_verifier: Callable[[], TransactionVerifier] | None = None,
    ) -> None:
        self.offload = offload
        self.budget = budget or AdmissionBudget()
        self.new_verifier = new_verifier

    def prepared(self, batch: Batch, limits: ProduceLimits) -> Deferred[Batch]:
        """Return a copy of ``batch``, prepared where ``limits`` ask for it."""
        copy = batch.copy()
        if not limits.needs_preparation(copy):
            return Deferred.of(copy)
        return self.offload.run(PREPARATION_LANE, lambda: prepare(copy, limits))


class _Entry:
    """One batch that waits; ``outcome`` is filled when it is appended or refused."""

    __slots__ = ("append", "outcome", "ready", "size")

    def __init__(
        self, ready: Deferred[Batch], append: Callable[[Batch], AppendResult], size: int
    ) -> None:
        self.ready = ready
        self.append = append
        self.size = size
        self.outcome: Deferred[AppendResult] = Deferred()


class AdmissionQueue:
    """The batches of one partition that wait, in order."""

    __slots__ = ("_budget", "entries")

    def __init__(self, budget: AdmissionBudget) -> None:
        self._budget = budget
        self.entries: deque[_Entry] = deque()
        """Empty while nothing waits: then a batch that needs nothing is appended at once."""

    def admit(
        self,
        size: int,
        wait: Callable[[], Deferred[Batch]],
        append: Callable[[Batch], AppendResult],
    ) -> Deferred[AppendResult]:
        """Let ``append`` have the batch that ``wait`` yields, after all that were admitted before.

        ``size`` is what the batch holds in memory meanwhile. ``wait`` is called once there is room
        for it. The outcome fails with a KafkaError only: what a wait or ``append`` raises beside
        that is logged and becomes UNKNOWN_SERVER_ERROR.
        """
        if not self._budget.take(size):
            refused: Deferred[AppendResult] = Deferred()
            refused.fail(
                KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"{self._budget.used_bytes} bytes wait to be prepared for their append",
                )
            )
            return refused
        try:
            ready = wait()
        except BaseException:
            self._budget.give_back(size)
            raise
        entry = _Entry(ready, append, size)
        self.entries.append(entry)
        entry.ready.on_done(lambda _: self._on_ready(entry))
        return entry.outcome

    def refuse_all(self, error: KafkaError) -> None:
        """Answer every batch that waits with ``error``. Bytes count until their wait is over."""
        entries, self.entries = self.entries, deque()
        for entry in entries:
            if entry.ready.done:
                self._budget.give_back(entry.size)
            try:
                entry.outcome.fail(error)
            except Exception:  # of whoever was told: those behind are told all the same
                log.exception("a write could not be answered")

    def _on_ready(self, entry: _Entry) -> None:
        if entry.outcome.done:  # refused while it waited
            self._budget.give_back(entry.size)
            return
        failure: Exception | None = None
        while self.entries and self.entries[0].ready.done:
            try:
                self._settle(self.entries.popleft())
            except Exception as error:  # of whoever was told: those behind go on
                failure = failure or error
        if failure is not None:
            raise failure

    def _settle(self, entry: _Entry) -> None:
        self._budget.give_back(entry.size)
        try:
            result = entry.append(entry.ready.result())
        except KafkaError as error:
            entry.outcome.fail(error)
        except Exception as error:  # what a codec makes of bytes that no check foresaw
            log.exception("a batch could not be prepared for its append")
            refusal = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            refusal.__cause__ = error
            entry.outcome.fail(refusal)
        else:
            entry.outcome.complete(result)
