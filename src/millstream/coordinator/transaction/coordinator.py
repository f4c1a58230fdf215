"""The transaction coordinator of one partition of ``__transaction_state``.

It answers the requests about the transactional ids that hash to this partition, and is rebuilt from
the partition's records. Pure: the driver (``runtime.coordinators``) passes the time, appends the
records, and sends no answer and no marker before the records they depend on are committed.

The state of an id changes by ``replay`` alone. Only in memory are the markers on their way
(:mod:`.markers`), which begin anew wherever the coordinator is loaded, and the deadlines. An
operation that needs a new producer id and was given none answers :class:`NeedsProducerId`: it has
changed nothing and is run again with one. Kafka: ``TransactionCoordinator``,
``TransactionStateManager``.
"""

from __future__ import annotations

from functools import partial
from typing import Final, TypeVar

from millstream.coordinator.result import CoordinatorRecord, Instant, Result, TopicChange
from millstream.coordinator.transaction.end_txn import end_version_1, end_version_2
from millstream.coordinator.transaction.init_producer_id import (
    NeedsProducerId,
    ProducerIdAndEpoch,
    give_epoch,
)
from millstream.coordinator.transaction.listing import (
    TransactionFilter,
    describe,
    list_states,
)
from millstream.coordinator.transaction.markers import MarkerWriter, each_partition
from millstream.coordinator.transaction.metadata import (
    EPOCH_BUMP,
    Partitions,
    TransactionMetadata,
    contains,
    is_exhausted,
)
from millstream.coordinator.transaction.records import (
    decode_record,
    tombstone,
    transaction_from,
    transaction_record,
)
from millstream.coordinator.transaction.settings import ClusterView, TransactionSettings
from millstream.coordinator.transaction.states import EXPIRES, PREPARED, TransactionState
from millstream.coordinator.transaction.transactions import Transactions
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.producer import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from millstream.model.topic import TopicPartition
from millstream.protocol.messages import describe_transactions, list_transactions
from millstream.protocol.messages.coordinator_records import TransactionLogKey, TransactionLogValue

R = TypeVar("R")

_RESERVED_BYTES: Final = 256
"""What the record of the end of a transaction may have more than that of the running one."""


