"""Metadata: API key 3, versions 0 to 13."""

from __future__ import annotations

from millstream.model.topic import ZERO_TOPIC_ID, TopicId
from millstream.protocol.fields import array, bool_, int16, int32, string, topic_id_
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class MetadataRequestTopic(Struct):
    """One of ``MetadataRequest.topics``."""

    topic_id: TopicId = topic_id_("10+", default=ZERO_TOPIC_ID, ignorable=True)
    name: str | None = string(nullable="10+")


class MetadataRequest(Request, key=3, versions="0-13", flexible="9+"):
    """Request of Metadata."""

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = bool_("4+", default=True)
    include_cluster_authorized_operations: bool = bool_("8-10", default=False)
    include_topic_authorized_operations: bool = bool_("8+", default=False)


class MetadataResponseBroker(Struct):
    """One of ``MetadataResponse.brokers``."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string("1+", nullable="0+", default=None, ignorable=True)


class MetadataResponsePartition(Struct):
    """One of ``MetadataResponseTopic.partitions``."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32("7+", default=-1, ignorable=True)
    replica_nodes: list[int] = array(int32())
    isr_nodes: list[int] = array(int32())
    offline_replicas: list[int] = array(int32(), "5+", factory=list, ignorable=True)


class MetadataResponseTopic(Struct):
    """One of ``MetadataResponse.topics``."""

    error_code: int = int16()
    name: str | None = string(nullable="12+")
    topic_id: TopicId = topic_id_("10+", default=ZERO_TOPIC_ID, ignorable=True)
    is_internal: bool = bool_("1+", default=False, ignorable=True)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32("8+", default=-2147483648)


class MetadataResponse(Response, key=3, versions="0-13", flexible="9+"):
    """Response of Metadata."""

    throttle_time_ms: int = int32("3+", default=0, ignorable=True)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string("2+", nullable="0+", default=None, ignorable=True)
    controller_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32("8-10", default=-2147483648)
    error_code: int = int16("13+", default=0, ignorable=True)
