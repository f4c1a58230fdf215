"""Keys and values of the records in ``__consumer_offsets`` and ``__transaction_state``.

Each is preceded by an int16, which the caller writes and reads. Before a value it is the version;
before a key it is the type: 0 and 1 an offset commit, 2 the metadata of a group, and in the other
topic 0 the state of a transactional id.
"""

from __future__ import annotations

from millstream.model.topic import ZERO_TOPIC_ID, TopicId
from millstream.protocol.fields import array, bytes_, int8, int16, int32, int64, string, topic_id_
from millstream.protocol.message import Message
from millstream.protocol.schema import Struct


class OffsetCommitKey(Message, versions="0", flexible="none"):
    """Whose offset of which partition a record holds."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Message, versions="0-4", flexible="4+"):
    """A committed offset."""

    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1, ignorable=True)
    topic_id: TopicId = topic_id_("4+", tag=0, default=ZERO_TOPIC_ID, ignorable=True)


class GroupMetadataKey(Message, versions="0", flexible="none"):
    """Which group a record describes."""

    group: str = string()


class MemberMetadata(Struct):
    """One of ``GroupMetadataValue.members``."""

    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="0+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = bytes_()
    assignment: bytes = bytes_()


class GroupMetadataValue(Message, versions="0-4", flexible="4+"):
    """A group of the classic protocol and its members."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata)


class TransactionLogKey(Message, versions="0", flexible="none"):
    """Which transactional id a record describes."""

    transactional_id: str = string()


class PartitionsSchema(Struct):
    """One of ``TransactionLogValue.transaction_partitions``."""

    topic: str = string()
    partition_ids: list[int] = array(int32())


class TransactionLogValue(Message, versions="0-1", flexible="1+"):
    """The state of a transactional id."""

    producer_id: int = int64()
    previous_producer_id: int = int64("1+", tag=0, default=-1)
    next_producer_id: int = int64("1+", tag=1, default=-1)
    producer_epoch: int = int16()
    next_producer_epoch: int = int16("1+", tag=3, default=-1)
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, nullable="0+")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16("1+", tag=2, default=0)
