"""The rules of JoinGroup: which members may join, and when that starts a rebalance.

KIP-394: a new dynamic member first gets an id and has to join again with it, so that a client that
loses the response leaves no members behind. KIP-345: a static member, which has an instance id, may
rejoin with a new member id and keeps its membership. Kafka:
``GroupMetadataManager.classicGroupJoin``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from millstream.coordinator.group.classic_group import ClassicGroup
from millstream.coordinator.group.groups import Groups
from millstream.coordinator.group.member import Member, protocols_by_name
from millstream.coordinator.group.rebalance import Rebalances
from millstream.coordinator.group.records import assignments_of, group_record, new_group_record
from millstream.coordinator.group.responses import (
    NO_MEMBER_ID,
    join_refused,
    joined,
    sync_refused,
)
from millstream.coordinator.group.settings import MAX_SESSIONS_PER_SHARD, GroupSettings
from millstream.coordinator.group.states import GroupState
from millstream.coordinator.result import Instant, Result
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.coordinator_records import GroupMetadataValue
from millstream.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

FIRST_VERSION_WITH_MEMBER_ID_REQUIRED = 4
FIRST_VERSION_WITH_SKIP_ASSIGNMENT = 9


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request: its client id, its host in Kafka's format (``/10.0.0.1``), and the
    API version. ``describable`` returns those of some topics that it may know of; None stands for
    all of them.
    """

    client_id: str
    client_host: str
    version: int
    describable: Callable[[Iterable[str]], Collection[str]] | None = field(
        default=None, compare=False
    )


@dataclass(frozen=True, slots=True)
class Joining:
    """One JoinGroup request while it is processed."""

    request: JoinGroupRequest
    protocols: dict[str, bytes]
    caller: Caller
    new_member_id: str
    reply: Deferred[JoinGroupResponse]
    now: Instant
    result: Result[JoinGroupResponse]

    @property
    def metadata_bytes(self) -> int:
        """Bytes of the metadata for all protocols."""
        return sum(map(len, self.protocols.values()))

    def answer(self, response: JoinGroupResponse) -> None:
        """Answer this request, now or once the records are committed."""
        self.result.answer(self.reply, response)

    def refuse(self, error: ErrorCode) -> None:
        """Answer with an error and the member id that was sent."""
        self.answer(join_refused(error, self.request.member_id))


