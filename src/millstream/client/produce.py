"""Produce: encoded batches to their leaders, several requests in flight, each batch once.

A :class:`BatchSender` takes batches in order and keeps up to five unanswered per connection. With
an idempotent producer id (KIP-98) every batch carries a sequence, so that after a broken
connection or a change of leader the unanswered batches are sent again, one after the other, and a
broker that has some of them already says so without writing them twice.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from millstream.client.cluster import Cluster
from millstream.client.connection import Connection
from millstream.client.errors import TRANSIENT, ConnectionFailedError, raise_for
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.offsets import Offset
from millstream.model.producer import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    next_sequence,
)
from millstream.model.topic import ZERO_TOPIC_ID, TopicPartition
from millstream.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from millstream.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

MAX_IN_FLIGHT: Final = 5
"""Unanswered batches per connection: as many as a broker recognises when they come again."""

ACKS_ALL: Final = -1
_LAST_VERSION_WITH_NAMES: Final = 12
_NO_TRANSACTION_TIMEOUT_MS: Final = 0x7FFFFFFF

_RESENT: Final = TRANSIENT | {
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
}


class Identity(NamedTuple):
    """What a batch has to carry to be recognised when it comes again."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


@dataclass(slots=True, eq=False)
class Sent:
    """A batch on its way; ``offset`` is −1 until the broker tells it, with acks=0 for good."""

    topic_partition: TopicPartition
    batch: bytes
    count: int
    offset: Offset = -1
    is_acknowledged: bool = False


Acknowledge: TypeAlias = Callable[[Sent], None]


class BatchSender:
    """Sends batches; ``acks`` is −1 (all), 1 or 0.

    For each batch ask ``identity`` first, build it with the answer, then ``send`` it. ``flush``
    waits until everything is acknowledged. Errors that do not pass come out of ``send`` and
    ``flush`` as KafkaError; nothing can be sent after one. ``on_acknowledged`` is called for each
    batch that the broker has.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        acks: int = ACKS_ALL,
        on_acknowledged: Acknowledge = lambda sent: None,
    ) -> None:
        self._cluster = cluster
        self._acks = acks
        self._on_acknowledged = on_acknowledged
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._begun: set[TopicPartition] = set()
        self._connections: dict[int, Connection] = {}
        self._in_flight: dict[int, deque[Sent]] = {}

    def identity(self, topic_partition: TopicPartition, count: int) -> Identity:
        """Return the identity of the partition's next batch, of ``count`` records.

        Without acks=all a batch has none: nothing is sent twice then.
        """
        if self._acks != ACKS_ALL:
            return Identity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)
        if self._producer is None:
            self._producer = self._cluster.retrying(self._init_producer_id)
        sequence = self._sequences.get(topic_partition, 0)
        self._sequences[topic_partition] = next_sequence(sequence, count)
        return Identity(*self._producer, sequence)

    def send(self, topic_partition: TopicPartition, batch: bytes, count: int) -> Sent:
        """Send a batch; waits for the oldest answer when five are missing."""
        sent = Sent(topic_partition, batch, count)
        try:
            leader = self._cluster.partition(topic_partition).leader
            waiting = self._in_flight.setdefault(leader, deque())
            # A broker that does not know the producer takes any sequence as the first one, so the
            # second batch of a partition waits until the first one is in.
            most = MAX_IN_FLIGHT if topic_partition in self._begun else 1
            while len(waiting) >= most:
                self._settle_oldest(leader)
            self._transmit(leader, sent)
        except (ConnectionFailedError, KafkaError) as error:
            self._recover(error, sent)
        return sent

    def flush(self) -> None:
        """Wait until every batch is acknowledged."""
        for leader in list(self._in_flight):
            while self._in_flight.get(leader):
                try:
                    self._settle_oldest(leader)
                except (ConnectionFailedError, KafkaError) as error:
                    self._recover(error, None)

    def close(self) -> None:
        """Close the sender's connections without waiting for anything."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._in_flight.clear()

    def _init_producer_id(self) -> tuple[int, int]:
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=_NO_TRANSACTION_TIMEOUT_MS
        )
        response = self._cluster.any_connection().call(request, InitProducerIdResponse)
        raise_for(response.error_code, "producer id")
        return response.producer_id, response.producer_epoch

    def _transmit(self, leader: int, sent: Sent) -> None:
        connection = self._connections.get(leader)
        if connection is None or not connection.is_open:
            connection = self._cluster.dedicated_connection_to(leader)
            self._connections[leader] = connection
        place = sent.topic_partition
        topic_id = self._cluster.topic(place.topic).topic_id
        request = ProduceRequest(
            acks=self._acks,
            timeout_ms=self._cluster.settings.request_timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=place.topic,
                    topic_id=topic_id,
                    partition_data=[
                        PartitionProduceData(index=place.partition, records=sent.batch)
                    ],
                )
            ],
        )
        names_only = topic_id == ZERO_TOPIC_ID
        version = connection.version_for(
            ProduceRequest, _LAST_VERSION_WITH_NAMES if names_only else None
        )
        connection.send(request, version=version, answered=self._acks != 0)
        if self._acks == 0:
            self._on_acknowledged(sent)
        else:
            self._in_flight.setdefault(leader, deque()).append(sent)

    def _settle_oldest(self, leader: int) -> None:
        response = self._connections[leader].receive(
            ProduceResponse, timeout_ms=2 * self._cluster.settings.request_timeout_ms
        )
        row = response.responses[0].partition_responses[0]
        sent = self._in_flight[leader][0]
        _raise_refusal(row, sent)
        self._in_flight[leader].popleft()
        sent.offset = row.base_offset
        sent.is_acknowledged = True
        self._begun.add(sent.topic_partition)
        self._on_acknowledged(sent)

    def _recover(self, error: ConnectionFailedError | KafkaError, unsent: Sent | None) -> None:
        """Send everything unanswered again, one batch at a time, or raise ``error``."""
        passes = isinstance(error, ConnectionFailedError) or error.error in _RESENT
        if not passes or self._acks != ACKS_ALL:
            self.close()
            raise error
        unanswered = [sent for waiting in self._in_flight.values() for sent in waiting]
        if unsent is not None and unsent not in unanswered:
            unanswered.append(unsent)
        self.close()
        deadline = time.monotonic() + self._cluster.settings.request_timeout_ms / 1000
        for sent in unanswered:
            self._resend(sent, deadline)

    def _resend(self, sent: Sent, deadline: float) -> None:
        while not sent.is_acknowledged:
            self._cluster.forget()
            time.sleep(self._cluster.settings.retry_backoff_ms / 1000)
            try:
                leader = self._cluster.partition(sent.topic_partition).leader
                self._transmit(leader, sent)
                self._settle_oldest(leader)
            except ConnectionFailedError:
                self.close()
                if time.monotonic() > deadline:
                    raise
            except KafkaError as error:
                self.close()
                if error.error not in _RESENT or time.monotonic() > deadline:
                    raise


def _raise_refusal(row: PartitionProduceResponse, sent: Sent) -> None:
    error = ErrorCode.of(row.error_code)
    # The broker has the batch already and has forgotten its offset: it is there all the same.
    if error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return
    details = "; ".join(each.batch_index_error_message or "" for each in row.record_errors)
    message = row.error_message or f"a batch for {sent.topic_partition}"
    raise KafkaError(error, f"{message}: {details}" if details else message)
