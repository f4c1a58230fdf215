"""Records of Apache Kafka's own metadata log: topics, settings, rules of access, quotas, users,
delegation tokens.

The log is ``__cluster_metadata-0`` (KIP-631, KIP-858, KIP-966). In front of each message stand
three unsigned varints: the version of this frame (1), the key below, and the message's version.
"""

from __future__ import annotations

from millstream.model.topic import ZERO_TOPIC_ID, TopicId
from millstream.protocol.fields import (
    array,
    bool_,
    bytes_,
    float64,
    int8,
    int32,
    int64,
    string,
    topic_id_,
)
from millstream.protocol.message import Message
from millstream.protocol.schema import Struct


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


class AccessControlEntryRecord(Message, versions="0", flexible="0+"):
    """A rule of access was made. Key 18."""

    id: TopicId = topic_id_()
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8()
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class RemoveAccessControlEntryRecord(Message, versions="0", flexible="0+"):
    """A rule of access was deleted. Key 19."""

    id: TopicId = topic_id_()


class QuotaEntityData(Struct):
    """One of ``ClientQuotaRecord.entity``; no name is the default."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


class ClientQuotaRecord(Message, versions="0", flexible="0+"):
    """A quota was set, or taken away. Key 14."""

    entity: list[QuotaEntityData] = array(QuotaEntityData)
    key: str = string()
    value: float = float64()
    remove: bool = bool_()


class UserScramCredentialRecord(Message, versions="0", flexible="0+"):
    """A SCRAM credential of a user was set. Key 11."""

    name: str = string()
    mechanism: int = int8()
    salt: bytes = bytes_()
    stored_key: bytes = bytes_()
    server_key: bytes = bytes_()
    iterations: int = int32()


class RemoveUserScramCredentialRecord(Message, versions="0", flexible="0+"):
    """A SCRAM credential of a user was deleted. Key 22."""

    name: str = string()
    mechanism: int = int8()


class DelegationTokenRecord(Message, versions="0", flexible="0+"):
    """A delegation token was made or renewed. Key 10."""

    owner: str = string()
    requester: str = string()
    renewers: list[str] = array(string())
    issue_timestamp: int = int64()
    max_timestamp: int = int64()
    expiration_timestamp: int = int64()
    token_id: str = string()


class RemoveDelegationTokenRecord(Message, versions="0", flexible="0+"):
    """A delegation token has ended. Key 26."""

    token_id: str = string()
