"""PushMetadata: API key 10000, version 0. Between brokers of Millstream only.

The controller sends its decisions to a broker, as whole states. ``all_topic_ids`` stands in the
first push to a broker: topics that it does not name are gone. ``sequence`` counts the pushes of one
controller, from 1: what an old connection brings after a new one is known by it. 0 stands for a
controller that does not count. ``entities`` are those that have changed; where one of
``entity_ranges`` is given, they are all that there are within it.
"""

from __future__ import annotations

from millstream.model.topic import TopicId
from millstream.protocol.fields import (
    array,
    bool_,
    int8,
    int16,
    int32,
    int64,
    string,
    topic_id_,
)
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class PushedEndpoint(Struct):
    """One of ``PushedBroker.endpoints``."""

    listener: str = string()
    host: str = string()
    port: int = int32()


class PushedBroker(Struct):
    """One of ``PushMetadataRequest.brokers``."""

    broker_id: int = int32()
    broker_epoch: int = int64()
    rack: str | None = string(nullable="0+", default=None)
    endpoints: list[PushedEndpoint] = array(PushedEndpoint)


class PushedMember(Struct):
    """One of ``PushedPartition.isr_broker_epochs``."""

    broker_id: int = int32()
    broker_epoch: int = int64()


class PushedPartition(Struct):
    """One of ``PushedTopic.partitions``."""

    index: int = int32()
    replicas: list[int] = array(int32())
    leader: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(int32())
    partition_epoch: int = int32()
    controller_epoch: int = int32()
    adding_replicas: list[int] = array(int32())
    removing_replicas: list[int] = array(int32())
    elr: list[int] = array(int32())
    last_known_elr: list[int] = array(int32())
    leader_recovery_state: int = int8()
    isr_broker_epochs: list[PushedMember] = array(PushedMember)


class PushedSetting(Struct):
    """One of ``PushedTopic.settings`` and ``PushedSettings.settings``."""

    name: str = string()
    value: str = string()


class PushedTopic(Struct):
    """One of ``PushMetadataRequest.topics``: those of its partitions that changed, or all."""

    name: str = string()
    topic_id: TopicId = topic_id_()
    created: bool = bool_()
    partition_count: int = int32()
    settings: list[PushedSetting] = array(PushedSetting)
    partitions: list[PushedPartition] = array(PushedPartition)


class PushedDeletion(Struct):
    """One of ``PushMetadataRequest.deleted``."""

    name: str = string()
    topic_id: TopicId = topic_id_()


class PushedSettings(Struct):
    """One of ``PushMetadataRequest.broker_settings``, whose name is a broker's id, or empty, and
    of ``PushMetadataRequest.group_settings``, whose name is a group's id.
    """

    name: str = string()
    settings: list[PushedSetting] = array(PushedSetting)


class PushedFeature(Struct):
    """One of ``PushMetadataRequest.features``."""

    name: str = string()
    level: int = int16()


class PushedEntity(Struct):
    """One of ``PushMetadataRequest.entities``: its kind, its key, and what it holds; null when it
    is gone.
    """

    kind: int = int8()
    key: str = string()
    value: list[PushedSetting] | None = array(PushedSetting, nullable="0+", default=None)


class PushedEntityRange(Struct):
    """One of ``PushMetadataRequest.entity_ranges``: keys above ``after``, up to ``through``; null
    is no limit.
    """

    kind: int = int8()
    after: str | None = string(nullable="0+", default=None)
    through: str | None = string(nullable="0+", default=None)


class PushMetadataRequest(Request, key=10000, versions="0", flexible="0+"):
    """Request of PushMetadata."""

    controller_id: int = int32()
    controller_epoch: int = int32()
    broker_epoch: int = int64()
    brokers: list[PushedBroker] = array(PushedBroker)
    all_topic_ids: list[TopicId] | None = array(topic_id_(), nullable="0+", default=None)
    topics: list[PushedTopic] = array(PushedTopic)
    deleted: list[PushedDeletion] = array(PushedDeletion)
    broker_settings: list[PushedSettings] | None = array(
        PushedSettings, nullable="0+", default=None
    )
    sequence: int = int64(tag=0, default=0)
    features: list[PushedFeature] | None = array(PushedFeature, nullable="0+", tag=1, default=None)
    features_epoch: int = int64(tag=2, default=0)
    group_settings: list[PushedSettings] | None = array(
        PushedSettings, nullable="0+", tag=3, default=None
    )
    entities: list[PushedEntity] | None = array(PushedEntity, nullable="0+", tag=4, default=None)
    entity_ranges: list[PushedEntityRange] | None = array(
        PushedEntityRange, nullable="0+", tag=5, default=None
    )


class PushMetadataResponse(Response, key=10000, versions="0", flexible="0+"):
    """Response of PushMetadata."""

    error_code: int = int16()
