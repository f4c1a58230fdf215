"""CreateTopics: API key 19, versions 2 to 7."""

from __future__ import annotations

from millstream.model.topic import ZERO_TOPIC_ID, TopicId
from millstream.protocol.fields import array, bool_, int8, int16, int32, string, topic_id_
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class CreatableReplicaAssignment(Struct):
    """One of ``CreatableTopic.assignments``."""

    partition_index: int = int32()
    broker_ids: list[int] = array(int32())


class CreatableTopicConfig(Struct):
    """One of ``CreatableTopic.configs``."""

    name: str = string()
    value: str | None = string(nullable="0+")


class CreatableTopic(Struct):
    """One of ``CreateTopicsRequest.topics``."""

    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


class CreateTopicsRequest(Request, key=19, versions="2-7", flexible="5+"):
    """Request of CreateTopics."""

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = bool_(default=False)


class CreatableTopicConfigs(Struct):
    """One of ``CreatableTopicResult.configs``."""

    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = bool_()
    config_source: int = int8(default=-1)
    is_sensitive: bool = bool_()


class CreatableTopicResult(Struct):
    """One of ``CreateTopicsResponse.topics``."""

    name: str = string()
    topic_id: TopicId = topic_id_("7+", default=ZERO_TOPIC_ID, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    topic_config_error_code: int = int16("5+", tag=0, default=0, ignorable=True)
    num_partitions: int = int32("5+", default=-1, ignorable=True)
    replication_factor: int = int16("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = array(
        CreatableTopicConfigs, "5+", nullable="0+", factory=list, ignorable=True
    )


class CreateTopicsResponse(Response, key=19, versions="2-7", flexible="5+"):
    """Response of CreateTopics."""

    throttle_time_ms: int = int32(default=0)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
