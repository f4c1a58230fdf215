"""Consumer groups from outside: list, describe, delete, and their committed offsets."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from millstream.client.cluster import Cluster
from millstream.client.errors import UnsupportedVersionError, raise_for
from millstream.model.errors import ErrorCode, KafkaError, ProtocolError
from millstream.model.offsets import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch, Offset
from millstream.model.topic import TopicPartition
from millstream.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from millstream.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from millstream.protocol.messages.describe_groups import (
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from millstream.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from millstream.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
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
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)

_LAST_VERSION_WITH_NAMES: Final = 9
"""Of OffsetCommit and OffsetFetch: later ones name topics by id, and a group may hold offsets of
topics that are gone."""

_FIRST_BATCHED_FETCH: Final = 8  # KIP-709
_CONSUMER_PROTOCOL: Final = "consumer"
_VERSION = struct.Struct(">h")


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """One line of a list of groups; state and type are empty when the broker does not tell."""

    group: str
    protocol_type: str
    state: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member and the partitions that the group's leader gave it."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group, its state and its members."""

    group: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: str
    members: tuple[GroupMember, ...]


class Committed(NamedTuple):
    """The next offset that a group will read in a partition, and what it noted with it."""

    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str


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
        return GroupDescription(
            group=group,
            state=described.group_state,
            protocol_type=described.protocol_type,
            assignor=described.protocol_data,
            coordinator=str(connection.address),
            members=tuple(
                _read_member(each, described.protocol_type) for each in described.members
            ),
        )

    return cluster.retrying(ask)


def _read_member(member: DescribedGroupMember, protocol_type: str) -> GroupMember:
    partitions: list[TopicPartition] = []
    assignment = member.member_assignment
    if protocol_type == _CONSUMER_PROTOCOL and len(assignment) > _VERSION.size:
        partitions = _read_assignment(assignment)
    return GroupMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host.removeprefix("/"),
        partitions=tuple(partitions),
    )


def _read_assignment(data: bytes) -> list[TopicPartition]:
    """Read what the group's leader wrote; an assignor of its own may have written anything."""
    (version,) = _VERSION.unpack_from(data)
    newest = ConsumerProtocolAssignment.VERSIONS[-1]
    try:
        assignment = ConsumerProtocolAssignment.decode_body(
            min(max(version, 0), newest), memoryview(data)[_VERSION.size :]
        )
    except ProtocolError:
        return []
    return [
        TopicPartition(topic.topic, partition)
        for topic in assignment.assigned_partitions
        for partition in topic.partitions
    ]


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
        return _read_committed(connection.call(request, OffsetFetchResponse, version=version))

    return cluster.retrying(ask)


def _read_committed(response: OffsetFetchResponse) -> dict[TopicPartition, Committed]:
    rows: list[
        tuple[str, Sequence[OffsetFetchResponsePartition | OffsetFetchResponsePartitions]]
    ] = [(topic.name, topic.partitions) for topic in response.topics]
    raise_for(response.error_code, "committed offsets")
    for group in response.groups:
        raise_for(group.error_code, f"committed offsets of group {group.group_id!r}")
        rows += [(topic.name, topic.partitions) for topic in group.topics]
    committed: dict[TopicPartition, Committed] = {}
    for name, partitions in rows:
        for row in partitions:
            place = TopicPartition(name, row.partition_index)
            raise_for(row.error_code, f"committed offset of {place}")
            if row.committed_offset != NO_OFFSET:
                committed[place] = Committed(
                    row.committed_offset, row.committed_leader_epoch, row.metadata or ""
                )
    return committed


def commit_offsets(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, Offset]) -> None:
    """Set offsets of a group without members; KafkaError UNKNOWN_MEMBER_ID when it has some."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for place, offset in offsets.items():
        topics.setdefault(place.topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=place.partition,
                committed_offset=offset,
                committed_leader_epoch=NO_LEADER_EPOCH,
                committed_metadata="",
            )
        )
    request = OffsetCommitRequest(
        group_id=group,
        member_id="",
        topics=[
            OffsetCommitRequestTopic(name=name, partitions=rows) for name, rows in topics.items()
        ],
    )

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
