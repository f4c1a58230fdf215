"""ShareGroupHeartbeat: a member of a share group joins, is told what it may have, or leaves.

Each heartbeat does three steps, as for consumer groups: the member and its subscription are brought
up to date, which bumps the group epoch if the assignment depends on it; a new target assignment is
made if the group epoch is newer than the one there is; the member takes its target, at once:
several members may have a partition, so nobody waits for anybody. A fourth step names the share
partitions whose state has to be initialized before they can be assigned; whoever drives the shard
does that once the answer is sent, and reports it (:meth:`ShareHeartbeats.initialized`,
:meth:`ShareHeartbeats.not_initialized`). Kafka: ``GroupMetadataManager.shareGroupHeartbeat``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from millstream.coordinator.group.groups import Groups
from millstream.coordinator.group.join_group import Caller
from millstream.coordinator.group.modern.assignor import Assignment, AssignorError
from millstream.coordinator.group.modern.member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    MemberState,
    is_reconciled_to,
)
from millstream.coordinator.group.modern.modern_group import next_epoch
from millstream.coordinator.group.modern.target_assignment import TopicIds, compute_target
from millstream.coordinator.group.modern.topics import TopicsImage, metadata_hash
from millstream.coordinator.group.settings import MAX_SESSIONS_PER_SHARD
from millstream.coordinator.group.share import records as make
from millstream.coordinator.group.share.member import ShareMember
from millstream.coordinator.group.share.settings import ShareGroupSettings
from millstream.coordinator.group.share.share_group import ShareGroup
from millstream.coordinator.group.share.simple_assignor import SimpleAssignor
from millstream.coordinator.group.share.state_topics import (
    Partitions,
    StateTopics,
    TopicPartitions,
    Topics,
    missing_partitions,
    united,
)
from millstream.coordinator.group.timers import GroupDeadlines, Timer, TimerKey
from millstream.coordinator.result import CoordinatorRecord, Instant, Result
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicId
from millstream.protocol.messages.share_group_heartbeat import (
    Assignment as HeartbeatAssignment,
)
from millstream.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from millstream.protocol.messages.share_group_heartbeat import (
    TopicPartitions as HeartbeatPartitions,
)

_Change: TypeAlias = Callable[[StateTopics, Topics], StateTopics]


@dataclass(frozen=True, slots=True)
class StateToInitialize:
    """Share partitions whose state is to begin, with the group epoch as state epoch.

    ``start_offsets`` has the offset of each partition; -1 for none.
    """

    group_id: str
    state_epoch: int
    start_offsets: Mapping[TopicId, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class ShareHeartbeat:
    """The answer to a heartbeat, and the state that is to be initialized after it."""

    response: ShareGroupHeartbeatResponse
    initialize: StateToInitialize | None = None


@dataclass(slots=True)
class _Plan:
    """The group as it will be once the records are applied."""

    group: ShareGroup
    records: list[CoordinatorRecord] = field(default_factory=list)


class _Assignable:
    """The partitions that have state."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def partitions(self, topic_id: TopicId) -> list[int]:
        """Return the partitions of a topic that may be assigned, in order."""
        return sorted(self._partitions.get(topic_id, ()))

    def racks_of(self, topic_id: TopicId, partition: int) -> frozenset[str]:
        """Racks do not matter to share groups."""
        return frozenset()


