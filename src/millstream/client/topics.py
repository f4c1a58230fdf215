"""Topics: create, delete, more partitions, delete records. Each item fails on its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from millstream.client.cluster import Cluster
from millstream.client.core.admin.topics import NewTopic, creatable_topic
from millstream.client.errors import TRANSIENT
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.offsets import Offset
from millstream.model.topic import ZERO_TOPIC_ID, TopicPartition
from millstream.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from millstream.protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from millstream.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from millstream.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

__all__ = [
    "NewTopic",
    "Outcomes",
    "create_partitions",
    "create_topics",
    "delete_records",
    "delete_topics",
    "raise_first",
]

Outcomes: TypeAlias = dict[str, KafkaError | None]
"""By topic: None when it was done, the error when not."""


def create_topics(
    cluster: Cluster, topics: Sequence[NewTopic], *, validate_only: bool = False
) -> Outcomes:
    """Create topics, or only say what would happen."""
    request = CreateTopicsRequest(
        topics=[creatable_topic(topic) for topic in topics],
        timeout_ms=cluster.settings.request_timeout_ms,
        validate_only=validate_only,
    )

    def ask() -> Outcomes:
        response = cluster.controller().call(request, CreateTopicsResponse)
        return {
            each.name: _outcome(each.error_code, each.error_message, each.name)
            for each in response.topics
        }

    return cluster.retrying(ask)


def delete_topics(cluster: Cluster, names: Sequence[str]) -> Outcomes:
    """Delete topics by name."""

    def ask() -> Outcomes:
        connection = cluster.controller()
        version = connection.version_for(DeleteTopicsRequest)
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name, topic_id=ZERO_TOPIC_ID) for name in names]
            if version >= 6
            else [],
            topic_names=list(names),
            timeout_ms=cluster.settings.request_timeout_ms,
        )
        response = connection.call(request, DeleteTopicsResponse, version=version)
        return {
            each.name or "": _outcome(each.error_code, each.error_message, each.name or "")
            for each in response.responses
        }

    outcomes = cluster.retrying(ask)
    cluster.forget()
    return outcomes


def create_partitions(cluster: Cluster, counts: Mapping[str, int]) -> Outcomes:
    """Raise the number of partitions of each topic to the count given."""
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(name=name, count=count, assignments=None)
            for name, count in counts.items()
        ],
        timeout_ms=cluster.settings.request_timeout_ms,
        validate_only=False,
    )

    def ask() -> Outcomes:
        response = cluster.controller().call(request, CreatePartitionsResponse)
        return {
            each.name: _outcome(each.error_code, each.error_message, each.name)
            for each in response.results
        }

    outcomes = cluster.retrying(ask)
    cluster.forget()
    return outcomes


def delete_records(
    cluster: Cluster, before: Mapping[TopicPartition, Offset]
) -> dict[TopicPartition, Offset | KafkaError]:
    """Move each partition's log start to an offset; return the new log start or the error."""
    outcomes: dict[TopicPartition, Offset | KafkaError] = {}

    def ask() -> None:
        for leader, places in cluster.by_leader([tp for tp in before if tp not in outcomes]):
            request = DeleteRecordsRequest(
                topics=_delete_rows({place: before[place] for place in places}),
                timeout_ms=cluster.settings.request_timeout_ms,
            )
            response = cluster.connection_to(leader).call(request, DeleteRecordsResponse)
            for topic in response.topics:
                for row in topic.partitions:
                    place = TopicPartition(topic.name, row.partition_index)
                    error = _outcome(row.error_code, None, str(place))
                    outcomes[place] = row.low_watermark if error is None else error

    cluster.retrying(ask)
    return outcomes


def _delete_rows(before: Mapping[TopicPartition, Offset]) -> list[DeleteRecordsTopic]:
    topics: dict[str, list[DeleteRecordsPartition]] = {}
    for place, offset in before.items():
        topics.setdefault(place.topic, []).append(
            DeleteRecordsPartition(partition_index=place.partition, offset=offset)
        )
    return [DeleteRecordsTopic(name=name, partitions=rows) for name, rows in topics.items()]


def _outcome(code: int, message: str | None, about: str) -> KafkaError | None:
    """Return the error of one item; raise it when the whole request has to be tried again."""
    error = ErrorCode.of(code)
    if error is ErrorCode.NONE:
        return None
    failure = KafkaError(error, message or about)
    if error in TRANSIENT:
        raise failure
    return failure


def raise_first(outcomes: Iterable[KafkaError | None]) -> None:
    """Raise the first error among outcomes, if there is one."""
    for outcome in outcomes:
        if outcome is not None:
            raise outcome
