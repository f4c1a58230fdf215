"""Administration of groups: list, describe, delete, committed offsets, members."""

from __future__ import annotations

import struct
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from millstream.client.core.admin.outcome import Outcome, Outcomes, done, refusal
from millstream.client.core.admin.routing import Routing
from millstream.client.core.network import CoordinatorType
from millstream.client.errors import UnsupportedVersionError
from millstream.model.errors import ProtocolError
from millstream.model.offsets import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch, Offset
from millstream.model.topic import TopicPartition
from millstream.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from millstream.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from millstream.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from millstream.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
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

T = TypeVar("T")

_LAST_VERSION_WITH_NAMES: Final = 9
"""Of OffsetCommit and OffsetFetch: later ones use topic ids, and a group may have offsets of
deleted topics.
"""

_FIRST_BATCHED_FETCH: Final = 8  # KIP-709
_CONSUMER_PROTOCOL: Final = "consumer"
_VERSION = struct.Struct(">h")


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """One line of a list of groups; state and type are empty if the broker does not return them."""

    group: str
    protocol_type: str
    state: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member and its assigned partitions."""

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
    """The committed offset of a group in a partition, and its metadata."""

    offset: Offset
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    metadata: str = ""


class Groups(Routing):
    """Operations on groups."""

    async def list_groups(
        self, *, states: Sequence[str] = (), types: Sequence[str] = ()
    ) -> list[ListedGroup]:
        """Return the groups of all brokers, by name; filters as the brokers know them."""
        found: dict[str, ListedGroup] = {}
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))

        async def ask(broker_id: int, _: list[int]) -> dict[int, Outcome[None]]:
            response = await self.ask_broker(broker_id, request, ListGroupsResponse)
            for each in response.groups:
                found[each.group_id] = ListedGroup(
                    each.group_id, each.protocol_type, each.group_state, each.group_type
                )
            return {broker_id: done(response.error_code, None, "the list of groups")}

        brokers = list((await self.metadata()).brokers)
        (await self.each_broker(brokers, ask)).get_all()
        return [found[name] for name in sorted(found)]

    async def describe_groups(self, groups: Iterable[str]) -> Outcomes[str, GroupDescription]:
        """Return state and members of groups; GROUP_ID_NOT_FOUND for one that does not exist."""

        async def ask(group: str) -> Outcome[GroupDescription]:
            request = DescribeGroupsRequest(groups=[group])
            response = await self.ask_coordinator(group, request, DescribeGroupsResponse)
            described = response.groups[0]
            error = refusal(described.error_code, described.error_message, f"group {group!r}")
            if error is not None:
                return Outcome(None, error)
            coordinator = await self.network.coordinator(group, CoordinatorType.GROUP)
            return Outcome(
                read_description(described, str(self.network.brokers[coordinator].address))
            )

        return await self._each_group(groups, ask)

    async def delete_groups(self, groups: Iterable[str]) -> Outcomes[str, None]:
        """Delete groups without members."""

        async def ask(group: str) -> Outcome[None]:
            request = DeleteGroupsRequest(groups_names=[group])
            response = await self.ask_coordinator(group, request, DeleteGroupsResponse)
            return done(response.results[0].error_code, None, f"group {group!r}")

        return await self._each_group(groups, ask)

    async def remove_members(
        self, group: str, instance_ids: Iterable[str], *, reason: str | None = None
    ) -> Outcomes[str, None]:
        """Remove static members from a group by their ``group.instance.id`` (KIP-345)."""

        async def ask(pending: list[str]) -> dict[str, Outcome[None]]:
            members = [
                MemberIdentity(member_id="", group_instance_id=each, reason=reason)
                for each in pending
            ]
            request = LeaveGroupRequest(group_id=group, members=members)
            response = await self.ask_coordinator(group, request, LeaveGroupResponse)
            _raise(response.error_code, f"group {group!r}")
            return {
                each.group_instance_id or "": done(
                    each.error_code, None, f"member {each.group_instance_id!r}"
                )
                for each in response.members
            }

        return await self.each(instance_ids, ask, coordinator_of=lambda _: group)

    # --- committed offsets -----------------------------------------------------------------------

    async def list_group_offsets(
        self, groups: Iterable[str]
    ) -> Outcomes[str, dict[TopicPartition, Committed]]:
        """Return every committed offset of groups; nothing for one that does not exist."""

        async def ask(group: str) -> Outcome[dict[TopicPartition, Committed]]:
            node_id = await self.network.coordinator(group, CoordinatorType.GROUP)
            version = await self.network.version_for(
                node_id, OffsetFetchRequest, _LAST_VERSION_WITH_NAMES
            )
            if version < 2:
                raise UnsupportedVersionError("the broker cannot list all offsets of a group")
            if version < _FIRST_BATCHED_FETCH:
                request = OffsetFetchRequest(group_id=group, topics=None)
            else:
                everything = OffsetFetchRequestGroup(group_id=group, topics=None)
                request = OffsetFetchRequest(groups=[everything])
            response = await self.ask_coordinator(
                group, request, OffsetFetchResponse, max_version=_LAST_VERSION_WITH_NAMES
            )
            return Outcome(read_committed(response))

        return await self._each_group(groups, ask)

    async def alter_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, Offset | Committed]
    ) -> Outcomes[TopicPartition, None]:
        """Set offsets of a group without members; UNKNOWN_MEMBER_ID when it has some."""

        async def ask(pending: list[TopicPartition]) -> dict[TopicPartition, Outcome[None]]:
            request = OffsetCommitRequest(
                group_id=group,
                member_id="",
                topics=commit_rows(
                    {topic_partition: offsets[topic_partition] for topic_partition in pending}
                ),
            )
            response = await self.ask_coordinator(
                group, request, OffsetCommitResponse, max_version=_LAST_VERSION_WITH_NAMES
            )
            return {
                TopicPartition(topic.name, row.partition_index): done(
                    row.error_code, None, f"{topic.name}-{row.partition_index}"
                )
                for topic in response.topics
                for row in topic.partitions
            }

        return await self.each(offsets, ask, coordinator_of=lambda _: group)

    async def delete_group_offsets(
        self, group: str, topic_partitions: Iterable[TopicPartition]
    ) -> Outcomes[TopicPartition, None]:
        """Delete the group's offsets of partitions."""

        async def ask(pending: list[TopicPartition]) -> dict[TopicPartition, Outcome[None]]:
            topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
            for topic_partition in pending:
                row = OffsetDeleteRequestPartition(partition_index=topic_partition.partition)
                topics.setdefault(topic_partition.topic, []).append(row)
            request = OffsetDeleteRequest(
                group_id=group,
                topics=[
                    OffsetDeleteRequestTopic(name=name, partitions=rows)
                    for name, rows in topics.items()
                ],
            )
            response = await self.ask_coordinator(group, request, OffsetDeleteResponse)
            _raise(response.error_code, f"group {group!r}")
            return {
                TopicPartition(topic.name, row.partition_index): done(
                    row.error_code, None, f"{topic.name}-{row.partition_index}"
                )
                for topic in response.topics
                for row in topic.partitions
            }

        return await self.each(topic_partitions, ask, coordinator_of=lambda _: group)

    async def _each_group(
        self, groups: Iterable[str], ask: Callable[[str], Coroutine[Any, None, Outcome[T]]]
    ) -> Outcomes[str, T]:
        """Send a request per group to its coordinator; an error concerns one group."""

        async def ask_one(group: str, _: list[str]) -> dict[str, Outcome[T]]:
            return {group: await ask(group)}

        async def ask_some(pending: list[str]) -> dict[str, Outcome[T]]:
            return await self.apart({group: [group] for group in pending}, ask_one)

        return await self.each(groups, ask_some, coordinator_of=lambda group: group)


