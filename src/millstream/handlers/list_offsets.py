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

Only a leader answers, and only while its lease holds (NOT_LEADER_OR_FOLLOWER otherwise): a broker
that lost its session must not tell an end that its successor has moved. After an election it
answers once it knows what is committed (KIP-207): OFFSET_NOT_AVAILABLE, before version 5
LEADER_NOT_AVAILABLE.

A look-up by time (a timestamp, or −3) reads indexes and batches off the loop where they are not in
memory; the partitions of one request are looked up side by side.

The client needs DESCRIBE on each topic: TOPIC_AUTHORIZATION_FAILED otherwise.

There is no tiered storage: −4 is the log start, and −5 and −6 have no offset to tell.
"""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine, Iterable
from typing import Any, Final

from millstream.handlers.access import access_of
from millstream.handlers.request import RequestContext
from millstream.model.acl import AclOperation, AclResource
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.offsets import NO_LEADER_EPOCH, NO_OFFSET, NO_TIMESTAMP
from millstream.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from millstream.runtime.replicas.partition import READ_COMMITTED, READ_UNCOMMITTED, Partition
from millstream.runtime.replicas.partition_requests import offset_for_timestamp
from millstream.runtime.services import Services
from millstream.storage.log import TimestampOffset

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
) -> ListOffsetsResponse | Coroutine[Deferred[Any], None, ListOffsetsResponse]:
    """Look up one offset per partition."""
    if request.isolation_level not in _ISOLATION_LEVELS:
        error = f"there is no isolation level {request.isolation_level}"
        return failed(context, request, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, error))
    access = access_of(services, context)
    refused: list[ListOffsetsTopic] = []
    if access is not None:
        request.topics, refused = access.split(
            AclOperation.DESCRIBE, AclResource.TOPIC, request.topics, lambda topic: topic.name
        )
    not_allowed = _of_topics(refused, KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    lookups = [
        _Lookup(services, context.version, request.isolation_level, name, wanted, times)
        for name, asked in _by_topic(request).items()
        for wanted, times in asked.values()
    ]
    for lookup in lookups:
        lookup.begin()
    if all(lookup.found.done for lookup in lookups):
        return _response(lookups, not_allowed)
    return _wait(lookups, not_allowed)


async def _wait(
    lookups: list[_Lookup], not_allowed: list[ListOffsetsTopicResponse]
) -> ListOffsetsResponse:
    for lookup in lookups:
        with contextlib.suppress(KafkaError):
            await lookup.found
    return _response(lookups, not_allowed)


def _response(
    lookups: list[_Lookup], not_allowed: list[ListOffsetsTopicResponse]
) -> ListOffsetsResponse:
    topics: dict[str, ListOffsetsTopicResponse] = {}
    for lookup in lookups:
        topic = topics.setdefault(
            lookup.topic, ListOffsetsTopicResponse(name=lookup.topic, partitions=[])
        )
        topic.partitions.append(lookup.answer())
    return ListOffsetsResponse(topics=[*topics.values(), *not_allowed])


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
    return ListOffsetsResponse(topics=_of_topics(request.topics, error))


def _of_topics(
    topics: Iterable[ListOffsetsTopic], error: KafkaError
) -> list[ListOffsetsTopicResponse]:
    return [
        ListOffsetsTopicResponse(
            name=topic.name, partitions=[_refused(wanted, error) for wanted in topic.partitions]
        )
        for topic in topics
    ]


class _Lookup:
    """One partition of a request. An error stays with it."""

    __slots__ = (
        "_isolation",
        "_partition",
        "_services",
        "_times",
        "_version",
        "_wanted",
        "found",
        "topic",
    )

    def __init__(
        self,
        services: Services,
        version: int,
        isolation: int,
        topic: str,
        wanted: ListOffsetsPartition,
        times: int,
    ) -> None:
        self._services = services
        self._version = version
        self._isolation = isolation
        self._wanted = wanted
        self._times = times
        self._partition: Partition | None = None
        self.topic = topic
        self.found: Deferred[TimestampOffset | None] = Deferred()
        """Filled with the record that a look-up by time finds, with None for any other."""

    def begin(self) -> None:
        """Start the look-up; what refuses it fails ``found``."""
        try:
            self._begin().on_done(self._settle)
        except KafkaError as error:
            self.found.fail(error)

    def _begin(self) -> Deferred[TimestampOffset | None]:
        wanted = self._wanted
        if self._times > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        partition = self._services.partitions.get(self.topic, wanted.partition_index)
        timestamp = wanted.timestamp
        if timestamp < 0 and self._version < _SINCE_VERSION.get(timestamp, self._version + 1):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        partition.check_leader_epoch(wanted.current_leader_epoch)
        refusal = partition.refusal_to_answer()
        if refusal is not None:
            raise refusal
        self._partition = partition
        if timestamp >= 0:
            return offset_for_timestamp(partition, timestamp)
        if timestamp == MAX_TIMESTAMP:
            return offset_for_timestamp(partition, None)
        return Deferred.of(None)

    def _settle(self, found: Deferred[TimestampOffset | None]) -> None:
        try:
            record = found.result()
        except Exception as error:
            self.found.fail(error)
        else:
            self.found.complete(record)

    def answer(self) -> ListOffsetsPartitionResponse:
        """Return the partition's part of the response, once ``found`` is filled."""
        try:
            answer = self._answer(self.found.result())
        except KafkaError as error:
            answer = _refused(self._wanted, error)
        if self._version < _FIRST_VERSION_WITH_EPOCHS:
            answer.leader_epoch = NO_LEADER_EPOCH
        return answer

    def _answer(self, found: TimestampOffset | None) -> ListOffsetsPartitionResponse:
        wanted, partition = self._wanted, self._partition
        assert partition is not None
        refusal = partition.refusal_to_answer()  # other partitions took their time
        if refusal is not None:
            raise refusal
        timestamp = wanted.timestamp
        end = partition.visible_end(self._isolation)
        if timestamp == LATEST:
            _refuse_unsettled(partition, self._version)
            return _found(wanted, NO_TIMESTAMP, end, partition.leader_epoch)
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            start = partition.log_start_offset
            return _found(wanted, NO_TIMESTAMP, start, partition.log_start_epoch)
        if found is None or found.offset >= end:
            if found is not None:
                _refuse_unsettled(partition, self._version)
            return _found(wanted, NO_TIMESTAMP, NO_OFFSET, -1)
        return _found(wanted, found.timestamp, found.offset, found.leader_epoch)


def _refuse_unsettled(partition: Partition, version: int) -> None:
    """Tell no end of a partition whose new leader does not know yet what is committed."""
    if not partition.knows_what_is_committed:
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
