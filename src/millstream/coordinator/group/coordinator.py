"""The group coordinator of one partition of ``__consumer_offsets``.

It answers the requests about the groups that hash to this partition, and is rebuilt from the
partition's records. Pure: the driver (``runtime.coordinators``) passes the time, appends the
records, calls :meth:`expire` when ``next_deadline_ms`` is reached, and sends no response before the
records it depends on are committed.

Offsets, and the removal of groups, change by ``replay`` alone. The members of a classic group
change in memory first: a rebalance is not in the log, and its outcome is recorded once it is
complete (``result.Result.settled``). Kafka: ``GroupCoordinatorShard``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from millstream.coordinator.deadlines import Deadlines
from millstream.coordinator.group.classic_group import ClassicGroup, group_from_record
from millstream.coordinator.group.consumer.classic_members import ClassicMembers
from millstream.coordinator.group.consumer.consumer_group import ConsumerGroup
from millstream.coordinator.group.consumer.description import describe_consumer_group
from millstream.coordinator.group.consumer.heartbeat import ConsumerHeartbeats
from millstream.coordinator.group.consumer.membership import Membership
from millstream.coordinator.group.group import Group
from millstream.coordinator.group.groups import Groups
from millstream.coordinator.group.join_group import Caller, Joining, JoinRules
from millstream.coordinator.group.listing import describe_group, list_groups
from millstream.coordinator.group.member import Member
from millstream.coordinator.group.member_requests import MemberRequests
from millstream.coordinator.group.modern.topics import NoTopics, TopicsImage
from millstream.coordinator.group.offset_requests import OffsetRequests
from millstream.coordinator.group.offsets import OffsetStore
from millstream.coordinator.group.rebalance import Rebalances
from millstream.coordinator.group.record_types import (
    CONSUMER_GROUP_TYPES,
    SHARE_GROUP_TYPES,
    decode_record,
)
from millstream.coordinator.group.responses import join_refused, sync_refused
from millstream.coordinator.group.settings import GroupSettings
from millstream.coordinator.group.share.share_group import ShareGroup
from millstream.coordinator.group.share.share_groups import ShareGroups
from millstream.coordinator.group.timers import TimerKey
from millstream.coordinator.result import CoordinatorRecord, Instant, Result, TopicChange
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.producer import NO_PRODUCER_ID
from millstream.model.topic import TopicId
from millstream.protocol.messages.consumer_group_describe import (
    DescribedGroup as ConsumerDescribedGroup,
)
from millstream.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from millstream.protocol.messages.consumer_group_records import ConsumerGroupMetadataKey
from millstream.protocol.messages.coordinator_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from millstream.protocol.messages.delete_groups import DeletableGroupResult
from millstream.protocol.messages.describe_groups import DescribedGroup
from millstream.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from millstream.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from millstream.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from millstream.protocol.messages.list_groups import ListedGroup
from millstream.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from millstream.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from millstream.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
)
from millstream.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from millstream.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)


class GroupCoordinator:
    """The state machine of one shard."""

    def __init__(self, settings: GroupSettings, topics: TopicsImage | None = None) -> None:
        self.groups = Groups()
        self.offsets = OffsetStore()
        self._settings = settings
        self._deadlines: Deadlines[TimerKey] = Deadlines()
        self._rebalances = Rebalances(settings, self._deadlines)
        topics = topics or NoTopics()
        self._membership = Membership(
            settings, self.groups, topics, self._deadlines, self._rebalances
        )
        self.shares = ShareGroups(settings.share, self.groups, topics, self._deadlines)
        """The share groups among the groups."""
        self._consumer_heartbeats = ConsumerHeartbeats(self._membership, self._rebalances)
        self._classic_members = ClassicMembers(self._membership)
        self._join_rules = JoinRules(
            settings, self.groups, self._rebalances, self._join_consumer_group
        )
        self._member_requests = MemberRequests(settings, self.groups, self._rebalances)
        self._offset_requests = OffsetRequests(
            settings, self.groups, self.offsets, self._member_committed
        )

    # Members

    def join_group(
        self,
        request: JoinGroupRequest,
        caller: Caller,
        new_id: str,
        reply: Deferred[JoinGroupResponse],
        now: Instant,
    ) -> Result[JoinGroupResponse]:
        """See :meth:`JoinRules.join`."""
        return self._join_rules.join(request, caller, new_id, reply, now)

    def sync_group(
        self, request: SyncGroupRequest, reply: Deferred[SyncGroupResponse], now: Instant
    ) -> Result[SyncGroupResponse]:
        """See :meth:`MemberRequests.sync` and :meth:`ClassicMembers.sync`."""
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return self._classic_members.sync(group, request, reply, now)
        return self._member_requests.sync(request, reply, now)

    def heartbeat(self, request: HeartbeatRequest, now: Instant) -> Result[HeartbeatResponse]:
        """See :meth:`MemberRequests.heartbeat` and :meth:`ClassicMembers.heartbeat`."""
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return self._classic_members.heartbeat(group, request, now)
        return self._member_requests.heartbeat(request, now)

    def leave_group(self, request: LeaveGroupRequest, now: Instant) -> Result[LeaveGroupResponse]:
        """See :meth:`MemberRequests.leave` and :meth:`ClassicMembers.leave`."""
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return self._classic_members.leave(group, request, now)
        return self._member_requests.leave(request, now)

    def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, new_id: str, now: Instant
    ) -> Result[ConsumerGroupHeartbeatResponse]:
        """See :meth:`ConsumerHeartbeats.heartbeat`."""
        return self._consumer_heartbeats.heartbeat(request, caller, new_id, now)

    def _join_consumer_group(self, joining: Joining) -> bool:
        """Let a classic member join a consumer group; return False for any other group."""
        group = self.groups.get(joining.request.group_id)
        if not isinstance(group, ConsumerGroup):
            return False
        if group.is_empty:
            # It becomes a classic group; its offsets stay. Nothing is changed before a refusal.
            self.groups.check_room(freed=1)
            for record in group.tombstones():
                joining.result.settled(record)
            self._remove_group(group.group_id)
            return False
        try:
            self._classic_members.join(group, joining)
        except KafkaError as error:
            joining.refuse(error.error)
        return True

    # Offsets

    def commit_offsets(
        self, request: OffsetCommitRequest, version: int, now: Instant
    ) -> Result[OffsetCommitResponse]:
        """See :meth:`OffsetRequests.commit`."""
        return self._offset_requests.commit(request, version, now)

    def commit_transactional_offsets(
        self, request: TxnOffsetCommitRequest, topic_ids: Mapping[str, TopicId], now: Instant
    ) -> Result[TxnOffsetCommitResponse]:
        """See :meth:`OffsetRequests.commit_transactional`."""
        return self._offset_requests.commit_transactional(request, topic_ids, now)

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> Result[OffsetFetchResponseGroup]:
        """See :meth:`OffsetRequests.fetch`."""
        return self._offset_requests.fetch(request, require_stable=require_stable)

    def delete_offsets(self, request: OffsetDeleteRequest) -> Result[OffsetDeleteResponse]:
        """See :meth:`OffsetRequests.delete`."""
        return self._offset_requests.delete(request)

    def topic_changed(self, change: TopicChange, now: Instant) -> Result[None]:
        """Delete the offsets committed in a deleted topic; groups look at a topic that has changed
        when their next member asks.
        """
        for group in self.groups:
            if isinstance(group, ConsumerGroup):
                if change.created:
                    group.expressions_are_stale = True
                if group.is_subscribed_to(change.name):
                    group.needs_refresh = True
        share_records = self.shares.topic_changed(change)
        if not change.deleted:
            return Result()
        records = share_records + self._offset_requests.forget_topic(change.name, change.topic_id)
        return Result(records=records, atomic=False)

    # Administration

    def describe_group(self, group_id: str, version: int) -> Result[DescribedGroup]:
        """Return a group's state and members."""
        return Result(describe_group(self.groups, group_id, version))

    def describe_consumer_group(self, group_id: str) -> Result[ConsumerDescribedGroup]:
        """Return a consumer group's epochs, members and assignments."""
        return Result(
            describe_consumer_group(
                self.groups,
                group_id,
                self._membership.topics,
                default_assignor=self._settings.consumer.assignors[0],
            )
        )

    def list_groups(
        self, *, states: Sequence[str], types: Sequence[str]
    ) -> Result[list[ListedGroup]]:
        """List the groups of this shard; an empty filter matches all."""
        return Result(list_groups(self.groups, states=states, types=types))

    def delete_group(self, group_id: str) -> Result[DeletableGroupResult]:
        """Delete a group without members, and all its offsets."""
        group = self.groups.require(group_id)
        group.validate_delete()
        return Result(
            DeletableGroupResult(group_id=group_id, error_code=ErrorCode.NONE.code),
            [*self._offset_requests.forget_group(group_id), *group.tombstones()],
            atomic=False,
        )

    # Time

    @property
    def next_deadline_ms(self) -> float | None:
        """The time of the next deadline, on the monotonic clock."""
        return self._deadlines.next_ms

    def expire(self, now: Instant) -> Result[None]:
        """Handle the deadlines that have passed."""
        result: Result[None] = Result(atomic=False)
        while (key := self._deadlines.pop_due(now.monotonic_ms)) is not None:
            group = self.groups.get(key.group_id)
            if isinstance(group, ClassicGroup):
                self._rebalances.expire(group, key, now, result)
            elif isinstance(group, ConsumerGroup):
                self._membership.expire(group, key, now, result)
            elif isinstance(group, ShareGroup):
                self.shares.members.expire(group, key, result)
        return result

    def postpone(self, by_ms: float) -> None:
        """Move all deadlines by a time in which the broker took no requests."""
        self._deadlines.postpone(by_ms)

    def expire_offsets(self, now: Instant) -> Result[None]:
        """Delete offsets whose retention has passed, and empty groups that have none left."""
        result: Result[None] = Result(atomic=False)
        for group in self.groups:
            records, all_gone = self._offset_requests.expire(group, now)
            result.records += records
            if all_gone and group.is_empty:
                result.records += group.tombstones()
        return result

    # The log

    @staticmethod
    def decode(key: bytes, value: bytes | None) -> CoordinatorRecord | None:
        """Decode a stored record; None for a type that this coordinator does not use."""
        return decode_record(key, value)

    def replay(
        self, record: CoordinatorRecord, *, record_offset: int, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """Apply a record that is in the log; one with a producer id belongs to a transaction."""
        match record.key, record.value:
            case OffsetCommitKey() as key, OffsetCommitValue() | None as offset:
                if offset is not None:
                    self.groups.ensure_simple(key.group)
                self.offsets.replay(
                    key, offset, record_offset=record_offset, producer_id=producer_id
                )
            case GroupMetadataKey() as key, None:
                self._remove_group(key.group)
            case GroupMetadataKey() as key, GroupMetadataValue() as value:
                self.groups.put(group_from_record(key.group, value))
            case _ if record.key_type in SHARE_GROUP_TYPES:
                self.shares.replay(record)
            case _:
                self._replay_consumer_group(record)

    def _replay_consumer_group(self, record: CoordinatorRecord) -> None:
        if record.key_type not in CONSUMER_GROUP_TYPES:
            raise AssertionError(f"not a record of a group coordinator: {record}")
        group_id = cast("ConsumerGroupMetadataKey", record.key).group_id
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if record.value is None:
                return
            # A group that only has offsets was made by their records, which came before.
            group = ConsumerGroup(group_id)
            self.groups.put(group)
        if isinstance(record.key, ConsumerGroupMetadataKey) and record.value is None:
            self._remove_group(group_id)
        else:
            group.apply(record)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply the marker that ends a producer's transaction."""
        self.offsets.end_transaction(producer_id, committed=committed)

    def on_loaded(self, now: Instant) -> Result[None]:
        """Start serving after the replay of the log: every member gets a new session."""
        result: Result[None] = Result(atomic=False)
        for modern in self.groups:
            if isinstance(modern, ConsumerGroup):
                self._membership.start_deadlines(modern, now)
        self.shares.on_loaded(now)
        for group in self.groups.classics():
            for member in group.members.values():
                self._rebalances.renew_session(group, member, now)
            if len(group.members) > self._settings.max_size:
                # The limit was lowered meanwhile. A rebalance lets members commit before some are
                # removed.
                self._rebalances.prepare(group, now, result)
        return result

    def on_suspended(self, now: Instant) -> Result[None]:
        """Answer NOT_COORDINATOR to all parked requests, because another broker may coordinate the
        group by now. Members stay, with a new session: they rejoin if it is still this broker.
        """
        result: Result[None] = Result()
        for group in self.groups.classics():
            for member in self._refuse_waiting(group, result):
                self._rebalances.renew_session(group, member, now)
        return result

    def on_unloaded(self) -> Result[None]:
        """Answer NOT_COORDINATOR to all parked requests: this broker does not coordinate their
        groups any more.
        """
        result: Result[None] = Result()
        for group in self.groups.classics():
            self._refuse_waiting(group, result)
            self._rebalances.forget(group)
        for modern in self.groups:
            if isinstance(modern, ConsumerGroup):
                self._membership.forget(modern)
        self.shares.on_unloaded()
        return result

    def _refuse_waiting(self, group: ClassicGroup, result: Result[None]) -> list[Member]:
        """Answer NOT_COORDINATOR to the members with parked requests; return them."""
        error = ErrorCode.NOT_COORDINATOR
        refused = []
        for member in group.members.values():
            if member.awaiting_join is None and member.awaiting_sync is None:
                continue
            refused.append(member)
            if member.awaiting_join is not None:
                result.answer(member.awaiting_join, join_refused(error, member.member_id))
                group.park_join(member, None)
            if member.awaiting_sync is not None:
                result.answer(member.awaiting_sync, sync_refused(error))
                member.awaiting_sync = None
        return refused

    def _member_committed(self, group: Group, member_id: str, now: Instant) -> None:
        if isinstance(group, ClassicGroup):
            self._rebalances.renew_session(group, group.members[member_id], now)

    def _remove_group(self, group_id: str) -> None:
        group = self.groups.remove(group_id)
        if isinstance(group, ClassicGroup):
            self._rebalances.forget(group)
        elif isinstance(group, ConsumerGroup):
            self._membership.forget(group)
        elif isinstance(group, ShareGroup):
            self.shares.members.forget(group)