class ShareHeartbeats:
    """Serves the heartbeats of one shard's share groups, and ends sessions."""

    def __init__(
        self,
        settings: ShareGroupSettings,
        groups: Groups,
        topics: TopicsImage,
        deadlines: GroupDeadlines,
    ) -> None:
        self._settings = settings
        self._groups = groups
        self._topics = topics
        self._deadlines = deadlines
        self._assignor = SimpleAssignor()
        self._begun_ms: dict[str, dict[TopicId, int]] = {}
        """When the initialization of a group's topics was begun, wall time, in memory alone."""

    def heartbeat(
        self, request: ShareGroupHeartbeatRequest, caller: Caller, now: Instant
    ) -> Result[ShareHeartbeat]:
        """Answer one heartbeat.

        Raises KafkaError: INVALID_REQUEST, GROUP_ID_NOT_FOUND, GROUP_MAX_SIZE_REACHED,
        UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH.
        """
        _validate(request)
        if request.member_epoch == LEAVING_EPOCH:
            return self._leave(request)
        is_joining = request.member_epoch == JOINING_EPOCH
        group = self._find_group(request.group_id, create=is_joining)
        self._check_room(group, request.member_id)
        if is_joining:
            present = group.members.get(request.member_id)
            before = present or ShareMember(member_id=request.member_id)
        else:
            before = group.require_member(request.member_id)
            _check_epoch(before, request.member_epoch)
        updated = _updated(before, request, caller)
        plan = _Plan(group)
        bump = self._update_member(plan, before, updated)
        names = self._names(group, updated)
        epoch = self._update_epoch(plan, names, bump=bump)
        target_epoch, target = self._update_target(plan, updated, epoch, now)
        after = self._reconcile(plan, updated, target_epoch, target, bump=epoch > group.group_epoch)
        to_initialize = self._begin_state(plan, names, epoch, now)
        times = self._settings.times_of(group.group_id)
        self._renew_session(group.group_id, after.member_id, now)
        response = ShareGroupHeartbeatResponse(
            error_code=ErrorCode.NONE.code,
            member_id=after.member_id,
            member_epoch=after.member_epoch,
            heartbeat_interval_ms=times.heartbeat_interval_ms,
        )
        is_full = request.subscribed_topic_names is not None
        # A member that still has its last epoch has not heard the answer that brought the next one.
        is_behind = request.member_epoch != before.member_epoch
        if is_joining or is_full or is_behind or after.assigned != before.assigned:
            response.assignment = HeartbeatAssignment(
                topic_partitions=[
                    HeartbeatPartitions(topic_id=topic_id, partitions=sorted(partitions))
                    for topic_id, partitions in after.assigned.items()
                ]
            )
        return Result(response=ShareHeartbeat(response, to_initialize), records=plan.records)

    # The state of share partitions

    def initialized(self, group_id: str, done: Partitions) -> Result[bool]:
        """Let share partitions be assigned: their state is at their share coordinators.

        Kafka: ``initializeShareGroupState``.
        """
        return self._change_state(group_id, done, StateTopics.finish)

    def not_initialized(self, group_id: str, failed: Partitions) -> Result[bool]:
        """Let share partitions be begun again with a later heartbeat.

        Kafka: ``uninitializeShareGroupState``.
        """
        return self._change_state(group_id, failed, StateTopics.give_up)

    def topic_deleted(self, group: ShareGroup, topic_id: TopicId) -> list[CoordinatorRecord]:
        """Forget a topic that was deleted: the share coordinators do the same."""
        topics = group.state_topics
        known = {*topics.initializing, *topics.initialized, *topics.deleting}
        if topic_id not in known:
            return []
        return [make.state_record(group.group_id, topics.without_topic(topic_id))]

    # Time

    def expire(self, group: ShareGroup, key: TimerKey, result: Result[None]) -> None:
        """Remove a member whose session has expired."""
        if key.timer is Timer.SESSION and key.member_id in group.members:
            for record in self._removal(group, key.member_id):
                group.apply(record)
                result.settled(record)

    def start_sessions(self, group: ShareGroup, now: Instant) -> None:
        """Give every member of a loaded group a new session."""
        for member_id in group.members:
            self._renew_session(group.group_id, member_id, now)

    def forget(self, group: ShareGroup) -> None:
        """Drop what memory has of a group that is gone."""
        self._begun_ms.pop(group.group_id, None)
        for member_id in group.members:
            self._deadlines.cancel(TimerKey(Timer.SESSION, group.group_id, member_id))

    # Steps of a heartbeat

    def _find_group(self, group_id: str, *, create: bool) -> ShareGroup:
        group = self._groups.get(group_id)
        if isinstance(group, ShareGroup):
            return group
        if group is not None:
            raise _not_found(f"Group {group_id} is not a share group.")
        if not create:
            raise _not_found(f"Share group {group_id} not found.")
        self._groups.check_room()
        return ShareGroup(group_id)

    def _check_room(self, group: ShareGroup, member_id: str) -> None:
        limit = self._settings.max_size
        if member_id in group.members:
            return
        if len(group.members) >= limit or len(self._deadlines) >= MAX_SESSIONS_PER_SHARD:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {limit} members.",
            )

    def _update_member(self, plan: _Plan, before: ShareMember, updated: ShareMember) -> bool:
        """Record new metadata; return True if the group epoch has to be bumped."""
        group = plan.group
        if updated != before or updated.member_id not in group.members:
            plan.records.append(make.member_record(group.group_id, updated))
        bump = updated.subscribed_topic_names != before.subscribed_topic_names
        if group.assignment_epoch >= group.group_epoch:
            bump = bump or group.has_unassigned_state()
        return bump

    def _names(self, group: ShareGroup, updated: ShareMember) -> set[str]:
        others = (m for m in group.members.values() if m.member_id != updated.member_id)
        return set(updated.subscribed_topic_names).union(
            *(member.subscribed_topic_names for member in others)
        )

    def _update_epoch(self, plan: _Plan, names: set[str], *, bump: bool) -> int:
        """Bump the group epoch if the assignment depends on what has changed; return it."""
        group = plan.group
        if not bump and not group.needs_refresh:
            return group.group_epoch
        found = metadata_hash(names, self._topics)
        group.needs_refresh = False
        if not bump and found == group.metadata_hash:
            return group.group_epoch
        epoch = next_epoch(group.group_epoch)
        plan.records.append(make.epoch_record(group.group_id, epoch, found))
        return epoch

    def _update_target(
        self, plan: _Plan, updated: ShareMember, epoch: int, now: Instant
    ) -> tuple[int, Assignment]:
        """Make a new target assignment if one is due; return its epoch and the member's target."""
        group = plan.group
        interval_ms = self._settings.times_of(group.group_id).assignment_interval_ms
        passed_ms = now.wall_ms - group.assignment_timestamp_ms
        if group.assignment_epoch >= epoch or 0 <= passed_ms < interval_ms:
            return group.assignment_epoch, group.target_of(updated.member_id)
        members = {**group.members, updated.member_id: updated}
        try:
            target = compute_target(
                self._assignor,
                members.values(),
                names_of=lambda member: member.subscribed_topic_names,
                target_of=lambda member: group.targets.get(member.member_id),
                topics=self._topics,
                assignable=_Assignable(group.state_topics.initialized_partitions()),
            )
        except AssignorError as error:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"Failed to compute a new target assignment for epoch {epoch}: {error}",
            ) from error
        group_id = group.group_id
        plan.records += [make.target_record(group_id, m, target.of(m)) for m in target.changed]
        plan.records.append(make.target_epoch_record(group_id, epoch, now.wall_ms))
        return epoch, target.of(updated.member_id)

    def _reconcile(
        self,
        plan: _Plan,
        member: ShareMember,
        target_epoch: int,
        target: Assignment,
        *,
        bump: bool,
    ) -> ShareMember:
        """Give the member its target; return it."""
        if not bump and is_reconciled_to(member, target_epoch):
            return member
        subscribed = TopicIds(self._topics).of(member.subscribed_topic_names)
        after = replace(
            member,
            state=MemberState.STABLE,
            assigned={each: parts for each, parts in target.items() if each in subscribed},
        )
        if target_epoch != member.member_epoch:
            after = replace(
                after, member_epoch=target_epoch, previous_member_epoch=member.member_epoch
            )
        if after != member:
            plan.records.append(make.current_record(plan.group.group_id, after))
        return after

    def _begin_state(
        self, plan: _Plan, names: set[str], epoch: int, now: Instant
    ) -> StateToInitialize | None:
        """Record the share partitions whose state is to be initialized; return them.

        Those of which nothing was heard for the retry interval are begun again.
        """
        group = plan.group
        begun_ms = self._begun_ms.get(group.group_id, {})
        recent = {
            topic_id: each
            for topic_id, each in group.state_topics.initializing.items()
            if 0
            <= now.wall_ms - begun_ms.get(topic_id, -1 << 62)
            < self._settings.initialize_retry_interval_ms
        }
        known = united(group.state_topics.initialized, recent)
        missing = missing_partitions(sorted(names), known, self._topics)
        if not missing:
            return None
        plan.records.append(make.state_record(group.group_id, group.state_topics.begin(missing)))
        self.mark_begun(group.group_id, missing, now)
        return StateToInitialize(
            group.group_id,
            epoch,
            {
                topic_id: dict.fromkeys(sorted(each.partitions), -1)
                for topic_id, each in missing.items()
            },
        )

    def mark_begun(self, group_id: str, topics: Topics, now: Instant) -> None:
        """Remember when the initialization of topics was begun."""
        self._begun_ms.setdefault(group_id, {}).update(dict.fromkeys(topics, now.wall_ms))

    # Inner workings

    def _leave(self, request: ShareGroupHeartbeatRequest) -> Result[ShareHeartbeat]:
        group = self._find_group(request.group_id, create=False)
        group.require_member(request.member_id)
        self._deadlines.cancel(TimerKey(Timer.SESSION, group.group_id, request.member_id))
        response = ShareGroupHeartbeatResponse(
            error_code=ErrorCode.NONE.code,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval_ms=0,
        )
        return Result(
            response=ShareHeartbeat(response), records=self._removal(group, request.member_id)
        )

    def _removal(self, group: ShareGroup, member_id: str) -> list[CoordinatorRecord]:
        others = [m for m in group.members.values() if m.member_id != member_id]
        names: set[str] = set().union(*(member.subscribed_topic_names for member in others))
        return [
            *make.member_tombstones(group.group_id, member_id),
            make.epoch_record(
                group.group_id, next_epoch(group.group_epoch), metadata_hash(names, self._topics)
            ),
        ]

    def _renew_session(self, group_id: str, member_id: str, now: Instant) -> None:
        timeout_ms = self._settings.times_of(group_id).session_timeout_ms
        key = TimerKey(Timer.SESSION, group_id, member_id)
        self._deadlines.set(key, now.monotonic_ms + timeout_ms)

    def _change_state(
        self,
        group_id: str,
        partitions: Partitions,
        change: _Change,
    ) -> Result[bool]:
        group = self._groups.get(group_id)
        if not isinstance(group, ShareGroup):
            return Result(response=False)
        known = group.state_topics.initializing
        changed: dict[TopicId, TopicPartitions] = {}
        for topic_id, each in partitions.items():
            # What was deleted, or begun anew, meanwhile is not initializing any more.
            present = known.get(topic_id)
            common = each & present.partitions if present is not None else frozenset()
            if present is not None and common:
                changed[topic_id] = TopicPartitions(present.name, common)
        if not changed:
            return Result(response=False)
        after = change(group.state_topics, changed)
        for topic_id in changed.keys() - after.initializing.keys():
            self._begun_ms.get(group_id, {}).pop(topic_id, None)
        return Result(response=True, records=[make.state_record(group_id, after)])