class TransactionCoordinator:
    """The state machine of one shard; ``coordinator_epoch`` is the partition's leader epoch."""

    def __init__(
        self, settings: TransactionSettings, view: ClusterView, *, coordinator_epoch: int
    ) -> None:
        self.transactions = Transactions()
        self._settings = settings
        self._view = view
        self._markers = MarkerWriter(
            self.transactions,
            view,
            coordinator_epoch=coordinator_epoch,
            request_timeout_ms=settings.marker_timeout_ms,
        )

    # Requests of producers

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        named: ProducerIdAndEpoch | None,
        new_producer_id: int | None,
        reply: Deferred[ProducerIdAndEpoch | NeedsProducerId],
        now: Instant,
    ) -> Result[ProducerIdAndEpoch | NeedsProducerId]:
        """Give a producer its id and epoch; see :mod:`.init_producer_id`.

        Raises INVALID_TRANSACTION_TIMEOUT too.
        """
        _check_id(transactional_id)
        if not 0 < timeout_ms <= self._settings.max_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        given = give_epoch(
            self.transactions,
            transactional_id,
            named,
            timeout_ms=timeout_ms,
            new_producer_id=new_producer_id,
            now_ms=now.wall_ms,
        )
        if isinstance(given, NeedsProducerId):
            return Result(given)
        if given is None:
            fenced: Result[ProducerIdAndEpoch | NeedsProducerId] = Result()
            if not self._fence(transactional_id, new_producer_id, now, fenced):
                return Result(NeedsProducerId())
            fenced.refuse(reply, KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS))
            return fenced
        after = given.transaction
        record = self._record(transactional_id, after)
        self.transactions.remember_epoch_before(transactional_id, after, given.epoch_before)
        return Result(ProducerIdAndEpoch(after.producer_id, after.producer_epoch), [record])

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Partitions,
        *,
        client_version: int,
        now: Instant,
    ) -> Result[ErrorCode]:
        """Add partitions to the running transaction, or begin one; the response is NONE."""
        transaction = self._checked(transactional_id, producer)
        if transaction.state in PREPARED:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        is_running = transaction.state is TransactionState.ONGOING
        if is_running and contains(transaction.partitions, partitions):
            return Result(ErrorCode.NONE)
        after = transaction.with_partitions(
            partitions, now_ms=now.wall_ms, client_version=client_version
        )
        record = self._record(transactional_id, after)
        if not is_running:
            self.transactions.time_out_later(transactional_id, after, now)
        return Result(ErrorCode.NONE, [record])

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Partitions
    ) -> Result[dict[str, dict[int, ErrorCode]]]:
        """Say which partitions are in the producer's running transaction; of those that are not,
        TRANSACTION_ABORTABLE.
        """
        transaction = self._checked(transactional_id, producer)
        if transaction.state in PREPARED:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        held = transaction.partitions
        return Result(
            {
                topic: {
                    index: ErrorCode.NONE
                    if index in held.get(topic, ())
                    else ErrorCode.TRANSACTION_ABORTABLE
                    for index in sorted(indexes)
                }
                for topic, indexes in partitions.items()
            }
        )

    def has_partition(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition
    ) -> bool:
        """True where :meth:`verify_partitions` has NONE for a partition; why not, that says."""
        transaction = self.transactions.get(transactional_id)
        return (
            transaction is not None
            and transaction.state is TransactionState.ONGOING
            and transaction.producer_id == producer.producer_id
            and transaction.producer_epoch == producer.epoch
            and partition.partition in transaction.partitions.get(partition.topic, ())
        )

    def end_transaction_of(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        *,
        commit: bool,
        bumps_epoch: bool,
        new_producer_id: int | None,
        now: Instant,
    ) -> Result[ProducerIdAndEpoch | NeedsProducerId]:
        """Decide a transaction; the response says who the producer is from now on.

        ``bumps_epoch``: the producer speaks EndTxn 5 or higher. Where the records of this cluster
        cannot hold that (``transaction.version`` 0), its epoch stays, and the response names no
        producer: clients begin their sequences anew with whatever they are told, and in the same
        epoch the next batches would pass for duplicates of the first ones.
        """
        _check_id(transactional_id)
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        is_version_2 = bumps_epoch and self._view.transaction_version > 0
        after: TransactionMetadata | NeedsProducerId | None
        if is_version_2:
            after = end_version_2(
                transaction,
                producer,
                commit=commit,
                new_producer_id=new_producer_id,
                now_ms=now.wall_ms,
            )
        else:
            after = end_version_1(transaction, producer, commit=commit, now_ms=now.wall_ms)
        if isinstance(after, NeedsProducerId):
            return Result(after)
        result: Result[ProducerIdAndEpoch | NeedsProducerId] = Result()
        if after is None:
            after = transaction
        else:
            self._prepare(transactional_id, after, now, result)
        if bumps_epoch and not is_version_2:
            result.response = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        elif after.next_producer_id != NO_PRODUCER_ID:
            result.response = ProducerIdAndEpoch(after.next_producer_id, 0)
        else:
            result.response = ProducerIdAndEpoch(after.producer_id, after.producer_epoch)
        return result

    # Administration

    def list_transactions(
        self, wanted: TransactionFilter, now: Instant
    ) -> Result[list[list_transactions.TransactionState]]:
        """List the ids of this shard that a filter fits."""
        return Result(list_states(self.transactions, wanted, now.wall_ms))

    def describe_transaction(
        self, transactional_id: str
    ) -> Result[describe_transactions.TransactionState]:
        """Return an id's state; TRANSACTIONAL_ID_NOT_FOUND."""
        _check_id(transactional_id)
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        pending = self._markers.pending(transactional_id)
        partitions = each_partition(transaction.partitions) if pending is None else pending
        return Result(describe(transactional_id, transaction, partitions))

    # Time

    def abort_timed_out(self, now: Instant) -> Result[list[str]]:
        """Abort the transactions that have run for longer than their producers asked for, and shut
        these producers out. Kafka: ``abortTimedOutTransactions``.

        The response names the ids whose epochs are used up: :meth:`abort_exhausted` ends their
        transactions, and until then this names them again.
        """
        result: Result[list[str]] = Result([], atomic=False)
        exhausted: dict[str, TransactionMetadata] = {}
        while (found := self.transactions.pop_timed_out(now)) is not None:
            if not self._fence(found[0], None, now, result):
                exhausted[found[0]] = found[1]
        for transactional_id, transaction in exhausted.items():
            self.transactions.time_out_later(transactional_id, transaction, now)
        result.response = list(exhausted)
        return result

    def abort_exhausted(
        self, transactional_id: str, new_producer_id: int, now: Instant
    ) -> Result[None]:
        """Abort a transaction that has timed out and ends in a new producer id; do nothing if it
        has ended meanwhile.
        """
        result: Result[None] = Result()
        if self.transactions.is_timed_out(transactional_id, now):
            self._fence(transactional_id, new_producer_id, now, result)
        return result

    def expire_ids(self, now: Instant) -> Result[None]:
        """Forget ids that nobody has used for long. Kafka: ``removeExpiredTransactionalIds``."""
        oldest_ms = now.wall_ms - self._settings.id_expiration_ms
        return Result(
            records=[
                tombstone(transactional_id)
                for transactional_id, transaction in self.transactions
                if transaction.state in EXPIRES and transaction.last_update_ms <= oldest_ms
            ],
            atomic=False,
        )

    @property
    def next_deadline_ms(self) -> float | None:
        """When :meth:`expire` has something to do: markers to send again."""
        return self._markers.next_deadline_ms

    def expire(self, now: Instant) -> Result[None]:
        """Send markers again."""
        return self._markers.retry(now)

    def postpone(self, by_ms: float) -> None:
        """Move all deadlines by a time in which the broker took no requests."""
        self.transactions.postpone(by_ms)
        self._markers.postpone(by_ms)

    def topic_changed(self, change: TopicChange, now: Instant) -> Result[None]:
        """Do nothing: where a partition is led, or that it is gone, is looked up when a marker is
        due. A topic that was deleted may be there again, with records of the transaction.
        """
        return Result()

    # The log

    @staticmethod
    def decode(key: bytes, value: bytes | None) -> CoordinatorRecord | None:
        """Decode a stored record; None for a type that this coordinator does not use."""
        return decode_record(key, value)

    def replay(
        self, record: CoordinatorRecord, *, record_offset: int, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """Apply a record that is in the log."""
        key, value, meaning = record.key, record.value, record.meaning
        assert isinstance(key, TransactionLogKey), "not a record of a transaction coordinator"
        if isinstance(meaning, TransactionMetadata):
            self.transactions.put(key.transactional_id, meaning)
        elif value is None:
            self.transactions.remove(key.transactional_id)
        else:
            assert isinstance(value, TransactionLogValue), "not the value of such a record"
            self.transactions.put(key.transactional_id, transaction_from(value))

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Do nothing: records of this topic are never part of a transaction."""

    def on_loaded(self, now: Instant) -> Result[None]:
        """Go on with what the log says: write the markers of decided transactions, and set the
        deadlines of running ones.
        """
        prepared = []
        for transactional_id, transaction in self.transactions:
            if transaction.state in PREPARED:
                prepared.append(transactional_id)
            elif transaction.state is TransactionState.ONGOING:
                self.transactions.time_out_later(transactional_id, transaction, now)
        result: Result[None] = Result()
        if prepared:
            result.when_committed.append(partial(self._markers.begin, prepared))
        return result

    def on_suspended(self, now: Instant) -> Result[None]:
        """Do nothing: no request is parked here."""
        return Result()

    def on_unloaded(self) -> Result[None]:
        """Do nothing: no request is parked here."""
        return Result()

    # Inner workings

    def _checked(self, transactional_id: str, producer: ProducerIdAndEpoch) -> TransactionMetadata:
        _check_id(transactional_id)
        transaction = self.transactions.require(transactional_id, producer.producer_id)
        if transaction.producer_epoch != producer.epoch:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        return transaction

    def _record(self, transactional_id: str, transaction: TransactionMetadata) -> CoordinatorRecord:
        """Return the record of a state; UNKNOWN_SERVER_ERROR, as Kafka answers where a record does
        not fit in a batch.
        """
        record = transaction_record(transactional_id, transaction, self._view.transaction_version)
        if record.size > self._settings.max_record_bytes - _RESERVED_BYTES:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the transaction is too large")
        return record

    def _fence(
        self,
        transactional_id: str,
        new_producer_id: int | None,
        now: Instant,
        result: Result[R],
    ) -> bool:
        """Abort a running transaction and shut its producer out.

        False if nothing is done, because from version 2 on the end of a transaction whose epochs
        are used up takes a new producer id, and there is none.
        """
        transaction = self.transactions.get(transactional_id)
        assert transaction is not None
        level = self._view.transaction_version
        next_producer_id = NO_PRODUCER_ID
        if level >= EPOCH_BUMP and is_exhausted(transaction.producer_epoch):
            if new_producer_id is None:
                return False
            next_producer_id = new_producer_id
        after = transaction.fenced(
            now_ms=now.wall_ms,
            client_version=level if level >= EPOCH_BUMP else 0,
            next_producer_id=next_producer_id,
        )
        self._prepare(transactional_id, after, now, result)
        return True

    def _prepare(
        self, transactional_id: str, after: TransactionMetadata, now: Instant, result: Result[R]
    ) -> None:
        """Store a decided outcome, and write the markers once it is committed."""
        level = self._view.transaction_version
        result.records.append(transaction_record(transactional_id, after, level))
        result.when_committed.append(partial(self._markers.begin, (transactional_id,)))


def _check_id(transactional_id: str) -> None:
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
