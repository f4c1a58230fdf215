"""Records of ``__share_group_state``: the state of share partitions (KIP-932).

As in ``__consumer_offsets`` each begins with an int16: before a value its version, before a key the
number named with it below. In a key's body the version is always 0.
"""

from __future__ import annotations

from millstream.model.topic import TopicId
from millstream.protocol.fields import array, int8, int16, int32, int64, string, topic_id_
from millstream.protocol.message import Message
from millstream.protocol.schema import Struct


class ShareSnapshotKey(Message, versions="0", flexible="none"):
    """Key 0."""

    group_id: str = string()
    topic_id: TopicId = topic_id_()
    partition: int = int32()


class StateBatch(Struct):
    """One of ``ShareSnapshotValue.state_batches`` or ``ShareUpdateValue.state_batches``."""

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class ShareSnapshotValue(Message, versions="0", flexible="0+"):
    """All of a share partition's state."""

    snapshot_epoch: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(tag=0, default=-1)
    create_timestamp: int = int64()
    write_timestamp: int = int64()
    state_batches: list[StateBatch] = array(StateBatch)


class ShareUpdateKey(Message, versions="0", flexible="none"):
    """Key 1."""

    group_id: str = string()
    topic_id: TopicId = topic_id_()
    partition: int = int32()


class ShareUpdateValue(Message, versions="0", flexible="0+"):
    """What has changed since the snapshot of the same epoch; -1 for a start offset that has not."""

    snapshot_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(tag=0, default=-1)
    state_batches: list[StateBatch] = array(StateBatch)