def _validate(request: ShareGroupHeartbeatRequest) -> None:
    if not request.member_id.strip():
        raise _invalid("MemberId can't be empty.")
    if not request.group_id.strip():
        raise _invalid("GroupId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise _invalid("RackId can't be empty.")
    if request.member_epoch == JOINING_EPOCH:
        if not request.subscribed_topic_names:
            raise _invalid("SubscribedTopicNames must be set in first request.")
    elif request.member_epoch < LEAVING_EPOCH:
        raise _invalid("MemberEpoch is invalid.")


def _check_epoch(member: ShareMember, epoch: int) -> None:
    """Raise FENCED_MEMBER_EPOCH for an epoch that is neither the member's nor the one before: the
    answer with the newer one may have been lost.
    """
    if epoch in (member.member_epoch, member.previous_member_epoch):
        return
    known = member.member_epoch
    if epoch > known:
        text = (
            f"a greater member epoch ({epoch}) than the one known by the group coordinator "
            f"({known})"
        )
    else:
        text = (
            f"a smaller member epoch ({epoch}) than the one known by the group coordinator "
            f"({known}), and it does not match the previous member epoch "
            f"({member.previous_member_epoch})"
        )
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The share group member has {text}. The member must abandon all its partitions and "
        "rejoin.",
    )


def _updated(
    member: ShareMember, request: ShareGroupHeartbeatRequest, caller: Caller
) -> ShareMember:
    """Return the member with what the request says; what is null in it has not changed."""
    names = request.subscribed_topic_names
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        subscribed_topic_names=(
            member.subscribed_topic_names if names is None else frozenset(names)
        ),
    )


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, text)


def _not_found(text: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)
