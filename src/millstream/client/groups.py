"""Consumer groups from outside: list, describe, delete, and their committed offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from millstream.client.cluster import Cluster
from millstream.client.core.admin.groups import (
    Committed,
    GroupDescription,
    GroupMember,
    ListedGroup,
    commit_rows,
    read_committed,
    read_description,
)
from millstream.client.errors import UnsupportedVersionError, raise_for
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from millstream.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from millstream.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from millstream.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
)
from millstream.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from millstream.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

__all__ = [
    "Committed",
    "GroupDescription",
    "GroupMember",
    "ListedGroup",
    "commit_offsets",
    "committed_offsets",
    "delete_group",
    "delete_offsets",
    "describe_group",
    "list_groups",
]

_LAST_VERSION_WITH_NAMES: Final = 9
"""Of OffsetCommit and OffsetFetch: later ones name topics by id, and a group may hold offsets of
topics that are gone."""

_FIRST_BATCHED_FETCH: Final = 8  # KIP-709


def list_groups(cluster: Cluster) -> list[ListedGroup]:
    """Return the groups of all brokers, by name."""
    found: dict[str, ListedGroup] = {}

    def ask() -> None:
        for broker_id in cluster.metadata([]).brokers:
            request = ListGroupsRequest()
            response = cluster.connection_to(broker_id).call(request, ListGroupsResponse)
            raise_for(response.error_code, "list of groups")
            for each in response.groups:
                found[each.group_id] = ListedGroup(
                    each.group_id, each.protocol_type, each.group_state, each.group_type
                )

    cluster.retrying(ask)
    return [found[name] for name in sorted(found)]


def describe_group(cluster: Cluster, group: str) -> GroupDescription:
    """Return a group's state and members; KafkaError GROUP_ID_NOT_FOUND when it does not exist."""

    def ask() -> GroupDescription:
        connection = cluster.coordinator(group)
        request = DescribeGroupsRequest(groups=[group])
        described = connection.call(request, DescribeGroupsResponse).groups[0]
        raise_for(described.error_code, described.error_message or f"group {group!r}")
        return read_description(described, str(connection.address))

    return cluster.retrying(ask)


def delete_group(cluster: Cluster, group: str) -> None:
    """Delete a group without members; KafkaError NON_EMPTY_GROUP or GROUP_ID_NOT_FOUND."""

    def ask() -> None:
        request = DeleteGroupsRequest(groups_names=[group])
        response = cluster.coordinator(group).call(request, DeleteGroupsResponse)
        raise_for(response.results[0].error_code, f"group {group!r}")

    cluster.retrying(ask)


def committed_offsets(cluster: Cluster, group: str) -> dict[TopicPartition, Committed]:
    """Return every offset that a group has committed; empty for a group that does not exist."""

    def ask() -> dict[TopicPartition, Committed]:
        connection = cluster.coordinator(group)
        version = connection.version_for(OffsetFetchRequest, _LAST_VERSION_WITH_NAMES)
        if version < 2:
            raise UnsupportedVersionError("the broker cannot list all offsets of a group")
        if version < _FIRST_BATCHED_FETCH:
            request = OffsetFetchRequest(group_id=group, topics=None)
        else:
            everything = OffsetFetchRequestGroup(group_id=group, topics=None)
            request = OffsetFetchRequest(groups=[everything])
        return read_committed(connection.call(request, OffsetFetchResponse, version=version))

    return cluster.retrying(ask)


def commit_offsets(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, Offset]) -> None:
    """Set offsets of a group without members; KafkaError UNKNOWN_MEMBER_ID when it has some."""
    request = OffsetCommitRequest(group_id=group, member_id="", topics=commit_rows(offsets))

    def ask() -> None:
        connection = cluster.coordinator(group)
        version = connection.version_for(OffsetCommitRequest, _LAST_VERSION_WITH_NAMES)
        response = connection.call(request, OffsetCommitResponse, version=version)
        for topic in response.topics:
            for row in topic.partitions:
                about = f"offset of {TopicPartition(topic.name, row.partition_index)}"
                raise_for(row.error_code, about)

    cluster.retrying(ask)


def delete_offsets(
    cluster: Cluster, group: str, places: Iterable[TopicPartition]
) -> dict[TopicPartition, KafkaError | None]:
    """Forget the group's offsets of partitions; each fails on its own."""
    topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for place in places:
        row = OffsetDeleteRequestPartition(partition_index=place.partition)
        topics.setdefault(place.topic, []).append(row)
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(name=name, partitions=rows) for name, rows in topics.items()
        ],
    )

    def ask() -> dict[TopicPartition, KafkaError | None]:
        response = cluster.coordinator(group).call(request, OffsetDeleteResponse)
        raise_for(response.error_code, f"group {group!r}")
        return {
            TopicPartition(topic.name, row.partition_index): (
                KafkaError(ErrorCode.of(row.error_code)) if row.error_code else None
            )
            for topic in response.topics
            for row in topic.partitions
        }

    return cluster.retrying(ask)
