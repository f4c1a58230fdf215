"""Records of Apache Kafka's own metadata log for topics and their settings.

The log is ``__cluster_metadata-0`` (KIP-631, KIP-858, KIP-966). In front of each message stand
three unsigned varints: the version of this frame (1), the key below, and the message's version.
"""

from __future__ import annotations

from millstream.model.topic import ZERO_TOPIC_ID, TopicId
from millstream.protocol.fields import array, int8, int32, string, topic_id_
from millstream.protocol.message import Message


class TopicRecord(Message, versions="0", flexible="0+"):
    """A topic was made. Key 2."""

    name: str = string()
    topic_id: TopicId = topic_id_()


class PartitionRecord(Message, versions="0-2", flexible="0+"):
    """A partition as it is. Key 3."""

    partition_id: int = int32(default=-1)
    topic_id: TopicId = topic_id_(default=ZERO_TOPIC_ID)
    replicas: list[int] = array(int32())
    isr: list[int] = array(int32())
    removing_replicas: list[int] = array(int32())
    adding_replicas: list[int] = array(int32())
    leader: int = int32(default=-1)
    leader_recovery_state: int = int8(tag=0, default=0)
    leader_epoch: int = int32(default=-1)
    partition_epoch: int = int32(default=-1)
    directories: list[TopicId] = array(topic_id_(), "1+", factory=list)
    eligible_leader_replicas: list[int] | None = array(
        int32(), "2+", tag=1, nullable="2+", default=None
    )
    last_known_elr: list[int] | None = array(int32(), "2+", tag=2, nullable="2+", default=None)


class PartitionChangeRecord(Message, versions="0-2", flexible="0+"):
    """What is different of a partition. Key 5. A new leader raises the leader epoch by one."""

    partition_id: int = int32(default=-1)
    topic_id: TopicId = topic_id_(default=ZERO_TOPIC_ID)
    isr: list[int] | None = array(int32(), tag=0, nullable="0+", default=None)
    leader: int = int32(tag=1, default=-2)
    replicas: list[int] | None = array(int32(), tag=2, nullable="0+", default=None)
    removing_replicas: list[int] | None = array(int32(), tag=3, nullable="0+", default=None)
    adding_replicas: list[int] | None = array(int32(), tag=4, nullable="0+", default=None)
    leader_recovery_state: int = int8(tag=5, default=-1)
    directories: list[TopicId] | None = array(topic_id_(), "1+", tag=8, nullable="1+", default=None)
    eligible_leader_replicas: list[int] | None = array(
        int32(), "2+", tag=6, nullable="2+", default=None
    )
    last_known_elr: list[int] | None = array(int32(), "2+", tag=7, nullable="2+", default=None)


class ConfigRecord(Message, versions="0", flexible="0+"):
    """A setting was changed, or taken away where ``value`` is None. Key 4."""

    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(nullable="0+")


class RemoveTopicRecord(Message, versions="0", flexible="0+"):
    """A topic was deleted. Key 9."""

    topic_id: TopicId = topic_id_()
