"""The five requests that a share coordinator answers, put together for several share partitions.

Kafka: ``PersisterStateManager.RequestCoalescerHelper``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from millstream.model.topic import TopicId
from millstream.protocol.message import Request, Response
from millstream.protocol.messages import delete_share_group_state as deleting
from millstream.protocol.messages import initialize_share_group_state as initializing
from millstream.protocol.messages import read_share_group_state as reading
from millstream.protocol.messages import read_share_group_state_summary as summarizing
from millstream.protocol.messages import write_share_group_state as writing
from millstream.share.state import (
    SharePartitionKey,
    ShareState,
    ShareStateSummary,
    ShareStateUpdate,
    StateBatch,
)

PartitionData: TypeAlias = (
    initializing.PartitionData
    | reading.PartitionData
    | writing.PartitionData
    | summarizing.PartitionData
    | deleting.PartitionData
)
"""What a request says of one share partition."""

PartitionResult: TypeAlias = (
    initializing.PartitionResult
    | reading.PartitionResult
    | writing.PartitionResult
    | summarizing.PartitionResult
    | deleting.PartitionResult
)
"""What a response says of one share partition."""

_Topics: TypeAlias = "dict[TopicId, list[PartitionData]]"


@dataclass(frozen=True, slots=True)
class StateRequest:
    """One kind of request: how it is put together, and how a share partition's result is read."""

    name: str
    build: Callable[[str, _Topics], Request]
    read: Callable[[PartitionResult], object]

    def request(
        self, group_id: str, parts: Iterable[tuple[SharePartitionKey, PartitionData]]
    ) -> Request:
        """Return one request for share partitions of a group, no one of them twice."""
        topics: _Topics = {}
        for key, data in parts:
            topics.setdefault(key.topic_id, []).append(data)
        return self.build(group_id, topics)


def results_of(response: Response) -> dict[tuple[TopicId, int], PartitionResult]:
    """Return what a response says, by topic and partition."""
    answered = cast("reading.ReadShareGroupStateResponse", response)
    return {
        (topic.topic_id, each.partition): each
        for topic in answered.results
        for each in topic.partitions
    }


def initialize_data(partition: int, *, state_epoch: int, start_offset: int) -> PartitionData:
    """Return a partition of InitializeShareGroupState."""
    return initializing.PartitionData(
        partition=partition, state_epoch=state_epoch, start_offset=start_offset
    )


def read_data(partition: int, *, leader_epoch: int) -> PartitionData:
    """Return a partition of ReadShareGroupState."""
    return reading.PartitionData(partition=partition, leader_epoch=leader_epoch)


def write_data(partition: int, update: ShareStateUpdate) -> PartitionData:
    """Return a partition of WriteShareGroupState."""
    return writing.PartitionData(
        partition=partition,
        state_epoch=update.state_epoch,
        leader_epoch=update.leader_epoch,
        start_offset=update.start_offset,
        delivery_complete_count=update.delivery_complete_count,
        state_batches=[
            writing.StateBatch(
                first_offset=each.first_offset,
                last_offset=each.last_offset,
                delivery_state=each.delivery_state,
                delivery_count=each.delivery_count,
            )
            for each in update.state_batches
        ],
    )


def summary_data(partition: int, *, leader_epoch: int) -> PartitionData:
    """Return a partition of ReadShareGroupStateSummary."""
    return summarizing.PartitionData(partition=partition, leader_epoch=leader_epoch)


def delete_data(partition: int) -> PartitionData:
    """Return a partition of DeleteShareGroupState."""
    return deleting.PartitionData(partition=partition)


def _state(result: PartitionResult) -> ShareState:
    assert isinstance(result, reading.PartitionResult)
    return ShareState(
        result.state_epoch,
        result.start_offset,
        tuple(
            StateBatch(
                each.first_offset, each.last_offset, each.delivery_state, each.delivery_count
            )
            for each in result.state_batches
        ),
    )


def _summary(result: PartitionResult) -> ShareStateSummary:
    assert isinstance(result, summarizing.PartitionResult)
    return ShareStateSummary(
        result.state_epoch,
        result.leader_epoch,
        result.start_offset,
        result.delivery_complete_count,
    )


def _nothing(_: PartitionResult) -> None:
    return None


def _initialize(group_id: str, topics: _Topics) -> Request:
    return initializing.InitializeShareGroupStateRequest(
        group_id=group_id,
        topics=[
            initializing.InitializeStateData(
                topic_id=topic_id,
                partitions=cast("list[initializing.PartitionData]", partitions),
            )
            for topic_id, partitions in topics.items()
        ],
    )


def _read(group_id: str, topics: _Topics) -> Request:
    return reading.ReadShareGroupStateRequest(
        group_id=group_id,
        topics=[
            reading.ReadStateData(
                topic_id=topic_id, partitions=cast("list[reading.PartitionData]", partitions)
            )
            for topic_id, partitions in topics.items()
        ],
    )


def _write(group_id: str, topics: _Topics) -> Request:
    return writing.WriteShareGroupStateRequest(
        group_id=group_id,
        topics=[
            writing.WriteStateData(
                topic_id=topic_id, partitions=cast("list[writing.PartitionData]", partitions)
            )
            for topic_id, partitions in topics.items()
        ],
    )


def _summarize(group_id: str, topics: _Topics) -> Request:
    return summarizing.ReadShareGroupStateSummaryRequest(
        group_id=group_id,
        topics=[
            summarizing.ReadStateSummaryData(
                topic_id=topic_id, partitions=cast("list[summarizing.PartitionData]", partitions)
            )
            for topic_id, partitions in topics.items()
        ],
    )


def _delete(group_id: str, topics: _Topics) -> Request:
    return deleting.DeleteShareGroupStateRequest(
        group_id=group_id,
        topics=[
            deleting.DeleteStateData(
                topic_id=topic_id, partitions=cast("list[deleting.PartitionData]", partitions)
            )
            for topic_id, partitions in topics.items()
        ],
    )


INITIALIZE = StateRequest("initialize", _initialize, _nothing)
READ = StateRequest("read", _read, _state)
WRITE = StateRequest("write", _write, _nothing)
READ_SUMMARY = StateRequest("read summary", _summarize, _summary)
DELETE = StateRequest("delete", _delete, _nothing)
KINDS: Sequence[StateRequest] = (INITIALIZE, READ, WRITE, READ_SUMMARY, DELETE)
