"""The markers of transactions whose outcome is decided: to which broker, in which request, again.

::

    begun ──▶ queued for a broker ──▶ in a request ──written──▶ done
                 ▲                       │
                 └───after a pause───────┴──not leader, away, outcome unknown

Each broker has one WriteTxnMarkers request on its way at a time; what is decided meanwhile shares
the next one. The leader is looked up whenever a marker is put in a request. A partition that does
not exist (its topic was deleted) gets no marker; one that this broker has only not heard of yet
does, so that is believed after ``UNKNOWN_MS``. The log names topics and has no ids: a topic that
was made again under its name has taken its place in the transaction, and may hold records of it.

The request carries the coordinator epoch, which is the leader epoch of the coordinator's partition:
a leader that has seen a newer one answers TRANSACTION_COORDINATOR_FENCED, and this coordinator
sends nothing more for the transaction. Writing a marker twice is harmless, so an unknown outcome is
repeated.

Kafka: ``TransactionMarkerChannelManager``, ``TransactionMarkerRequestCompletionHandler``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

from millstream.coordinator.deadlines import Deadlines
from millstream.coordinator.result import (
    Instant,
    LocalMarkers,
    MarkerCodes,
    OutboundRequest,
    Result,
    TransactionEnd,
    TransactionProducer,
)
from millstream.coordinator.transaction.metadata import TransactionMetadata
from millstream.coordinator.transaction.records import transaction_record
from millstream.coordinator.transaction.settings import ClusterView
from millstream.coordinator.transaction.states import PREPARED, TransactionState
from millstream.coordinator.transaction.transactions import Transactions
from millstream.model.broker import BrokerId
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.leadership import NO_LEADER
from millstream.model.topic import TopicPartition
from millstream.protocol.message import Response
from millstream.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

log = logging.getLogger(__name__)

FIRST_RETRY_MS: Final = 20.0
LAST_RETRY_MS: Final = 1_000.0
"""The pause before markers that were not written are sent again, which doubles up to the last."""
UNKNOWN_MS: Final = 5_000.0
"""How long a partition that is not in the metadata may be one that was only just created."""
MAX_PARTITIONS: Final = 20_000
"""Partitions in one request, unless one transaction has more."""

_DONE: Final = frozenset(
    {
        ErrorCode.NONE.code,
        # Nothing of this transaction can be in the partition, or not any more.
        ErrorCode.INVALID_PRODUCER_EPOCH.code,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT.code,
        ErrorCode.UNSUPPORTED_VERSION.code,
    }
)
_FENCED: Final = ErrorCode.TRANSACTION_COORDINATOR_FENCED.code
_EXPECTED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code,
        ErrorCode.NOT_LEADER_OR_FOLLOWER.code,
        ErrorCode.NOT_ENOUGH_REPLICAS.code,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND.code,
        ErrorCode.REQUEST_TIMED_OUT.code,
        ErrorCode.KAFKA_STORAGE_ERROR.code,
    }
)
"""Errors that pass; all others but the two above are logged, and sent again too."""


_Indexes: TypeAlias = dict[str, set[int]]
"""Partitions by topic; none of the sets is empty."""


@dataclass(slots=True)
class _Completion:
    """A prepared transaction: the partitions whose marker is not written yet, and its retries."""

    transaction: TransactionMetadata
    pending: _Indexes
    waiting: _Indexes = field(default_factory=dict)
    """Those that are sent again after a pause."""
    retry_ms: float = FIRST_RETRY_MS
    unknown_since_ms: dict[TopicPartition, float] = field(default_factory=dict)
    """Since when those are waited for that are not in the metadata."""


@dataclass(slots=True, unsafe_hash=True)
class _Sent:
    """What a request carries of one transaction."""

    transactional_id: str
    completion: _Completion
    partitions: _Indexes


class MarkerWriter:
    """Writes the markers of one shard's prepared transactions."""

    def __init__(
        self,
        transactions: Transactions,
        view: ClusterView,
        *,
        coordinator_epoch: int,
        request_timeout_ms: int,
    ) -> None:
        self._transactions = transactions
        self._view = view
        self._coordinator_epoch = coordinator_epoch
        self._request_timeout_ms = request_timeout_ms
        self._completions: dict[str, _Completion] = {}
        self._queues: dict[BrokerId, dict[str, _Indexes]] = {}
        self._busy: set[BrokerId] = set()
        """Brokers with a request on its way."""
        self._retries: Deadlines[str] = Deadlines()

    @property
    def next_deadline_ms(self) -> float | None:
        """When :meth:`retry` has something to do."""
        return self._retries.next_ms

    def postpone(self, by_ms: float) -> None:
        """Move the retries later, and wait longer for metadata, which was not taken either."""
        self._retries.postpone(by_ms)
        for completion in self._completions.values():
            for partition in completion.unknown_since_ms:
                completion.unknown_since_ms[partition] += by_ms

    def pending(self, transactional_id: str) -> Iterable[TopicPartition] | None:
        """Return the partitions whose marker is not written yet; None where none is being written
        at all.
        """
        completion = self._completions.get(transactional_id)
        return None if completion is None else each_partition(completion.pending)

    def begin(self, transactional_ids: Iterable[str], now: Instant) -> Result[None]:
        """Begin to write the markers of transactions that are prepared, and committed so."""
        result: Result[None] = Result(atomic=False)
        is_fresh = not self._queues
        for transactional_id in transactional_ids:
            transaction = self._transactions.get(transactional_id)
            assert transaction is not None, "nobody removes a prepared transaction"
            assert transaction.state in PREPARED, "its markers are what completes a transaction"
            pending = {topic: set(indexes) for topic, indexes in transaction.partitions.items()}
            self._completions[transactional_id] = _Completion(transaction, pending)
            self._enqueue(transactional_id, pending, now)
            self._finish_if_done(transactional_id, now, result)
        self._send(now, result, is_fresh=is_fresh)
        return result

    def retry(self, now: Instant) -> Result[None]:
        """Send again what has waited for it."""
        result: Result[None] = Result(atomic=False)
        while (transactional_id := self._retries.pop_due(now.monotonic_ms)) is not None:
            completion = self._completions[transactional_id]
            waiting, completion.waiting = completion.waiting, {}
            self._enqueue(transactional_id, waiting, now)
            self._finish_if_done(transactional_id, now, result)
        self._send(now, result)
        return result

    # Inner workings

    def _enqueue(self, transactional_id: str, partitions: _Indexes, now: Instant) -> None:
        """Put partitions in the queues of their leaders; those without one wait."""
        completion = self._completions[transactional_id]
        unknown: set[TopicPartition] = set()
        for topic, indexes in partitions.items():
            for leader, led in self._view.leaders_of(topic, indexes).items():
                if leader is None:
                    unknown.update(each_partition({topic: led}))
                    continue
                if completion.unknown_since_ms:
                    for each in each_partition({topic: led}):
                        completion.unknown_since_ms.pop(each, None)
                if leader == NO_LEADER:
                    _add(completion.waiting, topic, led)
                else:
                    queue = self._queues.setdefault(leader, {})
                    _add(queue.setdefault(transactional_id, {}), topic, led)
        if unknown:
            self._wait_for_metadata(transactional_id, completion, unknown, now)
        if completion.waiting:
            self._retry_later(transactional_id, completion, now)

    def _wait_for_metadata(
        self,
        transactional_id: str,
        completion: _Completion,
        unknown: set[TopicPartition],
        now: Instant,
    ) -> None:
        now_ms = now.monotonic_ms
        since_ms = completion.unknown_since_ms
        gone = {
            each for each in unknown if now_ms - since_ms.setdefault(each, now_ms) >= UNKNOWN_MS
        }
        for each in unknown - gone:
            _add(completion.waiting, each.topic, {each.partition})
        if gone:
            log.info(
                "no marker of transaction %s for %s: they do not exist",
                transactional_id,
                ", ".join(map(str, sorted(gone)[:10])),
            )
            self._drop(completion, gone)

    def _retry_later(self, transactional_id: str, completion: _Completion, now: Instant) -> None:
        if transactional_id not in self._retries:
            self._retries.set(transactional_id, now.monotonic_ms + completion.retry_ms)
            completion.retry_ms = min(2 * completion.retry_ms, LAST_RETRY_MS)

    @staticmethod
    def _drop(completion: _Completion, gone: set[TopicPartition]) -> None:
        for each in gone:
            _remove(completion.pending, each.topic, {each.partition})
            del completion.unknown_since_ms[each]

    def _finish_if_done(self, transactional_id: str, now: Instant, result: Result[None]) -> None:
        completion = self._completions[transactional_id]
        if completion.pending:
            return
        self._forget(transactional_id)
        result.records.append(
            transaction_record(
                transactional_id,
                completion.transaction.completed(now.wall_ms),
                self._view.transaction_version,
            )
        )

    def _forget(self, transactional_id: str) -> None:
        del self._completions[transactional_id]
        self._retries.cancel(transactional_id)

    def _send(self, now: Instant, result: Result[None], *, is_fresh: bool = False) -> None:
        """Make a request for each broker that has none on its way and something in its queue; the
        leaders in the queues are looked up again unless that was done just now (``is_fresh``).
        """
        while self._queues:
            # Taking one queue may fill another.
            broker = next((each for each in self._queues if each not in self._busy), None)
            if broker is None:
                return
            sent = self._take(broker, now, result, is_fresh=is_fresh)
            if sent:
                self._busy.add(broker)
                if broker == self._view.broker_id:
                    ends = [(self._end(each), each.partitions) for each in sent]
                    written = partial(self._written, broker, sent)
                    result.outbound.append(LocalMarkers(ends, self._request_timeout_ms, written))
                    continue
                request = WriteTxnMarkersRequest(markers=[self._marker(each) for each in sent])
                answered = partial(self._answered, broker, sent)
                result.outbound.append(
                    OutboundRequest(broker, request, self._request_timeout_ms, answered)
                )

    def _take(
        self, broker: BrokerId, now: Instant, result: Result[None], *, is_fresh: bool
    ) -> list[_Sent]:
        """Take the next request's markers out of a broker's queue; those whose leader has changed
        meanwhile go to another queue.
        """
        taken: list[_Sent] = []
        queue = self._queues.pop(broker)
        count = 0
        while queue and count < MAX_PARTITIONS:
            transactional_id = next(iter(queue))
            partitions = queue.pop(transactional_id)
            completion = self._completions.get(transactional_id)
            if completion is None:
                continue
            moved = {} if is_fresh else self._moved(broker, partitions)
            if moved:
                for topic, indexes in moved.items():
                    _remove(partitions, topic, indexes)
                self._enqueue(transactional_id, moved, now)
                self._finish_if_done(transactional_id, now, result)
            if partitions:
                taken.append(_Sent(transactional_id, completion, partitions))
                count += sum(map(len, partitions.values()))
        if queue:
            self._queues[broker] = queue
        return taken

    def _moved(self, broker: BrokerId, partitions: _Indexes) -> _Indexes:
        """Return those of a broker's partitions that it leads no more."""
        moved: _Indexes = {}
        for topic, indexes in partitions.items():
            elsewhere = self._view.leaders_of(topic, indexes)
            if elsewhere.pop(broker, None) != indexes:
                moved[topic] = set().union(*elsewhere.values())
        return moved

    def _end(self, sent: _Sent) -> TransactionEnd:
        transaction = sent.completion.transaction
        return TransactionEnd(
            TransactionProducer(transaction.producer_id, transaction.producer_epoch),
            transaction.state is TransactionState.PREPARE_COMMIT,
            self._coordinator_epoch,
            transaction.client_version,
        )

    def _marker(self, sent: _Sent) -> WritableTxnMarker:
        end = self._end(sent)
        return WritableTxnMarker(
            producer_id=end.producer.producer_id,
            producer_epoch=end.producer.producer_epoch,
            transaction_result=end.committed,
            topics=[
                WritableTxnMarkerTopic(name=topic, partition_indexes=sorted(indexes))
                for topic, indexes in sorted(sent.partitions.items())
            ],
            coordinator_epoch=end.coordinator_epoch,
            transaction_version=end.transaction_version,
        )

    def _answered(
        self,
        broker: BrokerId,
        sent: list[_Sent],
        answer: Response | KafkaError,
        now: Instant,
    ) -> Result[None]:
        """Take note of what a broker has answered."""
        codes = _codes(answer) if isinstance(answer, WriteTxnMarkersResponse) else {}
        of_each = [codes.get(each.completion.transaction.producer_id, {}) for each in sent]
        return self._written(broker, sent, of_each, now)

    def _written(
        self, broker: BrokerId, sent: list[_Sent], codes: Sequence[MarkerCodes], now: Instant
    ) -> Result[None]:
        """Take note of what a broker has written, and send it what has been queued meanwhile."""
        self._busy.discard(broker)
        # A completion that is lost has its markers written once more, and the next transaction of
        # the producer begins by a record that the completion goes with.
        result: Result[None] = Result(atomic=False, is_urgent=False)
        for each, by_topic in zip(sent, codes, strict=True):
            transactional_id, completion = each.transactional_id, each.completion
            if self._completions.get(transactional_id) is not completion:
                continue  # another broker knows a newer coordinator
            outcomes = {
                topic: _outcomes(indexes, by_topic.get(topic, {}))
                for topic, indexes in each.partitions.items()
            }
            if any(_FENCED in by_index.values() for by_index in outcomes.values()):
                log.warning(
                    "the markers of transaction %s are written by a newer coordinator than epoch "
                    "%d",
                    transactional_id,
                    self._coordinator_epoch,
                )
                self._forget(transactional_id)
                continue
            self._take_outcomes(transactional_id, completion, outcomes)
            if completion.waiting:
                self._retry_later(transactional_id, completion, now)
            self._finish_if_done(transactional_id, now, result)
        self._send(now, result)
        return result

    @staticmethod
    def _take_outcomes(
        transactional_id: str,
        completion: _Completion,
        outcomes: dict[str, dict[int, int | None]],
    ) -> None:
        for topic, codes in outcomes.items():
            if _DONE.issuperset(codes.values()):
                _remove(completion.pending, topic, codes.keys())
                continue
            for index, code in codes.items():
                if code in _DONE:
                    _remove(completion.pending, topic, {index})
                elif index in completion.pending.get(topic, ()):
                    _add(completion.waiting, topic, {index})
                    if code is not None and code not in _EXPECTED:
                        log.error(
                            "the marker of transaction %s was refused by %s-%d with error %d",
                            transactional_id,
                            topic,
                            index,
                            code,
                        )


