"""What groups of consumers look like: state, epochs, members, their assignments.

A group is asked for with ConsumerGroupDescribe (KIP-848), and if the coordinator has none of that
name, or does not serve it, with DescribeGroups. Share groups: ``share_groups``. Kafka:
``DescribeConsumerGroupsHandler``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from millstream.client.core.admin.outcome import Outcome, Outcomes, refusal
from millstream.client.core.admin.routing import Routing
from millstream.client.core.network import CoordinatorType
from millstream.client.errors import UnsupportedVersionError
from millstream.model.errors import ErrorCode, ProtocolError
from millstream.model.topic import TopicPartition
from millstream.protocol.messages import consumer_group_describe
from millstream.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from millstream.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from millstream.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

T = TypeVar("T")

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"

_CONSUMER_PROTOCOL: Final = "consumer"
_VERSION: Final = struct.Struct(">h")
_MEMBER_TYPES: Final = {0: CLASSIC, 1: CONSUMER}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member and its assigned partitions.

    Members that speak the classic protocol have no epoch (−1), and ``target`` is what they have.
    ``target`` is what the group's assignor has given the member; it moves from ``partitions`` to
    that as other members give partitions up. ``protocol`` is classic or consumer, empty if unknown.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] = ()
    member_epoch: int = -1
    rack_id: str | None = None
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    protocol: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group, its state and its members; ``type`` is classic or consumer.

    ``group_epoch`` grows with every change of members, subscriptions or topics, and
    ``assignment_epoch`` is the one that the target assignment was made for; both −1 for a classic
    group, as is the epoch of its members.
    """

    group: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: str
    members: tuple[GroupMember, ...]
    group_epoch: int = -1
    assignment_epoch: int = -1


class GroupDescriptions(Routing):
    """Describes groups."""

    async def describe_groups(self, groups: Iterable[str]) -> Outcomes[str, GroupDescription]:
        """Return state and members of groups of consumers, classic ones and those of KIP-848.

        GROUP_ID_NOT_FOUND for one that does not exist; an older broker says that it is Dead.
        """
        return await self._each_group(groups, self._describe)

    async def _describe(self, group: str) -> Outcome[GroupDescription]:
        found = await self._as_consumer_group(group)
        return await self._as_classic_group(group) if found is None else found

    async def _as_consumer_group(self, group: str) -> Outcome[GroupDescription] | None:
        """Return the description, None if it is not a consumer group."""
        request = ConsumerGroupDescribeRequest(
            group_ids=[group], include_authorized_operations=False
        )
        try:
            response = await self.ask_coordinator(group, request, ConsumerGroupDescribeResponse)
        except UnsupportedVersionError:
            return None
        row = response.groups[0]
        outcome = _refused(row.error_code, row.error_message, group)
        if outcome is None:
            return Outcome(_consumer_group(row, await self._coordinator(group)))
        error = outcome.error
        missing = error is not None and error.error is ErrorCode.GROUP_ID_NOT_FOUND
        return None if missing else outcome

    async def _as_classic_group(self, group: str) -> Outcome[GroupDescription]:
        request = DescribeGroupsRequest(groups=[group])
        response = await self.ask_coordinator(group, request, DescribeGroupsResponse)
        row = response.groups[0]
        outcome = _refused(row.error_code, row.error_message, group)
        return outcome or Outcome(_classic_group(row, await self._coordinator(group)))

    async def _coordinator(self, group: str) -> str:
        node_id = await self.network.coordinator(group, CoordinatorType.GROUP)
        return str(self.network.brokers[node_id].address)

    async def _each_group(
        self, groups: Iterable[str], ask: Callable[[str], Coroutine[Any, None, Outcome[T]]]
    ) -> Outcomes[str, T]:
        """Send requests for each group to its coordinator; an error concerns one group."""

        async def ask_one(group: str, _: list[str]) -> dict[str, Outcome[T]]:
            return {group: await ask(group)}

        async def ask_some(pending: list[str]) -> dict[str, Outcome[T]]:
            return await self.apart({group: [group] for group in pending}, ask_one)

        return await self.each(groups, ask_some, coordinator_of=lambda group: group)


def _refused(code: int, message: str | None, group: str) -> Outcome[GroupDescription] | None:
    error = refusal(code, message, f"group {group!r}")
    return None if error is None else Outcome(None, error)


# --- answers -------------------------------------------------------------------------------------


def _consumer_group(
    group: consumer_group_describe.DescribedGroup, coordinator: str
) -> GroupDescription:
    return GroupDescription(
        group=group.group_id,
        type=CONSUMER,
        state=group.group_state,
        protocol_type=_CONSUMER_PROTOCOL,
        assignor=group.assignor_name,
        coordinator=coordinator,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        members=tuple(
            GroupMember(
                member_id=each.member_id,
                instance_id=each.instance_id,
                client_id=each.client_id,
                host=each.client_host.removeprefix("/"),
                partitions=_partitions(each.assignment.topic_partitions),
                target=_partitions(each.target_assignment.topic_partitions),
                member_epoch=each.member_epoch,
                rack_id=each.rack_id,
                topics=tuple(sorted(each.subscribed_topic_names)),
                pattern=each.subscribed_topic_regex or None,
                protocol=_MEMBER_TYPES.get(each.member_type, ""),
            )
            for each in group.members
        ),
    )


def _partitions(
    topics: Sequence[consumer_group_describe.TopicPartitions],
) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(each.topic_name, number) for each in topics for number in each.partitions
        )
    )


def _classic_group(group: DescribedGroup, coordinator: str) -> GroupDescription:
    return GroupDescription(
        group=group.group_id,
        type=CLASSIC,
        state=group.group_state,
        protocol_type=group.protocol_type,
        assignor=group.protocol_data,
        coordinator=coordinator,
        members=tuple(_classic_member(each, group.protocol_type) for each in group.members),
    )


def _classic_member(member: DescribedGroupMember, protocol_type: str) -> GroupMember:
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
        target=tuple(partitions),
        protocol=CLASSIC,
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