class JoinRules:
    """Serves JoinGroup over the groups of one shard.

    ``join_other`` is given each valid request before; it returns True if it has answered it, for
    the group is of another kind.
    """

    def __init__(
        self,
        settings: GroupSettings,
        groups: Groups,
        rebalances: Rebalances,
        join_other: Callable[[Joining], bool],
    ) -> None:
        self._settings = settings
        self._groups = groups
        self._rebalances = rebalances
        self._join_other = join_other

    def join(
        self,
        request: JoinGroupRequest,
        caller: Caller,
        new_id: str,
        reply: Deferred[JoinGroupResponse],
        now: Instant,
    ) -> Result[JoinGroupResponse]:
        """Add a member to the next generation; the response is sent when that begins.

        ``new_id`` is a unique text from which a new member's id is made.
        """
        prefix = request.group_instance_id
        if prefix is None:
            prefix = caller.client_id
        joining = Joining(
            request=request,
            protocols=protocols_by_name(request.protocols),
            caller=caller,
            new_member_id=f"{prefix}-{new_id}",
            reply=reply,
            now=now,
            result=Result(),
        )
        error = self._refusal(joining)
        if error is not None:
            joining.refuse(error)
            return joining.result
        if self._join_other(joining):
            return joining.result
        is_unknown = request.member_id == NO_MEMBER_ID
        group = self._groups.classic_or_none(request.group_id)
        if group is None and self._groups.get(request.group_id) is not None:
            joining.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            return joining.result
        if group is None and not is_unknown:
            joining.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
            return joining.result
        is_new_group = group is None
        if group is None:
            group = self._groups.create(request.group_id, now)
        if not self._accepts(group, joining):
            self._rebalances.end_session(group, request.member_id)
            group.remove(request.member_id)
            joining.answer(join_refused(ErrorCode.GROUP_MAX_SIZE_REACHED))
            self._rebalances.complete_if_all_joined(group, now, joining.result)
        elif is_unknown:
            self._join_new(group, joining)
        else:
            self._join_known(group, joining)
        if is_new_group and not any(
            isinstance(record.value, GroupMetadataValue) for record in joining.result.records
        ):
            # The group is listed from now on, so it must be there after a restart too.
            joining.result.settled(new_group_record(group))
        return joining.result

    def _refusal(self, joining: Joining) -> ErrorCode | None:
        """Return the error of a request that is invalid for any group; None if it is valid."""
        settings = self._settings
        lowest_ms, highest_ms = settings.min_session_timeout_ms, settings.max_session_timeout_ms
        if not lowest_ms <= joining.request.session_timeout_ms <= highest_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if joining.metadata_bytes > settings.max_record_bytes:
            # Not a rule of Kafka: such a member could never be stored, but would take memory.
            return ErrorCode.INVALID_REQUEST
        return None

    def _accepts(self, group: ClassicGroup, joining: Joining) -> bool:
        """True if the group has room; always true for a present member."""
        settings = self._settings
        if joining.request.member_id == NO_MEMBER_ID and (
            self._rebalances.session_count >= MAX_SESSIONS_PER_SHARD
            or group.metadata_bytes + joining.metadata_bytes > settings.max_metadata_bytes
        ):
            return False
        limit = settings.max_size
        member = group.members.get(joining.request.member_id)
        match group.state:
            case GroupState.PREPARING_REBALANCE:
                # Waiting members count, not all members: after the limit was lowered, the last ones
                # to rejoin are refused.
                waits = member is not None and member.awaiting_join is not None
                return waits or group.awaiting_join < limit
            case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
                return member is not None or len(group.members) < limit
            case _:
                return True

    def _join_new(self, group: ClassicGroup, joining: Joining) -> None:
        request = joining.request
        if not group.supports(request.protocol_type, joining.protocols):
            joining.answer(join_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        elif request.group_instance_id is not None:
            old_id = group.static_members.get(request.group_instance_id)
            if old_id is None:
                self._add(group, joining, joining.new_member_id)
            else:
                self._replace_static(group, group.members[old_id], joining)
        elif joining.caller.version < FIRST_VERSION_WITH_MEMBER_ID_REQUIRED:
            self._add(group, joining, joining.new_member_id)
        else:
            group.pending_join.add(joining.new_member_id)
            self._rebalances.start_session(
                group, joining.new_member_id, request.session_timeout_ms, joining.now
            )
            joining.answer(join_refused(ErrorCode.MEMBER_ID_REQUIRED, joining.new_member_id))

    def _join_known(self, group: ClassicGroup, joining: Joining) -> None:
        request = joining.request
        if not group.supports(request.protocol_type, joining.protocols):
            joining.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            return
        if request.member_id in group.pending_join:
            if request.group_instance_id is not None:
                # Only dynamic members get pending ids: a static one joins without. Kafka fails with
                # UNKNOWN_SERVER_ERROR, at which clients give up (decision 0007).
                joining.answer(join_refused(ErrorCode.UNKNOWN_MEMBER_ID))
            else:
                self._add(group, joining, request.member_id)
            return
        try:
            member = group.validate_member(request.member_id, request.group_instance_id)
        except KafkaError as error:
            joining.refuse(error.error)
            return
        self._rejoin(group, member, joining)

    def _rejoin(self, group: ClassicGroup, member: Member, joining: Joining) -> None:
        """Add a present member to the next generation, if a rebalance is needed.

        A member that sends the same metadata again, perhaps because it lost the response, gets the
        present generation. A leader that rejoins while the group is stable starts a rebalance: it
        has detected a change that is in no member's metadata.
        """
        same = member.matches(joining.protocols)
        match group.state:
            case GroupState.PREPARING_REBALANCE:
                self._update(group, member, joining)
            case GroupState.COMPLETING_REBALANCE if same:
                joining.answer(joined(group, member.member_id))
            case GroupState.STABLE if same and not group.is_leader(member.member_id):
                joining.answer(joined(group, member.member_id))
            case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
                self._update(group, member, joining)
            case _:
                joining.refuse(ErrorCode.UNKNOWN_MEMBER_ID)

    def _add(self, group: ClassicGroup, joining: Joining, member_id: str) -> None:
        request = joining.request
        member = Member(
            member_id=member_id,
            instance_id=request.group_instance_id,
            client_id=joining.caller.client_id,
            client_host=joining.caller.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=joining.protocols,
        )
        self._rebalances.add_member(group, member, joining.reply, joining.now, joining.result)

    def _update(self, group: ClassicGroup, member: Member, joining: Joining) -> None:
        self._note_request(group, member, joining)
        self._rebalances.prepare_or_complete(group, joining.now, joining.result)

    def _note_request(self, group: ClassicGroup, member: Member, joining: Joining) -> None:
        if member.awaiting_join is not None:
            # The same member sent the request again, so the older connection is dead.
            joining.result.answer(
                member.awaiting_join,
                join_refused(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id),
            )
        group.update_protocols(member, joining.protocols)
        member.rebalance_timeout_ms = joining.request.rebalance_timeout_ms
        member.session_timeout_ms = joining.request.session_timeout_ms
        group.park_join(member, joining.reply)

    def _replace_static(self, group: ClassicGroup, old: Member, joining: Joining) -> None:
        """Replace a static member by the process that now has its instance id.

        In a stable group whose protocol does not change, the other members are not affected: the
        new process gets the present generation. Below version 9 there is no flag to skip the
        assignment, so a leader gets a response with its old id as the leader and acts as a follower
        (KIP-814).
        """
        old_leader_id = group.leader_id
        stable = group.state is GroupState.STABLE
        if stable and not self._fits(group, joining):
            joining.answer(join_refused(ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        self._fence(group, old, joining)
        new = group.replace_static(old, joining.new_member_id)
        self._note_request(group, new, joining)
        self._rebalances.renew_session(group, new, joining.now)
        if stable and group.select_protocol() == group.protocol_name:
            joining.result.settled(group_record(group, assignments_of(group)))
            group.park_join(new, None)
            joining.answer(self._present_generation(group, new, old_leader_id, joining.caller))
        elif group.state is GroupState.COMPLETING_REBALANCE:
            # The leader may already have made an assignment for the old id.
            self._rebalances.prepare(group, joining.now, joining.result)
        else:
            self._rebalances.prepare_or_complete(group, joining.now, joining.result)

    def _fits(self, group: ClassicGroup, joining: Joining) -> bool:
        """True if the group's record still fits after the request's change."""
        texts = joining.new_member_id, joining.caller.client_id, joining.caller.client_host
        more = joining.metadata_bytes + sum(len(text.encode()) for text in texts)
        present = group_record(group, assignments_of(group)).size
        return present + more <= self._settings.max_record_bytes

    def _present_generation(
        self, group: ClassicGroup, member: Member, old_leader_id: str | None, caller: Caller
    ) -> JoinGroupResponse:
        if caller.version >= FIRST_VERSION_WITH_SKIP_ASSIGNMENT:
            leads = group.is_leader(member.member_id)
            return joined(group, member.member_id, skip_assignment=leads)
        return joined(group, member.member_id, leader_id=old_leader_id, with_members=False)

    def _fence(self, group: ClassicGroup, old: Member, joining: Joining) -> None:
        """Answer FENCED_INSTANCE_ID to the parked requests of the previous process of a static
        member.
        """
        self._rebalances.end_session(group, old.member_id)
        group.pending_sync.discard(old.member_id)
        if old.awaiting_join is not None:
            joining.result.answer(
                old.awaiting_join, join_refused(ErrorCode.FENCED_INSTANCE_ID, old.member_id)
            )
            group.park_join(old, None)
        if old.awaiting_sync is not None:
            joining.result.answer(old.awaiting_sync, sync_refused(ErrorCode.FENCED_INSTANCE_ID))
            old.awaiting_sync = None
