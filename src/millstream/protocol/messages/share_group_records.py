"""Records of ``__consumer_offsets`` for share groups (KIP-932).

As with those of the other groups each begins with an int16: before a value its version, before a
key the number named with it below. In a key's body the version is always 0.
"""

from __future__ import annotations

from millstream.model.topic import TopicId
from millstream.protocol.fields import array, int8, int32, int64, string, topic_id_
from millstream.protocol.message import Message
from millstream.protocol.schema import Struct


class ShareGroupMemberMetadataKey(Message, versions="0", flexible="none"):
    """Key 10."""

    group_id: str = string()
    member_id: str = string()


class ShareGroupMemberMetadataValue(Message, versions="0", flexible="0+"):
    """A member: its identity and its subscription."""

    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string())


class ShareGroupMetadataKey(Message, versions="0", flexible="none"):
    """Key 11."""

    group_id: str = string()


class ShareGroupMetadataValue(Message, versions="0", flexible="0+"):
    """The group's epoch, and a hash of the metadata of its topics."""

    epoch: int = int32()
    metadata_hash: int = int64()


class ShareGroupTargetAssignmentMetadataKey(Message, versions="0", flexible="none"):
    """Key 12."""

    group_id: str = string()


class ShareGroupTargetAssignmentMetadataValue(Message, versions="0", flexible="0+"):
    """For which epoch of the group the target assignment is, and when it was computed."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0, default=0, ignorable=True)


class ShareGroupTargetAssignmentMemberKey(Message, versions="0", flexible="none"):
    """Key 13."""

    group_id: str = string()
    member_id: str = string()


class TopicPartition(Struct):
    """One of ``ShareGroupTargetAssignmentMemberValue.topic_partitions``."""

    topic_id: TopicId = topic_id_()
    partitions: list[int] = array(int32())


class ShareGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+"):
    """What a member is meant to have."""

    topic_partitions: list[TopicPartition] = array(TopicPartition)


class ShareGroupCurrentMemberAssignmentKey(Message, versions="0", flexible="none"):
    """Key 14."""

    group_id: str = string()
    member_id: str = string()


class TopicPartitions(Struct):
    """One of ``ShareGroupCurrentMemberAssignmentValue.assigned_partitions``."""

    topic_id: TopicId = topic_id_()
    partitions: list[int] = array(int32())


class ShareGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+"):
    """What a member has."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)


class ShareGroupStatePartitionMetadataKey(Message, versions="0", flexible="none"):
    """Key 15."""

    group_id: str = string()


class TopicPartitionsInfo(Struct):
    """A topic whose share partitions have state, or are about to."""

    topic_id: TopicId = topic_id_()
    topic_name: str = string()
    partitions: list[int] = array(int32())


class TopicInfo(Struct):
    """A topic whose share partitions' state is being deleted."""

    topic_id: TopicId = topic_id_()
    topic_name: str = string()


class ShareGroupStatePartitionMetadataValue(Message, versions="0", flexible="0+"):
    """Which share partitions have state at their share coordinators."""

    initializing_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    initialized_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    deleting_topics: list[TopicInfo] = array(TopicInfo)
