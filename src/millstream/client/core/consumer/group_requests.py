"""The requests of a group's member, one coroutine each.

JoinGroup 0 to 9, SyncGroup 0 to 5, Heartbeat 0 to 4, LeaveGroup 0 to 5; static members need
versions from 5, 3, 3 and 3 on. Errors are raised as BrokerError, MEMBER_ID_REQUIRED with the new
member id as its message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from millstream.client.core.consumer.group_protocol import PROTOCOL_TYPE
from millstream.client.core.consumer.record import GroupMetadata
from millstream.client.core.consumer.settings import ConsumerSettings
from millstream.client.core.network import CoordinatorType, Network, Purpose
from millstream.client.errors import BrokerError, ClientError
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from millstream.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from millstream.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from millstream.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

R = TypeVar("R", bound=Response)

_JOIN_SLACK_MS: Final = 5_000
_FIRST_LEAVE_OF_MEMBERS: Final = 3
_REASON_LENGTH: Final = 255


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member in the leader's JoinGroup response."""

    member_id: str
    group_instance_id: str | None
    subscription: bytes


@dataclass(frozen=True, slots=True)
class Joined:
    """A successful JoinGroup; ``members`` is filled for the leader only."""

    generation_id: int
    member_id: str
    protocol_name: str
    is_leader: bool
    skip_assignment: bool
    members: tuple[JoinedMember, ...]


class GroupRequests:
    """Sends requests to the coordinator of one group."""

    def __init__(self, network: Network, settings: ConsumerSettings) -> None:
        assert settings.group_id is not None
        self._network = network
        self._settings = settings
        self._group_id = settings.group_id

    def forget_coordinator(self) -> None:
        """Look up the coordinator again before the next request."""
        self._network.forget_coordinator(self._group_id, CoordinatorType.GROUP)

    async def join(
        self, group: GroupMetadata, protocols: Sequence[tuple[str, bytes]], reason: str
    ) -> Joined:
        """Join or rejoin; waits for the other members, at most ``max.poll.interval.ms``."""
        settings = self._settings
        request = JoinGroupRequest(
            group_id=group.group_id,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in protocols
            ],
            reason=reason[:_REASON_LENGTH],
        )
        timeout_ms = max(
            settings.request_timeout_ms, settings.max_poll_interval_ms + _JOIN_SLACK_MS
        )
        answer = await self._ask(request, JoinGroupResponse, timeout_ms)
        error = ErrorCode.of(answer.error_code)
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            raise BrokerError(error, answer.member_id)
        if error is ErrorCode.GROUP_ID_NOT_FOUND:
            # A group that does not exist is made by the first who joins.
            raise BrokerError(
                error, f"group {self._group_id!r} has another type, for example a share group"
            )
        self._check(answer.error_code, "JoinGroup")
        if answer.protocol_type not in (None, PROTOCOL_TYPE):
            raise BrokerError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"group {self._group_id!r} is one of {answer.protocol_type!r}",
            )
        return Joined(
            answer.generation_id,
            answer.member_id,
            answer.protocol_name or "",
            answer.leader == answer.member_id,
            answer.skip_assignment,
            tuple(
                JoinedMember(each.member_id, each.group_instance_id, bytes(each.metadata))
                for each in answer.members
            ),
        )

    async def sync(
        self, group: GroupMetadata, protocol_name: str, shares: Mapping[str, bytes]
    ) -> bytes:
        """Send SyncGroup with the leader's assignments, or none, and return this member's own."""
        request = SyncGroupRequest(
            group_id=group.group_id,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=share)
                for member_id, share in shares.items()
            ],
        )
        timeout_ms = max(
            self._settings.request_timeout_ms, self._settings.max_poll_interval_ms + _JOIN_SLACK_MS
        )
        answer = await self._ask(request, SyncGroupResponse, timeout_ms)
        self._check(answer.error_code, "SyncGroup")
        if answer.protocol_name not in (None, protocol_name):
            raise BrokerError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"the group uses {answer.protocol_name!r}, not {protocol_name!r}",
            )
        return bytes(answer.assignment)

    async def heartbeat(self, group: GroupMetadata, *, is_stable: bool) -> None:
        """Send a heartbeat.

        A coordinator without a response for a session time-out is looked up again. Unless
        ``is_stable`` the response may have to wait for that of SyncGroup.
        """
        request = HeartbeatRequest(
            group_id=group.group_id,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
        )
        settings = self._settings
        session_ms = min(settings.request_timeout_ms, settings.session_timeout_ms)
        answer = await self._ask(request, HeartbeatResponse, session_ms if is_stable else None)
        self._check(answer.error_code, "Heartbeat")

    async def leave(self, group: GroupMetadata, reason: str, *, is_joining: bool) -> None:
        """Send LeaveGroup. Failures are ignored: the session expires in any case.

        While the member joins, its connection is blocked by JoinGroup: then another connection is
        used.
        """
        try:
            node_id = await self._network.coordinator(self._group_id, CoordinatorType.GROUP)
            version = await self._network.version_for(node_id, LeaveGroupRequest)
            if version < _FIRST_LEAVE_OF_MEMBERS:
                request = LeaveGroupRequest(group_id=group.group_id, member_id=group.member_id)
            else:
                member = MemberIdentity(
                    member_id=group.member_id,
                    group_instance_id=group.group_instance_id,
                    reason=reason[:_REASON_LENGTH],
                )
                request = LeaveGroupRequest(group_id=group.group_id, members=[member])
            purpose = Purpose.DATA if is_joining else Purpose.COORDINATION
            await self._network.send(node_id, request, version=version, purpose=purpose)
        except (ClientError, KafkaError):
            return

    async def _ask(self, request: Request, answer: type[R], timeout_ms: float | None) -> R:
        response = await self._network.send_to_coordinator(
            self._group_id, CoordinatorType.GROUP, request, timeout_ms=timeout_ms
        )
        assert isinstance(response, answer), "an answer has the type of its request"
        return response

    def _check(self, code: int, api: str) -> None:
        if code:
            raise BrokerError(ErrorCode.of(code), f"{api} of group {self._group_id!r}")
