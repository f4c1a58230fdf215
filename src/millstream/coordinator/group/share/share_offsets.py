"""Offsets of share groups as an administrator sees them: altered, deleted, deleted with a group.

The state itself is at the share coordinators. An operation here records what is about to happen and
returns what has to be asked of them; another one records that it was done. Kafka:
``GroupMetadataManager.alterShareGroupOffsets``, ``sharePartitionsEligibleForOffsetDeletion``,
``shareGroupBuildPartitionDeleteRequest``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from millstream.coordinator.group.groups import Groups
from millstream.coordinator.group.modern.topics import TopicsImage
from millstream.coordinator.group.share.heartbeat import ShareHeartbeats, StateToInitialize
from millstream.coordinator.group.share.records import state_record
from millstream.coordinator.group.share.share_group import ShareGroup
from millstream.coordinator.group.share.state_topics import (
    Partitions,
    StateTopics,
    TopicPartitions,
    united,
)
from millstream.coordinator.result import Instant, Result
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import ZERO_TOPIC_ID, TopicId
from millstream.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from millstream.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponseTopic,
)


@dataclass(frozen=True, slots=True)
class OffsetsAlteration:
    """The answer if everything succeeds, and the state that is to begin anew."""

    response: AlterShareGroupOffsetsResponse
    initialize: StateToInitialize


@dataclass(frozen=True, slots=True)
class OffsetsDeletion:
    """The topics that are refused, and the share partitions whose state is to be deleted."""

    refused: tuple[DeleteShareGroupOffsetsResponseTopic, ...]
    names: Mapping[TopicId, str]
    partitions: Partitions


class ShareOffsets:
    """The offsets of one shard's share groups."""

    def __init__(self, groups: Groups, topics: TopicsImage, heartbeats: ShareHeartbeats) -> None:
        self._groups = groups
        self._topics = topics
        self._heartbeats = heartbeats

    def initialized(self, group_id: str) -> Result[Partitions]:
        """Return the share partitions of a group that have state; none for an unknown group."""
        group = self._groups.get(group_id)
        if not isinstance(group, ShareGroup):
            return Result(response={})
        return Result(response=group.state_topics.initialized_partitions())

    def alter(
        self, request: AlterShareGroupOffsetsRequest, now: Instant
    ) -> Result[OffsetsAlteration]:
        """Begin the state of share partitions anew, at other offsets; the group is made if there is
        none.

        Raises NON_EMPTY_GROUP if it has members, GROUP_ID_NOT_FOUND if it is another kind of group.
        """
        group = self._group(request.group_id, create=True)
        group.validate_delete()
        offsets: dict[TopicId, dict[int, int]] = {}
        begun: dict[TopicId, TopicPartitions] = {}
        answered: dict[str, AlterShareGroupOffsetsResponseTopic] = {}
        for topic in request.topics:
            image = self._topics.topic(topic.topic_name)
            count = 0 if image is None else image.partition_count
            known = {
                each.partition_index: each.start_offset
                for each in topic.partitions
                if 0 <= each.partition_index < count
            }
            topic_id = ZERO_TOPIC_ID if image is None else image.topic_id
            if known:
                offsets.setdefault(topic_id, {}).update(known)
                begun[topic_id] = TopicPartitions(topic.topic_name, frozenset(offsets[topic_id]))
            altered = _altered(topic, topic_id, known)
            if topic.topic_name in answered:
                answered[topic.topic_name].partitions += altered.partitions
            else:
                answered[topic.topic_name] = altered
        result = Result(
            response=OffsetsAlteration(
                AlterShareGroupOffsetsResponse(
                    error_code=ErrorCode.NONE.code, responses=list(answered.values())
                ),
                StateToInitialize(group.group_id, group.group_epoch, offsets),
            )
        )
        if begun:
            result.records.append(state_record(group.group_id, group.state_topics.begin(begun)))
            self._heartbeats.mark_begun(group.group_id, begun, now)
        return result

    def begin_deletion(self, request: DeleteShareGroupOffsetsRequest) -> Result[OffsetsDeletion]:
        """Let topics of a group be deleting.

        Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        group = self._group(request.group_id, create=False)
        group.validate_delete()
        state = group.state_topics
        refused: list[DeleteShareGroupOffsetsResponseTopic] = []
        names: dict[TopicId, str] = {}
        partitions: dict[TopicId, frozenset[int]] = {}
        for topic in request.topics:
            image = self._topics.topic(topic.topic_name)
            if image is None:
                refused.append(_not_deleted(topic.topic_name, None))
                continue
            topic_id = image.topic_id
            if topic_id in state.initialized:
                partitions[topic_id] = state.initialized[topic_id].partitions
            elif topic_id in state.deleting:
                partitions[topic_id] = frozenset(range(image.partition_count))
            else:
                text = "There is no offset information to delete."
                refused.append(_not_deleted(topic.topic_name, text))
                continue
            names[topic_id] = topic.topic_name
        result = Result(response=OffsetsDeletion(tuple(refused), names, partitions))
        if names:
            result.records.append(state_record(group.group_id, state.delete(names)))
        return result

    def finish_deletion(self, group_id: str, topic_ids: frozenset[TopicId]) -> Result[bool]:
        """Forget topics whose state is deleted."""
        group = self._groups.get(group_id)
        if not isinstance(group, ShareGroup) or not topic_ids & group.state_topics.deleting.keys():
            return Result(response=False)
        after = group.state_topics.deleted(topic_ids)
        return Result(response=True, records=[state_record(group_id, after)])

    def begin_group_deletion(self, group_id: str) -> Result[Partitions]:
        """Return the share partitions whose state has to be deleted before the group may be; none
        for other kinds of groups.

        Raises NON_EMPTY_GROUP.
        """
        group = self._groups.get(group_id)
        if not isinstance(group, ShareGroup):
            return Result(response={})
        group.validate_delete()
        state = group.state_topics
        found = {
            topic_id: each
            for topic_id, each in united(state.initialized, state.initializing).items()
            if self._topics.topic_by_id(topic_id) is not None
        }
        for topic_id in state.deleting:
            image = self._topics.topic_by_id(topic_id)
            if image is not None:
                every = frozenset(range(image.partition_count))
                found[topic_id] = TopicPartitions(image.name, every)
        if not found:
            return Result(response={})
        deleting = {topic_id: each.name for topic_id, each in found.items()}
        return Result(
            response={topic_id: each.partitions for topic_id, each in found.items()},
            records=[state_record(group_id, StateTopics(deleting=deleting))],
        )

    def _group(self, group_id: str, *, create: bool) -> ShareGroup:
        group = self._groups.get(group_id)
        if isinstance(group, ShareGroup):
            return group
        if group is None and create:
            self._groups.check_room()
            return ShareGroup(group_id)
        text = "Share group {} not found." if group is None else "Group {} is not a share group."
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text.format(group_id))


def _altered(
    topic: AlterShareGroupOffsetsRequestTopic, topic_id: TopicId, known: Mapping[int, int]
) -> AlterShareGroupOffsetsResponseTopic:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return AlterShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        topic_id=topic_id,
        partitions=[
            AlterShareGroupOffsetsResponsePartition(
                partition_index=each.partition_index, error_code=ErrorCode.NONE.code
            )
            if each.partition_index in known
            else AlterShareGroupOffsetsResponsePartition(
                partition_index=each.partition_index,
                error_code=unknown.code,
                error_message=unknown.name,
            )
            for each in topic.partitions
        ],
    )


def _not_deleted(name: str, text: str | None) -> DeleteShareGroupOffsetsResponseTopic:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=ZERO_TOPIC_ID,
        error_code=unknown.code,
        error_message=text or unknown.name,
    )
