"""The outcome of each batch from the response to a Produce request.

================================================  ================================================
answer                                            outcome
================================================  ================================================
none, duplicate                                   it is there
broken connection, no answer in time              not known: sent again, recognised by its sequence
retriable code                                    sent again; leaders are looked up if it is theirs
out of order, first of its partition              a gap: see ``sequences``
too large, several records                        sent again in halves
any other                                         refused, perhaps for single records (KIP-467)
================================================  ================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from millstream.client.core.metadata import LeaderHint, MetadataView, broker_of
from millstream.client.core.producer.batch import ProducerBatch, RecordMetadata
from millstream.client.errors import BrokerError, ConnectionFailedError
from millstream.model.errors import ErrorCode
from millstream.model.offsets import NO_OFFSET, NO_TIMESTAMP, Offset
from millstream.model.topic import ZERO_TOPIC_ID, TopicPartition
from millstream.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)
from millstream.records.batch import header_at
from millstream.records.record import read_records

_LEADERS_CHANGED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


@dataclass(slots=True)
class Outcome:
    """The outcome of one batch."""

    batch: ProducerBatch
    error: Exception | None = None
    base_offset: Offset = NO_OFFSET
    log_append_time_ms: int = NO_TIMESTAMP
    is_ambiguous: bool = False
    """The broker may have it nevertheless."""
    wants_metadata: bool = False
    record_errors: Mapping[int, Exception] = field(default_factory=dict)


class AnswerReader:
    """Handles responses, including the leader hints in them (KIP-951)."""

    def __init__(self, metadata: MetadataView) -> None:
        self._metadata = metadata

    def failed(self, batches: Sequence[ProducerBatch], error: Exception) -> list[Outcome]:
        """Return the outcomes of a request without a response."""
        lost = isinstance(error, ConnectionFailedError)
        return [Outcome(batch, error, is_ambiguous=lost, wants_metadata=lost) for batch in batches]

    def read(
        self, request: ProduceRequest, batches: Sequence[ProducerBatch], response: ProduceResponse
    ) -> list[Outcome]:
        """Return the outcome of each batch."""
        names = {topic.topic_id: topic.name for topic in request.topic_data}
        rows: dict[TopicPartition, PartitionProduceResponse] = {}
        for topic in response.responses:
            by_id = topic.topic_id != ZERO_TOPIC_ID
            name = names.get(topic.topic_id, topic.name) if by_id else topic.name
            for row in topic.partition_responses:
                rows[TopicPartition(name, row.index)] = row
        hints = [
            LeaderHint(
                topic_partition, row.current_leader.leader_id, row.current_leader.leader_epoch
            )
            for topic_partition, row in rows.items()
            if row.error_code and row.current_leader.leader_id >= 0
        ]
        if hints:
            endpoints = [
                broker_of(each.node_id, each.host, each.port, each.rack)
                for each in response.node_endpoints
            ]
            self._metadata.apply_hints(hints, endpoints)
        return [_outcome(batch, rows.get(batch.topic_partition)) for batch in batches]

    def halves(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """Return two open batches with the records of an encoded one."""
        assert batch.data is not None
        records = read_records(header_at(memoryview(batch.data)))
        middle = (len(records) + 1) // 2
        parts = []
        for piece in (records[:middle], records[middle:]):
            part = ProducerBatch(batch.topic_partition, 0, batch.created_ms)
            part.is_closed = True
            part.attempts = batch.attempts
            part.last_error = batch.last_error
            part.tried_leader = batch.tried_leader
            for record in piece:
                part.append(record.timestamp, record.key, record.value, record.headers, None)
            parts.append(part)
        return parts

    def relay(
        self, batch: ProducerBatch, parts: Sequence[ProducerBatch], told: Callable[[], None]
    ) -> None:
        """Complete ``batch`` with the outcomes of both parts, record by record."""

        def settle() -> None:
            if batch.done or not all(part.done for part in parts):
                return
            first, second = parts
            if first.error is None and second.error is None:
                joined = first.base_offset + first.count == second.base_offset
                if joined or first.base_offset < 0:
                    batch.succeed(first.base_offset, first.log_append_time_ms)
            if not batch.done:
                _join_outcomes(batch, parts)
            told()

        for part in parts:
            part.watchers.append(settle)


def _join_outcomes(batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
    """The parts have different outcomes or are not adjacent: each record has its own outcome."""
    errors: dict[int, Exception] = {}
    found: dict[int, RecordMetadata] = {}
    index = 0
    for part in parts:
        for position in range(part.count):
            error = part.error_of(position)
            if error is None:
                found[index] = part.metadata(position)
            else:
                errors[index] = error
            index += 1
    batch.record_metadata = found
    first = next(iter(errors.values()), None)
    if first is None:
        batch.succeed(NO_OFFSET, NO_TIMESTAMP)
    else:
        batch.fail(first, errors)


def _outcome(batch: ProducerBatch, row: PartitionProduceResponse | None) -> Outcome:
    if row is None:
        missing = BrokerError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"no answer for {batch.topic_partition}"
        )
        return Outcome(batch, missing, is_ambiguous=True)
    code = ErrorCode.of(row.error_code)
    if code is ErrorCode.NONE:
        return Outcome(batch, None, row.base_offset, row.log_append_time_ms)
    about = row.error_message or f"{batch.count} records for {batch.topic_partition}"
    return Outcome(
        batch,
        BrokerError(code, about),
        is_ambiguous=code
        in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        wants_metadata=code in _LEADERS_CHANGED,
        record_errors=_record_errors(row, code, about),
    )


def _record_errors(
    row: PartitionProduceResponse, code: ErrorCode, about: str
) -> dict[int, Exception]:
    if not row.record_errors:
        return {}
    return {
        each.batch_index: BrokerError(code, each.batch_index_error_message or about)
        for each in row.record_errors
    }