def each_partition(partitions: Mapping[str, Iterable[int]]) -> Iterator[TopicPartition]:
    """Yield partitions that are given by topic."""
    for topic, indexes in partitions.items():
        for index in indexes:
            yield TopicPartition(topic, index)


def _add(partitions: _Indexes, topic: str, indexes: Iterable[int]) -> None:
    held = partitions.get(topic)
    if held is None:
        partitions[topic] = set(indexes)
    else:
        held.update(indexes)


def _remove(partitions: _Indexes, topic: str, indexes: Iterable[int]) -> None:
    held = partitions.get(topic)
    if held is not None:
        held.difference_update(indexes)
        if not held:
            del partitions[topic]


def _codes(response: WriteTxnMarkersResponse) -> dict[int, dict[str, dict[int, int]]]:
    """Return the error codes by producer id, topic and partition."""
    codes: dict[int, dict[str, dict[int, int]]] = {}
    for marker in response.markers:
        by_topic = codes.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            by_index = by_topic.setdefault(topic.name, {})
            by_index.update({each.partition_index: each.error_code for each in topic.partitions})
    return codes


def _outcomes(indexes: Iterable[int], codes: Mapping[int, int]) -> dict[int, int | None]:
    """Return the error codes of those partitions; None where an answer leaves one out."""
    return dict(zip(indexes, map(codes.get, indexes), strict=True))
