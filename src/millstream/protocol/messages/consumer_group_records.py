"""Records of ``__consumer_offsets`` for groups of the consumer protocol (KIP-848).

As with those of the classic protocol each begins with an int16: before a value its version,
before a key the number named with it below. In a key's body the version is always 0.
"""

from __future__ import annotations

from millstream.model.topic import TopicId
from millstream.protocol.fields import array, bytes_, int8, int32, int64, string, struct, topic_id_
from millstream.protocol.message import Message
from millstream.protocol.schema import Struct


class ConsumerGroupMetadataKey(Message, versions="0", flexible="none"):
    """Key 3."""

    group_id: str = string()


class ConsumerGroupMetadataValue(Message, versions="0", flexible="0+"):
    """The group's epoch, and a hash of the metadata of its topics."""

    epoch: int = int32()
    metadata_hash: int = int64(tag=0, default=0)


class ConsumerGroupPartitionMetadataKey(Message, versions="0", flexible="none"):
    """Key 4."""

    group_id: str = string()


class PartitionMetadata(Struct):
    """One of ``TopicMetadata.partition_metadata``."""

    partition: int = int32()
    racks: list[str] = array(string())


class TopicMetadata(Struct):
    """One of ``ConsumerGroupPartitionMetadataValue.topics``."""

    topic_id: TopicId = topic_id_()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: list[PartitionMetadata] = array(PartitionMetadata)


class ConsumerGroupPartitionMetadataValue(Message, versions="0", flexible="0+"):
    """What the group knew of its topics, before 4.1 put a hash in its place."""

    topics: list[TopicMetadata] = array(TopicMetadata)


class ConsumerGroupMemberMetadataKey(Message, versions="0", flexible="none"):
    """Key 5."""

    group_id: str = string()
    member_id: str = string()


class ClassicProtocol(Struct):
    """One of ``ClassicMemberMetadata.supported_protocols``."""

    name: str = string()
    metadata: bytes = bytes_()


class ClassicMemberMetadata(Struct):
    """What a member that speaks the classic protocol said when it joined."""

    session_timeout_ms: int = int32(default=0)
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol, factory=list)


class ConsumerGroupMemberMetadataValue(Message, versions="0", flexible="0+"):
    """A member: its identity and its subscription."""

    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string())
    subscribed_topic_regex: str | None = string(nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = struct(
        ClassicMemberMetadata,
        nullable="0+",
        tag=0,
        # The default is an empty struct, so null is written: what Kafka 4.3 makes of its schema.
        factory=ClassicMemberMetadata,
    )


class ConsumerGroupTargetAssignmentMetadataKey(Message, versions="0", flexible="none"):
    """Key 6."""

    group_id: str = string()


class ConsumerGroupTargetAssignmentMetadataValue(Message, versions="0", flexible="0+"):
    """For which epoch of the group the target assignment is."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0, default=0, ignorable=True)


class ConsumerGroupTargetAssignmentMemberKey(Message, versions="0", flexible="none"):
    """Key 7."""

    group_id: str = string()
    member_id: str = string()


class TopicPartition(Struct):
    """One of ``ConsumerGroupTargetAssignmentMemberValue.topic_partitions``."""

    topic_id: TopicId = topic_id_()
    partitions: list[int] = array(int32())


class ConsumerGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+"):
    """What a member is meant to have."""

    topic_partitions: list[TopicPartition] = array(TopicPartition)


class ConsumerGroupCurrentMemberAssignmentKey(Message, versions="0", flexible="none"):
    """Key 8."""

    group_id: str = string()
    member_id: str = string()


class TopicPartitions(Struct):
    """Partitions of one topic in ``ConsumerGroupCurrentMemberAssignmentValue``."""

    topic_id: TopicId = topic_id_()
    partitions: list[int] = array(int32())
    assignment_epochs: list[int] | None = array(int32(), nullable="0+", tag=0, default=None)


class ConsumerGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+"):
    """What a member has, and what it has yet to give back."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    partitions_pending_revocation: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupRegularExpressionKey(Message, versions="0", flexible="none"):
    """Key 16."""

    group_id: str = string()
    regular_expression: str = string()


class ConsumerGroupRegularExpressionValue(Message, versions="0", flexible="0+"):
    """Which topics a regular expression stood for, and when."""

    topics: list[str] = array(string())
    version: int = int64()
    timestamp: int = int64()
