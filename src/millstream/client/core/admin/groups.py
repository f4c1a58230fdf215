"""Administration of groups: list, delete, committed offsets, members."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from millstream.client.core.admin.group_descriptions import GroupDescriptions
from millstream.client.core.admin.outcome import Outcome, Outcomes, done, refusal
from millstream.client.core.network import CoordinatorType
from millstream.client.errors import UnsupportedVersionError
from millstream.model.offsets import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch, Offset
from millstream.model.topic import TopicPartition
from millstream.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
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

_LAST_VERSION_WITH_NAMES: Final = 9
"""Of OffsetCommit and OffsetFetch: later ones use topic ids, and a group may have offsets of
deleted topics.
"""

_FIRST_BATCHED_FETCH: Final = 8  # KIP-709


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """One line of a list of groups; state and type are empty if the broker does not return them."""

    group: str
    protocol_type: str
    state: str
    type: str


class Committed(NamedTuple):
    """The committed offset of a group in a partition, and its metadata."""

    offset: Offset
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    metadata: str = ""


class Groups(GroupDescriptions):
    """Operations on groups."""

    async def list_groups(
        self, *, states: Sequence[str] = (), types: Sequence[str] = ()
    ) -> list[ListedGroup]:
        """Return the groups of all brokers, by name.

        ``states`` and ``types`` (classic, consumer, share) keep those that are in one of them, as
        the brokers know them; UnsupportedVersionError where brokers know no such filter.
        """
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
        self, groups: Iterable[str], *, require_stable: bool = False
    ) -> Outcomes[str, dict[TopicPartition, Committed]]:
        """Return every committed offset of groups; nothing for one that does not exist.

        With ``require_stable`` offsets that an open transaction commits are waited for, as members
        that start do (KIP-447): UNSTABLE_OFFSET_COMMIT when it stays open.
        """

        async def ask(group: str) -> Outcome[dict[TopicPartition, Committed]]:
            node_id = await self.network.coordinator(group, CoordinatorType.GROUP)
            version = await self.network.version_for(
                node_id, OffsetFetchRequest, _LAST_VERSION_WITH_NAMES
            )
            if version < 2:
                raise UnsupportedVersionError("the broker cannot list all offsets of a group")
            if version < _FIRST_BATCHED_FETCH:
                request = OffsetFetchRequest(
                    group_id=group, topics=None, require_stable=require_stable
                )
            else:
                everything = OffsetFetchRequestGroup(group_id=group, topics=None)
                request = OffsetFetchRequest(groups=[everything], require_stable=require_stable)
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
