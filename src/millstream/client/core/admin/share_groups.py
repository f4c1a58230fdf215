"""Administration of share groups (KIP-932): describe, and the offsets where they start.

Listing and deleting them is that of all groups: ``list_groups(types=["share"])``,
``delete_groups``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from millstream.client.core.admin.groups import Groups
from millstream.client.core.admin.outcome import Outcome, Outcomes, done, refusal
from millstream.client.core.network import CoordinatorType
from millstream.model.offsets import NO_LEADER_EPOCH, LeaderEpoch, Offset
from millstream.model.topic import TopicPartition
from millstream.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from millstream.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from millstream.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)
from millstream.protocol.messages.share_group_describe import (
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

UNKNOWN_START: Offset = -1
"""The start offset of a partition that the group has not begun to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupMember:
    """A member; its partitions are assigned to others as well."""

    member_id: str
    member_epoch: int
    rack: str | None
    client_id: str
    host: str
    topics: tuple[str, ...]
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupDescription:
    """A share group, its state and its members."""

    group: str
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor: str
    coordinator: str
    members: tuple[ShareGroupMember, ...]


class ShareOffset(NamedTuple):
    """Where a share group starts in a partition: everything before is done with.

    ``lag`` counts what is left from there, −1 if the broker does not tell it (before Kafka 4.2).
    """

    start_offset: Offset
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    lag: int = -1


class ShareGroups(Groups):
    """Operations on share groups."""

    async def describe_share_groups(
        self, groups: Iterable[str]
    ) -> Outcomes[str, ShareGroupDescription]:
        """Return state and members of share groups; GROUP_ID_NOT_FOUND for one that is none."""

        async def ask(group: str) -> Outcome[ShareGroupDescription]:
            request = ShareGroupDescribeRequest(
                group_ids=[group], include_authorized_operations=False
            )
            response = await self.ask_coordinator(group, request, ShareGroupDescribeResponse)
            described = response.groups[0]
            error = refusal(described.error_code, described.error_message, f"group {group!r}")
            if error is not None:
                return Outcome(None, error)
            coordinator = await self.network.coordinator(group, CoordinatorType.GROUP)
            address = str(self.network.brokers[coordinator].address)
            return Outcome(read_share_description(described, address))

        return await self._each_group(groups, ask)

    async def list_share_group_offsets(
        self, groups: Mapping[str, Iterable[TopicPartition] | None] | Iterable[str]
    ) -> Outcomes[str, dict[TopicPartition, ShareOffset]]:
        """Return where share groups start; a mapping says in which partitions, None is all.

        Partitions that a group has not begun to read are left out.
        """
        wanted = groups if isinstance(groups, Mapping) else dict.fromkeys(groups)

        async def ask(group: str) -> Outcome[dict[TopicPartition, ShareOffset]]:
            request = DescribeShareGroupOffsetsRequest(groups=[_offsets_of(group, wanted[group])])
            response = await self.ask_coordinator(group, request, DescribeShareGroupOffsetsResponse)
            described = response.groups[0]
            error = refusal(described.error_code, described.error_message, f"group {group!r}")
            if error is not None:
                return Outcome(None, error)
            return read_share_offsets(described)

        return await self._each_group(wanted, ask)

    async def alter_share_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, Offset]
    ) -> Outcomes[TopicPartition, None]:
        """Set where a share group without members starts; NON_EMPTY_GROUP when it has some."""
        for topic_partition, offset in offsets.items():
            if offset < 0:
                raise ValueError(f"{topic_partition} cannot start at offset {offset}")

        async def ask(pending: list[TopicPartition]) -> dict[TopicPartition, Outcome[None]]:
            topics: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
            for topic_partition in pending:
                row = AlterShareGroupOffsetsRequestPartition(
                    partition_index=topic_partition.partition,
                    start_offset=offsets[topic_partition],
                )
                topics.setdefault(topic_partition.topic, []).append(row)
            request = AlterShareGroupOffsetsRequest(
                group_id=group,
                topics=[
                    AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=rows)
                    for name, rows in topics.items()
                ],
            )
            response = await self.ask_coordinator(group, request, AlterShareGroupOffsetsResponse)
            _raise(response.error_code, response.error_message, group)
            return {
                TopicPartition(topic.topic_name, row.partition_index): done(
                    row.error_code, row.error_message, f"{topic.topic_name}-{row.partition_index}"
                )
                for topic in response.responses
                for row in topic.partitions
            }

        return await self.each(offsets, ask, coordinator_of=lambda _: group)

    async def delete_share_group_offsets(
        self, group: str, topics: Iterable[str]
    ) -> Outcomes[str, None]:
        """Delete what a share group without members has of topics: it begins them anew."""

        async def ask(pending: list[str]) -> dict[str, Outcome[None]]:
            request = DeleteShareGroupOffsetsRequest(
                group_id=group,
                topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in pending],
            )
            response = await self.ask_coordinator(group, request, DeleteShareGroupOffsetsResponse)
            _raise(response.error_code, response.error_message, group)
            return {
                topic.topic_name: done(
                    topic.error_code, topic.error_message, f"topic {topic.topic_name!r}"
                )
                for topic in response.responses
            }

        return await self.each(topics, ask, coordinator_of=lambda _: group)


def read_share_description(group: DescribedGroup, coordinator: str) -> ShareGroupDescription:
    """Return a share group from a response."""
    return ShareGroupDescription(
        group=group.group_id,
        state=group.group_state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor=group.assignor_name,
        coordinator=coordinator,
        members=tuple(_member(each) for each in group.members),
    )


def _member(member: Member) -> ShareGroupMember:
    return ShareGroupMember(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        rack=member.rack_id,
        client_id=member.client_id,
        host=member.client_host.removeprefix("/"),
        topics=tuple(member.subscribed_topic_names),
        partitions=tuple(
            TopicPartition(topic.topic_name, partition)
            for topic in member.assignment.topic_partitions
            for partition in topic.partitions
        ),
    )


def _offsets_of(
    group: str, wanted: Iterable[TopicPartition] | None
) -> DescribeShareGroupOffsetsRequestGroup:
    if wanted is None:
        return DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
    topics: dict[str, list[int]] = {}
    for topic_partition in wanted:
        topics.setdefault(topic_partition.topic, []).append(topic_partition.partition)
    return DescribeShareGroupOffsetsRequestGroup(
        group_id=group,
        topics=[
            DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )


def read_share_offsets(
    group: DescribeShareGroupOffsetsResponseGroup,
) -> Outcome[dict[TopicPartition, ShareOffset]]:
    """Return the offsets in a response, or the first error of a partition."""
    found: dict[TopicPartition, ShareOffset] = {}
    for topic in group.topics:
        for row in topic.partitions:
            topic_partition = TopicPartition(topic.topic_name, row.partition_index)
            error = refusal(row.error_code, row.error_message, f"start of {topic_partition}")
            if error is not None:
                return Outcome(None, error)
            if row.start_offset != UNKNOWN_START:
                found[topic_partition] = ShareOffset(row.start_offset, row.leader_epoch, row.lag)
    return Outcome(found)


def _raise(code: int, message: str | None, group: str) -> None:
    error = refusal(code, message, f"share group {group!r}")
    if error is not None:
        raise error
