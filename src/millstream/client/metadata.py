"""Brokers, topics and partitions as a broker described them. Values only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from millstream.client.settings import Address
from millstream.model.errors import ErrorCode
from millstream.model.offsets import LeaderEpoch
from millstream.model.topic import TopicId, TopicPartition
from millstream.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic


@dataclass(frozen=True, slots=True)
class Broker:
    """A live broker."""

    broker_id: int
    address: Address
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """The replicas and the leader of one partition; ``leader`` is −1 if there is none."""

    topic_partition: TopicPartition
    leader: int
    leader_epoch: LeaderEpoch
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    error: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic and its partitions, in order of their numbers."""

    name: str
    topic_id: TopicId
    is_internal: bool
    partitions: tuple[Partition, ...]
    error: ErrorCode

    @property
    def replication_factor(self) -> int:
        """Replicas of the first partition."""
        return len(self.partitions[0].replicas) if self.partitions else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """One Metadata response: the whole cluster and the requested topics."""

    cluster_id: str | None
    controller_id: int
    brokers: Mapping[int, Broker]
    topics: Mapping[str, Topic]


def read_metadata(response: MetadataResponse) -> Metadata:
    """Turn a response into values."""
    topics = [_read_topic(each) for each in response.topics]
    return Metadata(
        cluster_id=response.cluster_id,
        controller_id=response.controller_id,
        brokers=brokers_of(response),
        topics={topic.name: topic for topic in topics},
    )


class BrokerRow(Protocol):
    """A broker as responses name it: of metadata, and beside the answers of fetches."""

    node_id: int
    host: str
    port: int
    rack: str | None


def brokers_in(rows: Iterable[BrokerRow]) -> list[Broker]:
    """Return the brokers that a response names."""
    return [Broker(each.node_id, Address(each.host, each.port), each.rack) for each in rows]


def brokers_of(response: MetadataResponse) -> dict[int, Broker]:
    """Return the brokers of a response by id."""
    return {each.broker_id: each for each in brokers_in(response.brokers)}


def _read_topic(topic: MetadataResponseTopic) -> Topic:
    name = topic.name or ""
    partitions = sorted(topic.partitions, key=lambda each: each.partition_index)
    return Topic(
        name=name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        error=ErrorCode.of(topic.error_code),
        partitions=tuple(
            Partition(
                topic_partition=TopicPartition(name, each.partition_index),
                leader=each.leader_id,
                leader_epoch=each.leader_epoch,
                replicas=tuple(each.replica_nodes),
                isr=tuple(each.isr_nodes),
                offline_replicas=tuple(each.offline_replicas),
                error=ErrorCode.of(each.error_code),
            )
            for each in partitions
        ),
    )
