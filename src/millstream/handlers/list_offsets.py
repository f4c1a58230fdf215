"""ListOffsets (key 2), versions 1 to 11.

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1        one offset instead of a list
2        isolation level
4        leader epochs (KIP-320)
6        flexible
7        −3: the record with the largest timestamp (KIP-734)
8        −4: the earliest offset on this broker's own disk (KIP-405)
9        −5: the latest offset in tiered storage
10       time-out
11       −6: the earliest offset that waits for upload (KIP-1023)
=======  ====================================================================================

Only a leader answers, and after an election only once it knows what is committed (KIP-207):
OFFSET_NOT_AVAILABLE, before version 5 LEADER_NOT_AVAILABLE.

There is no tiered storage: −4 is the log start, and −5 and −6 have no offset to tell.
"""

from __future__ import annotations

from typing import Final

from millstream.handlers.request import RequestContext
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.offsets import NO_LEADER_EPOCH, NO_OFFSET, NO_TIMESTAMP
from millstream.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from millstream.runtime.replicas.partition import READ_COMMITTED, READ_UNCOMMITTED, Partition
from millstream.runtime.services import Services

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

_FIRST_VERSION_WITH_EPOCHS: Final = 4
_FIRST_VERSION_WITH_UNAVAILABLE_OFFSETS: Final = 5
_ISOLATION_LEVELS: Final = (READ_UNCOMMITTED, READ_COMMITTED)
_SINCE_VERSION: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}


def handle(
    services: Services, context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse:
    """Look up one offset per partition."""
    if request.isolation_level not in _ISOLATION_LEVELS:
        error = f"there is no isolation level {request.isolation_level}"
        return failed(context, request, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, error))
    topics = []
    for name, asked in _by_topic(request).items():
        answers = []
        for wanted, times in asked.values():
            try:
                partition = services.partitions.get(name, wanted.partition_index)
                answer = _look_up(partition, wanted, request.isolation_level, context.version)
            except KafkaError as error:
                answer = _refused(wanted, error)
            if times > 1:
                answer = _refused(wanted, KafkaError(ErrorCode.INVALID_REQUEST))
            if context.version < _FIRST_VERSION_WITH_EPOCHS:
                answer.leader_epoch = NO_LEADER_EPOCH
            answers.append(answer)
        topics.append(ListOffsetsTopicResponse(name=name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


def _by_topic(
    request: ListOffsetsRequest,
) -> dict[str, dict[int, tuple[ListOffsetsPartition, int]]]:
    """Gather what is asked: each partition once, with how often it was named."""
    gathered: dict[str, dict[int, tuple[ListOffsetsPartition, int]]] = {}
    for topic in request.topics:
        for wanted in topic.partitions:
            asked = gathered.setdefault(topic.name, {})
            _, times = asked.get(wanted.partition_index, (wanted, 0))
            asked[wanted.partition_index] = (wanted, times + 1)
    return gathered


def failed(
    context: RequestContext, request: ListOffsetsRequest, error: KafkaError
) -> ListOffsetsResponse:
    """Refuse every partition."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name, partitions=[_refused(wanted, error) for wanted in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _look_up(
    partition: Partition, wanted: ListOffsetsPartition, isolation: int, version: int
) -> ListOffsetsPartitionResponse:
    timestamp = wanted.timestamp
    if timestamp < 0 and version < _SINCE_VERSION.get(timestamp, version + 1):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    partition.check_leader_epoch(wanted.current_leader_epoch)
    log = partition.log
    end = log.last_stable_offset if isolation == READ_COMMITTED else log.high_watermark
    if timestamp == LATEST:
        _refuse_unsettled(partition, version)
        return _found(wanted, NO_TIMESTAMP, end, partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        return _found(wanted, NO_TIMESTAMP, start, log.epoch_for_offset(start))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _found(wanted, NO_TIMESTAMP, NO_OFFSET, -1)
    if timestamp == MAX_TIMESTAMP:
        found = partition.offset_of_max_timestamp()
    else:
        found = partition.offset_for_timestamp(timestamp)
    if found is None or found.offset >= end:
        if found is not None:
            _refuse_unsettled(partition, version)
        return _found(wanted, NO_TIMESTAMP, NO_OFFSET, -1)
    return _found(wanted, found.timestamp, found.offset, found.leader_epoch)


def _refuse_unsettled(partition: Partition, version: int) -> None:
    """Tell no end of a partition whose new leader does not know yet what is committed."""
    if partition.leading is not None and not partition.leading.knows_what_is_committed:
        new = version >= _FIRST_VERSION_WITH_UNAVAILABLE_OFFSETS
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE if new else ErrorCode.LEADER_NOT_AVAILABLE)


def _found(
    wanted: ListOffsetsPartition, timestamp: int, offset: int, leader_epoch: int
) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        error_code=0,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=leader_epoch,
    )


def _refused(wanted: ListOffsetsPartition, error: KafkaError) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index, error_code=error.error.code
    )
