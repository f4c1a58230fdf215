"""Share groups of this broker: their requests, and what they need of the share coordinators.

The group coordinator knows which share partitions have state, the share coordinators have it. An
operation that concerns both is: records of the group, requests to the share coordinators through
the persister, records of the group again. What fails in between is found in the group's records and
done again by the next heartbeat or request. Kafka: ``GroupCoordinatorService``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from millstream.coordinator.group.coordinator import GroupCoordinator
from millstream.coordinator.group.join_group import Caller
from millstream.coordinator.group.share.heartbeat import ShareHeartbeat, StateToInitialize
from millstream.coordinator.group.share.state_topics import Partitions
from millstream.coordinator.result import Instant, Result
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicId
from millstream.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from millstream.protocol.messages.delete_groups import DeletableGroupResult
from millstream.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from millstream.protocol.messages.share_group_describe import DescribedGroup
from millstream.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from millstream.share.state import SharePartitionKey

if TYPE_CHECKING:
    from millstream.runtime.share.persister import SharePersister

log = logging.getLogger(__name__)

R = TypeVar("R")

Operation: TypeAlias = Callable[[GroupCoordinator, Instant], Result[R]]


class GroupShards(Protocol):
    """Brings operations to the shard of a group: ``write`` those that may make records."""

    def write(self, group_id: str, operation: Operation[R]) -> Deferred[R]:
        """See ``ShardDriver.write``."""

    def read(self, group_id: str, operation: Operation[R]) -> Deferred[R]:
        """See ``ShardDriver.read``."""


Outcomes: TypeAlias = "dict[tuple[TopicId, int], KafkaError | None]"
"""What came of an operation on each share partition."""


class ShareGroupsRuntime:
    """Serves requests about share groups. Every method answers with a Deferred that fails with a
    KafkaError as those of ``GroupCoordinatorRuntime`` do.
    """

    def __init__(self, shards: GroupShards, get_persister: Callable[[], SharePersister]) -> None:
        self._shards = shards
        self._get_persister = get_persister

    # Members

    def heartbeat(
        self, request: ShareGroupHeartbeatRequest, caller: Caller
    ) -> Deferred[ShareGroupHeartbeatResponse]:
        """Answer a heartbeat; the state of new share partitions is initialized after it."""
        return spawn(self._heartbeat(request, caller))

    async def _heartbeat(
        self, request: ShareGroupHeartbeatRequest, caller: Caller
    ) -> ShareGroupHeartbeatResponse:
        answer: ShareHeartbeat = await self._shards.write(
            request.group_id,
            lambda shard, now: shard.shares.members.heartbeat(request, caller, now),
        )
        if answer.initialize is not None:
            spawn(self._initialize(answer.initialize)).on_done(_log_failure)
        return answer.response

    def describe(self, group_id: str) -> Deferred[DescribedGroup]:
        """Return a share group's epochs, members and assignments."""
        return self._shards.read(group_id, lambda shard, _: shard.shares.describe(group_id))

    # Offsets

    def initialized_partitions(self, group_id: str) -> Deferred[Partitions]:
        """Return the share partitions of a group that have state."""
        return self._shards.read(
            group_id, lambda shard, _: shard.shares.offsets.initialized(group_id)
        )

    def alter_offsets(
        self, request: AlterShareGroupOffsetsRequest
    ) -> Deferred[AlterShareGroupOffsetsResponse]:
        """Begin share partitions of an empty group anew at other offsets."""
        return spawn(self._alter_offsets(request))

    async def _alter_offsets(
        self, request: AlterShareGroupOffsetsRequest
    ) -> AlterShareGroupOffsetsResponse:
        plan = await self._shards.write(
            request.group_id, lambda shard, now: shard.shares.offsets.alter(request, now)
        )
        outcomes = await self._initialize(plan.initialize)
        for topic in plan.response.responses:
            for each in topic.partitions:
                error = outcomes.get((topic.topic_id, each.partition_index))
                if error is not None:
                    each.error_code = error.error.code
                    each.error_message = error.message or error.error.name
        return plan.response

    def delete_offsets(
        self, request: DeleteShareGroupOffsetsRequest
    ) -> Deferred[DeleteShareGroupOffsetsResponse]:
        """Delete the state of all share partitions of topics, for an empty group."""
        return spawn(self._delete_offsets(request))

    async def _delete_offsets(
        self, request: DeleteShareGroupOffsetsRequest
    ) -> DeleteShareGroupOffsetsResponse:
        group_id = request.group_id
        plan = await self._shards.write(
            group_id, lambda shard, _: shard.shares.offsets.begin_deletion(request)
        )
        responses = list(plan.refused)
        outcomes = await self._delete_state(group_id, plan.partitions)
        done: set[TopicId] = set()
        for topic_id, name in plan.names.items():
            error = _first_error(outcomes, topic_id)
            if error is None:
                done.add(topic_id)
            responses.append(
                DeleteShareGroupOffsetsResponseTopic(
                    topic_name=name,
                    topic_id=topic_id,
                    error_code=0 if error is None else error.error.code,
                    error_message=None if error is None else error.message or error.error.name,
                )
            )
        if done:
            gone = frozenset(done)
            await self._shards.write(
                group_id, lambda shard, _: shard.shares.offsets.finish_deletion(group_id, gone)
            )
        return DeleteShareGroupOffsetsResponse(error_code=ErrorCode.NONE.code, responses=responses)

    def delete_group(self, group_id: str) -> Deferred[DeletableGroupResult]:
        """Delete a group of any kind; a share group's state goes first."""
        return spawn(self._delete_group(group_id))

    async def _delete_group(self, group_id: str) -> DeletableGroupResult:
        partitions = await self._shards.write(
            group_id, lambda shard, _: shard.shares.offsets.begin_group_deletion(group_id)
        )
        for error in (await self._delete_state(group_id, partitions)).values():
            if error is not None:
                raise error
        return await self._shards.write(group_id, lambda shard, _: shard.delete_group(group_id))

    # The share coordinators

    async def _initialize(self, state: StateToInitialize) -> Outcomes:
        """Initialize the state of share partitions, and tell the group what came of it."""
        begun = {
            (topic_id, index): self._get_persister().initialize(
                SharePartitionKey(state.group_id, topic_id, index),
                state_epoch=state.state_epoch,
                start_offset=offset,
            )
            for topic_id, offsets in state.start_offsets.items()
            for index, offset in offsets.items()
        }
        outcomes = await _settled(begun)
        done = _by_topic(place for place, error in outcomes.items() if error is None)
        failed = _by_topic(place for place, error in outcomes.items() if error is not None)
        group_id = state.group_id
        if done:
            await self._shards.write(
                group_id, lambda shard, _: shard.shares.members.initialized(group_id, done)
            )
        if failed:
            await self._shards.write(
                group_id, lambda shard, _: shard.shares.members.not_initialized(group_id, failed)
            )
        return outcomes

    async def _delete_state(self, group_id: str, partitions: Partitions) -> Outcomes:
        return await _settled(
            {
                (topic_id, index): self._get_persister().delete(
                    SharePartitionKey(group_id, topic_id, index)
                )
                for topic_id, indexes in partitions.items()
                for index in sorted(indexes)
            }
        )


async def _settled(begun: Mapping[tuple[TopicId, int], Deferred[None]]) -> Outcomes:
    outcomes: Outcomes = {}
    for place, reply in begun.items():
        try:
            await reply
        except KafkaError as error:
            outcomes[place] = error
        else:
            outcomes[place] = None
    return outcomes


def _by_topic(places: Iterable[tuple[TopicId, int]]) -> Partitions:
    found: dict[TopicId, set[int]] = {}
    for topic_id, index in places:
        found.setdefault(topic_id, set()).add(index)
    return {topic_id: frozenset(indexes) for topic_id, indexes in found.items()}


def _first_error(outcomes: Outcomes, topic_id: TopicId) -> KafkaError | None:
    return next(
        (error for place, error in outcomes.items() if place[0] == topic_id and error), None
    )


def _log_failure(outcome: Deferred[Outcomes]) -> None:
    try:
        outcome.result()
    except KafkaError as error:
        log.info("the state of share partitions is initialized again later: %s", error)
