"""What the log says about one transactional id, and the steps from one such value to the next.

Every value is immutable; a step returns a new one, which :mod:`.records` turns into a record. The
rules of a request stand in :mod:`.coordinator`: a step checks only that the transition exists.

Epochs run up to 32767. A client is never given 32767, so that the coordinator can always fence one
time more; a producer at 32766 gets a new producer id with its next epoch (``is_exhausted``). Kafka:
``TransactionMetadata``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, TypeAlias

from millstream.coordinator.transaction.states import PREVIOUS, TransactionState
from millstream.model.producer import MAX_PRODUCER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID

Partitions: TypeAlias = Mapping[str, frozenset[int]]
"""Partitions by topic."""

NO_PARTITIONS: Final[Partitions] = MappingProxyType({})
NO_TIMESTAMP: Final = -1
EPOCH_BUMP: Final = 2
"""The transaction version from which on each end of a transaction bumps the epoch (KIP-890)."""


def is_exhausted(epoch: int) -> bool:
    """True if a client that has this epoch needs a new producer id for the next one."""
    return epoch >= MAX_PRODUCER_EPOCH - 1


def joined(partitions: Partitions, added: Partitions) -> Partitions:
    """Return both."""
    both = dict(partitions)
    for topic, indexes in added.items():
        both[topic] = both.get(topic, frozenset()) | indexes
    return both


def contains(partitions: Partitions, part: Partitions) -> bool:
    """True if every partition of ``part`` is in ``partitions``."""
    return all(indexes <= partitions.get(topic, frozenset()) for topic, indexes in part.items())


@dataclass(slots=True, kw_only=True)
class TransactionMetadata:
    """The state of one transactional id. Immutable; not frozen, for each transaction makes several,
    and a frozen one takes more than twice as long to make.

    ``previous_producer_id`` is the producer id before the newest record; ``next_producer_id`` takes
    the place of ``producer_id`` when a prepared transaction completes. ``start_ms`` and
    ``last_update_ms`` are wall-clock times in milliseconds, ``start_ms`` is -1 while nothing was
    begun. ``client_version`` is the transaction version of whoever caused the newest state.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    last_update_ms: int
    start_ms: int = NO_TIMESTAMP
    partitions: Partitions = field(default_factory=lambda: NO_PARTITIONS)
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0

    @property
    def is_last_fence(self) -> bool:
        """True where the producer was shut out with epoch 32767 by version 1, or by a coordinator
        of Kafka before 4.3. Ends of version 2 come by that epoch too, on their way to
        ``next_producer_id``.
        """
        return self.producer_epoch == MAX_PRODUCER_EPOCH and self.next_producer_id == NO_PRODUCER_ID

    @property
    def last_epoch(self) -> int:
        """The epoch that the producer had before the newest end of a transaction bumped it; -1 if
        none did. An InitProducerId that names it is the retry of one that was served.
        """
        is_bumped = self.client_version >= EPOCH_BUMP and self.state in _BUMPED
        if not is_bumped or self.is_last_fence:
            return NO_PRODUCER_EPOCH
        if self.producer_epoch == 0:
            return MAX_PRODUCER_EPOCH - 1
        return self.producer_epoch - 1

    def with_epoch(
        self, epoch: int, *, timeout_ms: int, now_ms: int, producer_id: int | None = None
    ) -> TransactionMetadata:
        """Return the state of a producer that was given an epoch, and maybe a new id."""
        return self._step(
            TransactionState.EMPTY,
            now_ms,
            producer=(self.producer_id if producer_id is None else producer_id, epoch),
            timeout_ms=timeout_ms,
            partitions=NO_PARTITIONS,
            start_ms=NO_TIMESTAMP,
        )

    def with_same_epoch(self, *, timeout_ms: int, now_ms: int) -> TransactionMetadata:
        """Return the state after the retry of an InitProducerId that was served: the producer id
        before it stays known, for there may be another retry.
        """
        state = self.with_epoch(self.producer_epoch, timeout_ms=timeout_ms, now_ms=now_ms)
        return replace(state, previous_producer_id=self.previous_producer_id)

    def with_partitions(
        self, added: Partitions, *, now_ms: int, client_version: int
    ) -> TransactionMetadata:
        """Return the state of a transaction with more partitions; begin it if none is running."""
        is_running = self.state is TransactionState.ONGOING
        return self._step(
            TransactionState.ONGOING,
            now_ms,
            partitions=joined(self.partitions, added) if is_running else dict(added),
            start_ms=self.start_ms if is_running else now_ms,
            client_version=client_version,
        )

    def prepared(
        self,
        *,
        commit: bool,
        now_ms: int,
        client_version: int,
        next_producer_id: int = NO_PRODUCER_ID,
    ) -> TransactionMetadata:
        """Return the state in which the outcome is decided.

        From version 2 on the epoch is one higher; past 32766 that is 32767, which no client sees:
        ``next_producer_id`` follows.
        """
        epoch = self.producer_epoch
        if client_version >= EPOCH_BUMP:
            epoch = min(epoch + 1, MAX_PRODUCER_EPOCH)
        is_running = self.state is TransactionState.ONGOING
        return self._step(
            TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
            now_ms,
            producer=(self.producer_id, epoch),
            start_ms=self.start_ms if is_running else now_ms,
            next_producer_id=next_producer_id,
            client_version=client_version,
        )

    def fenced(
        self, *, now_ms: int, client_version: int, next_producer_id: int = NO_PRODUCER_ID
    ) -> TransactionMetadata:
        """Return the state in which the coordinator aborts a running transaction and shuts out its
        producer: one epoch higher in both versions, which from version 2 on the end brings anyway.
        """
        fence = self
        if client_version < EPOCH_BUMP:
            fence = replace(self, producer_epoch=min(self.producer_epoch + 1, MAX_PRODUCER_EPOCH))
        return fence.prepared(
            commit=False,
            now_ms=now_ms,
            client_version=client_version,
            next_producer_id=next_producer_id,
        )

    def completed(self, now_ms: int) -> TransactionMetadata:
        """Return the state after the last marker."""
        is_rotated = self.client_version >= EPOCH_BUMP and self.next_producer_id != NO_PRODUCER_ID
        return self._step(
            TransactionState.COMPLETE_COMMIT
            if self.state is TransactionState.PREPARE_COMMIT
            else TransactionState.COMPLETE_ABORT,
            now_ms,
            producer=(self.next_producer_id, 0) if is_rotated else None,
            next_producer_id=NO_PRODUCER_ID,
            partitions=NO_PARTITIONS,
        )

    def _step(
        self,
        state: TransactionState,
        now_ms: int,
        *,
        producer: tuple[int, int] | None = None,
        timeout_ms: int | None = None,
        start_ms: int | None = None,
        partitions: Partitions | None = None,
        next_producer_id: int | None = None,
        client_version: int | None = None,
    ) -> TransactionMetadata:
        """Return the next state, of a producer's id and epoch; what is None stays as it is."""
        assert self.state in PREVIOUS[state], f"no transition from {self.state!r} to {state!r}"
        producer_id, producer_epoch = producer or (self.producer_id, self.producer_epoch)
        return TransactionMetadata(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timeout_ms=self.timeout_ms if timeout_ms is None else timeout_ms,
            state=state,
            last_update_ms=now_ms,
            start_ms=self.start_ms if start_ms is None else start_ms,
            partitions=self.partitions if partitions is None else partitions,
            previous_producer_id=self.producer_id,
            next_producer_id=self.next_producer_id
            if next_producer_id is None
            else next_producer_id,
            client_version=self.client_version if client_version is None else client_version,
        )


_BUMPED: Final = frozenset(
    {
        TransactionState.PREPARE_COMMIT,
        TransactionState.PREPARE_ABORT,
        TransactionState.COMPLETE_COMMIT,
        TransactionState.COMPLETE_ABORT,
    }
)
