"""The transactional ids of one shard, and the deadlines of their running transactions.

An id that runs no transaction takes about 300 bytes and its own length; a running transaction takes
700 bytes, 60 more for each of its partitions, and while it ends another 60 for each. The partitions
of one transaction have to fit in one record (``TransactionSettings.max_record_bytes``): one that
would not is refused with UNKNOWN_SERVER_ERROR, as Kafka does. So an id takes some megabytes at
most. An id that is not used is forgotten after ``transactional.id.expiration.ms``; until then their
number is not limited, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator

from millstream.coordinator.deadlines import Deadlines
from millstream.coordinator.result import Instant
from millstream.coordinator.transaction.metadata import TransactionMetadata
from millstream.coordinator.transaction.states import TransactionState
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.producer import NO_PRODUCER_EPOCH


class Transactions:
    """State by transactional id; replay of the log is the only way in which it changes."""

    def __init__(self) -> None:
        self._by_id: dict[str, TransactionMetadata] = {}
        self._timeouts: Deadlines[str] = Deadlines()
        self._epochs_before: dict[str, tuple[int, int, int]] = {}
        """Producer id, epoch, and the epoch before that one, of producers that were given a new
        epoch in place of their own: what the log does not say and a retry needs."""

    def __iter__(self) -> Iterator[tuple[str, TransactionMetadata]]:
        return iter(self._by_id.items())

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, transactional_id: str) -> TransactionMetadata | None:
        """Return the state of an id; None if it is not known."""
        return self._by_id.get(transactional_id)

    def require(self, transactional_id: str, producer_id: int) -> TransactionMetadata:
        """Return the state of an id that has this producer id; INVALID_PRODUCER_ID_MAPPING."""
        transaction = self._by_id.get(transactional_id)
        if transaction is None or transaction.producer_id != producer_id:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return transaction

    def put(self, transactional_id: str, transaction: TransactionMetadata) -> None:
        """Take over a state from the log."""
        self._by_id[transactional_id] = transaction
        if transaction.state is not TransactionState.ONGOING:
            self._timeouts.cancel(transactional_id)

    def remove(self, transactional_id: str) -> None:
        """Forget an id."""
        self._by_id.pop(transactional_id, None)
        self._epochs_before.pop(transactional_id, None)
        self._timeouts.cancel(transactional_id)

    # The epoch before

    def remember_epoch_before(
        self, transactional_id: str, given: TransactionMetadata, epoch: int
    ) -> None:
        """Note which epoch a producer had before it was given a new one; -1 if it named none."""
        if epoch == NO_PRODUCER_EPOCH:
            self._epochs_before.pop(transactional_id, None)
        else:
            known = given.producer_id, given.producer_epoch, epoch
            self._epochs_before[transactional_id] = known

    def epoch_before(self, transactional_id: str, transaction: TransactionMetadata) -> int:
        """Return the epoch that the producer had before its present one; -1 if it is not known.

        After a move of the coordinator it is known only if the end of a transaction has bumped the
        epoch. Kafka: ``lastProducerEpoch``.
        """
        producer_id, epoch, before = self._epochs_before.get(transactional_id, (-1, -1, -1))
        if (producer_id, epoch) == (transaction.producer_id, transaction.producer_epoch):
            return before
        return transaction.last_epoch

    # Time

    def time_out_later(
        self, transactional_id: str, transaction: TransactionMetadata, now: Instant
    ) -> None:
        """Set the deadline of a running transaction: its start and its timeout, on this clock."""
        left_ms = transaction.start_ms + transaction.timeout_ms - now.wall_ms
        # A clock that stands elsewhere than that of the coordinator before adds no time.
        left_ms = min(max(left_ms, 0), transaction.timeout_ms)
        self._timeouts.set(transactional_id, now.monotonic_ms + left_ms)

    def pop_timed_out(self, now: Instant) -> tuple[str, TransactionMetadata] | None:
        """Return a running transaction that has reached its deadline, and take the deadline out."""
        while (transactional_id := self._timeouts.pop_due(now.monotonic_ms)) is not None:
            transaction = self._by_id.get(transactional_id)
            if transaction is not None and transaction.state is TransactionState.ONGOING:
                return transactional_id, transaction
        return None

    def is_timed_out(self, transactional_id: str, now: Instant) -> bool:
        """True if an id runs a transaction that has reached its deadline."""
        deadline_ms = self._timeouts.deadline(transactional_id)
        return deadline_ms is not None and deadline_ms <= now.monotonic_ms

    def postpone(self, by_ms: float) -> None:
        """Move every deadline later."""
        self._timeouts.postpone(by_ms)