def read_description(group: DescribedGroup, coordinator: str) -> GroupDescription:
    """Return a group from a response."""
    return GroupDescription(
        group=group.group_id,
        state=group.group_state,
        protocol_type=group.protocol_type,
        assignor=group.protocol_data,
        coordinator=coordinator,
        members=tuple(_member(each, group.protocol_type) for each in group.members),
    )


def _member(member: DescribedGroupMember, protocol_type: str) -> GroupMember:
    partitions: list[TopicPartition] = []
    assignment = member.member_assignment
    if protocol_type == _CONSUMER_PROTOCOL and len(assignment) > _VERSION.size:
        partitions = _assignment(assignment)
    return GroupMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host.removeprefix("/"),
        partitions=tuple(partitions),
    )


def _assignment(data: bytes) -> list[TopicPartition]:
    """Parse a member's assignment; a custom assignor may have written anything."""
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


def read_committed(response: OffsetFetchResponse) -> dict[TopicPartition, Committed]:
    """Return the offsets in a response; BrokerError for one with an error."""
    rows: list[
        tuple[str, Sequence[OffsetFetchResponsePartition | OffsetFetchResponsePartitions]]
    ] = [(topic.name, topic.partitions) for topic in response.topics]
    _raise(response.error_code, "committed offsets")
    for group in response.groups:
        _raise(group.error_code, f"committed offsets of group {group.group_id!r}")
        rows += [(topic.name, topic.partitions) for topic in group.topics]
    committed: dict[TopicPartition, Committed] = {}
    for name, partitions in rows:
        for row in partitions:
            topic_partition = TopicPartition(name, row.partition_index)
            _raise(row.error_code, f"committed offset of {topic_partition}")
            if row.committed_offset != NO_OFFSET:
                committed[topic_partition] = Committed(
                    row.committed_offset, row.committed_leader_epoch, row.metadata or ""
                )
    return committed


def commit_rows(
    offsets: Mapping[TopicPartition, Offset | Committed],
) -> list[OffsetCommitRequestTopic]:
    """Return offsets in the form of a request."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for topic_partition, given in offsets.items():
        committed = given if isinstance(given, Committed) else Committed(given)
        if committed.offset < 0:
            raise ValueError(
                f"the offset {committed.offset} of {topic_partition} cannot be committed"
            )
        topics.setdefault(topic_partition.topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=topic_partition.partition,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                committed_metadata=committed.metadata,
            )
        )
    return [OffsetCommitRequestTopic(name=name, partitions=rows) for name, rows in topics.items()]


def _raise(code: int, about: str) -> None:
    error = refusal(code, None, about)
    if error is not None:
        raise error
