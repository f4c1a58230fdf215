"""One member of a group, by the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

States (Kafka: ``AbstractCoordinator.MemberState``)::

    UNJOINED   --JoinGroup-->           PREPARING
    PREPARING  --its answer-->          COMPLETING    heartbeats begin
    COMPLETING --SyncGroup's answer-->  STABLE        partitions are assigned
    STABLE     --REBALANCE_IN_PROGRESS, a change of topics--> rejoins: PREPARING
    any        --UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, max.poll.interval.ms--> UNJOINED

A rebalance begins inside a poll of the user, because revoked partitions must not be in use; then it
continues in the background, except for the user's callbacks. Heartbeats continue whether the user
polls or not; without a poll for ``max.poll.interval.ms`` the member leaves.

The coordinator assigns ids: the first JoinGroup is refused with MEMBER_ID_REQUIRED (KIP-394). With
a ``group.instance.id`` the member is static: it keeps its partitions over restarts, because it does
not leave (KIP-345). Kafka: ``AbstractCoordinator``.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import Final, Protocol, TypeVar

from millstream.client.core.consumer.commits import COORDINATOR_MOVED
from millstream.client.core.consumer.errors import FencedInstanceIdError
from millstream.client.core.consumer.group_requests import GroupRequests, Joined
from millstream.client.core.consumer.metrics import CoordinatorMetrics
from millstream.client.core.consumer.record import GroupMetadata
from millstream.client.core.consumer.settings import ConsumerSettings
from millstream.client.core.loop import ClientLoop, TimerHandle
from millstream.client.core.waiting import Signal, backoff_ms, sleep
from millstream.client.errors import BrokerError, ClientError, ClosedError, is_retriable
from millstream.model.deferred import spawn
from millstream.model.errors import ErrorCode, KafkaError

Result = TypeVar("Result")

_RETRY_AT_ONCE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.MEMBER_ID_REQUIRED,
    }
)
_NO_LONGER_MEMBER: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})

_log = logging.getLogger("millstream.client.consumer")


class MemberState(Enum):
    """The state of a member."""

    UNJOINED = auto()
    PREPARING = auto()
    COMPLETING = auto()
    STABLE = auto()


class Rebalance(Protocol):
    """The handling of partitions during a rebalance; see ``group_assignment``."""

    def stop_reading(self) -> None:
        """Return no more records: the member's partitions are lost."""

    async def prepare(self, *, lost: bool) -> None:
        """Revoke the partitions that must be revoked before joining; ``lost``: they are lost
        already.
        """

    async def describe(self) -> list[tuple[str, bytes]]:
        """Return the name of each assignor and this member's metadata for it."""

    async def divide(self, joined: Joined) -> dict[str, bytes]:
        """As the leader, return every member's assignment."""

    async def take(self, assignor: str, assignment: bytes, generation: int) -> bool:
        """Apply the leader's assignment; return True if the group must rebalance once more."""


class GroupMember:
    """This consumer's membership. ``on_attention`` requests a poll of the user."""

    def __init__(
        self,
        loop: ClientLoop,
        settings: ConsumerSettings,
        requests: GroupRequests,
        rebalance: Rebalance,
        metrics: CoordinatorMetrics,
    ) -> None:
        assert settings.group_id is not None
        self.state = MemberState.UNJOINED
        self.group = GroupMetadata(settings.group_id, group_instance_id=settings.group_instance_id)
        self.assignor: str | None = None
        self.is_rebalancing = False
        self.last_poll_ms = loop.now_ms()
        """Written by polls, also on other threads."""
        self.polled = Signal()
        self.is_polling: Callable[[], bool] = lambda: False
        """Tells whether the user is waiting in a poll."""
        self.on_attention: Callable[[], None] = lambda: None
        self.on_failure: Callable[[Exception], None] = lambda error: None
        self._loop = loop
        self._settings = settings
        self._requests = requests
        self._rebalance = rebalance
        self._metrics = metrics
        self._rejoin_reason: str | None = "the consumer begins"
        self._needs_prepare = True
        self._era = 0
        self._attempts = 0
        self._retried_at_once: set[ErrorCode] = set()
        """What this rebalance was refused with once; after that there is a pause before the next
        attempt.
        """
        self._heartbeat: TimerHandle | None = None
        self._fatal: Exception | None = None
        self._wanted = True
        """False from leaving until the user polls as a member again."""
        self._closed = False

    @property
    def rejoin_needed(self) -> bool:
        """True if the next poll begins a rebalance, or one is running."""
        return self._rejoin_reason is not None

    @property
    def _goes_on(self) -> bool:
        """True while a rebalance has to be started or retried."""
        ended = self._closed or self._fatal is not None
        return self.rejoin_needed and self._wanted and not ended

    @property
    def stable_group(self) -> GroupMetadata | None:
        """The generation to commit with; None between two generations."""
        return self.group if self.state is MemberState.STABLE else None

    def poll(self) -> None:
        """Handle a poll: begin a rebalance if one is due. Raises the error that ended the
        membership.
        """
        self.last_poll_ms = self._loop.now_ms()
        if self._fatal is not None:
            raise self._fatal
        self._wanted = True
        self.polled.notify()
        if self.rejoin_needed and not self.is_rebalancing and not self._closed:
            self.is_rebalancing = True
            spawn(self._run())

    def request_rejoin(self, reason: str) -> None:
        """Rebalance at the next poll; the reason is sent to the coordinator (KIP-800)."""
        if self._rejoin_reason is None:
            _log.info("group %s: rejoin because %s", self.group.group_id, reason)
            self._rejoin_reason = reason
        self.on_attention()

    def reset(self, reason: str, *, forget_member: bool) -> None:
        """Reset the membership; its partitions are lost."""
        _log.info("group %s: no longer a member because %s", self.group.group_id, reason)
        member_id = "" if forget_member else self.group.member_id
        self.group = self.group._replace(generation_id=-1, member_id=member_id)
        self.assignor = None
        self.state = MemberState.UNJOINED
        self._needs_prepare = True
        self._era += 1
        self._stop_heartbeats()
        self._rebalance.stop_reading()
        self.request_rejoin(reason)

    def fail(self, error: Exception) -> None:
        """End the membership permanently: every poll raises ``error``."""
        self._fatal = error
        self._stop_heartbeats()
        self._rebalance.stop_reading()
        self.on_failure(error)

    async def leave(self, reason: str) -> None:
        """Send LeaveGroup; a static member stays until its session expires."""
        self._stop_heartbeats()
        group, state = self.group, self.state
        self.state = MemberState.UNJOINED
        self._era += 1
        self.group = group._replace(generation_id=-1, member_id="")
        self._wanted = False
        self._rejoin_reason = "the consumer has a new subscription"
        self._needs_prepare = True
        if (
            group.member_id
            and group.group_instance_id is None
            and state is not (MemberState.UNJOINED)
        ):
            is_joining = state is not MemberState.STABLE
            await self._requests.leave(group, reason, is_joining=is_joining)

    def close(self) -> None:
        """Stop everything; running operations end at their next wait."""
        self._closed = True
        self._era += 1
        self._stop_heartbeats()
        self.polled.notify()

    # --- the rebalance ---------------------------------------------------------------------------

    async def _run(self) -> None:
        began = self._loop.now_ms()
        self._attempts = 0
        self._retried_at_once.clear()
        try:
            while self._goes_on:
                if await self._attempt():
                    self._metrics.rebalances.add(self._loop.now_ms() - began)
                    self._metrics.last_rebalance_ms = self._loop.now_ms()
                    # A further rebalance commits positions, and so begins in a poll too: the user
                    # may be processing the records of the last one.
                    break
        except ClosedError:
            pass
        except Exception as error:
            # A user's assignor may raise anything; the error goes to the user, not to the loop. The
            # state so far is invalid: the next poll starts again.
            self._metrics.failed_rebalances += 1
            self._rejoin_reason = self._rejoin_reason or f"a rebalance failed: {error}"
            self.fail(error) if _ends_membership(error) else self.on_failure(error)
        finally:
            self.is_rebalancing = False
            if self.rejoin_needed and self._wanted:
                self.on_attention()

    async def _attempt(self) -> bool:
        """Join once; return True when partitions were assigned."""
        if self._needs_prepare:
            self._needs_prepare = False
            await self._rebalance.prepare(lost=self.group.generation_id < 0)
            if self._closed:
                return False
        try:
            assignment = await self._join_and_sync()
        except (ClientError, KafkaError) as error:
            await self._after_failure(error)
            return False
        if self._closed or assignment is None:
            return False
        self._needs_prepare = True
        assert self.assignor is not None
        again = await self._rebalance.take(self.assignor, assignment, self.group.generation_id)
        if again:
            self.request_rejoin("partitions must change hands")
        return True

    async def _after_failure(self, error: ClientError | KafkaError) -> None:
        """Decide whether and when to join again."""
        if isinstance(error, ClosedError) or self._closed:
            raise error
        self._metrics.failed_rebalances += 1
        _log.debug("group %s: joining failed: %s", self.group.group_id, error)
        if self.state is not MemberState.UNJOINED:
            self.state = MemberState.PREPARING
        code = error.error if isinstance(error, KafkaError) else None
        if code in _RETRY_AT_ONCE and code not in self._retried_at_once:
            self._retried_at_once.add(code)
            return
        if code is ErrorCode.FENCED_INSTANCE_ID:
            raise FencedInstanceIdError(self.group.group_instance_id)
        if not is_retriable(error) and code not in _RETRY_AT_ONCE:
            raise error
        pause = backoff_ms(
            self._loop,
            self._attempts,
            self._settings.retry_backoff_ms,
            self._settings.retry_backoff_max_ms,
        )
        self._attempts += 1
        await sleep(self._loop, pause)

    async def _join_and_sync(self) -> bytes | None:
        """Return the leader's assignment, None if the member was reset meanwhile."""
        era = self._era
        protocols = await self._rebalance.describe()
        if self._era != era:
            return None
        self.state = MemberState.PREPARING
        self._stop_heartbeats()
        asked_at = self._loop.now_ms()
        reason = self._rejoin_reason or ""
        joined = await self._checked(era, self._requests.join(self.group, protocols, reason))
        if joined is None:
            return None
        self._metrics.joins.add(self._loop.now_ms() - asked_at)
        self.group = self.group._replace(
            generation_id=joined.generation_id, member_id=joined.member_id
        )
        self.assignor = joined.protocol_name
        self.state = MemberState.COMPLETING
        self._rejoin_reason = None
        self._begin_heartbeats()
        _log.info(
            "group %s: joined generation %d as %s%s",
            self.group.group_id,
            joined.generation_id,
            joined.member_id,
            ", the leader" if joined.is_leader else "",
        )
        try:
            return await self._sync(era, joined)
        except (ClientError, KafkaError):
            if self._rejoin_reason is None:
                self._rejoin_reason = "synchronizing failed"
            raise

    async def _sync(self, era: int, joined: Joined) -> bytes | None:
        shares: dict[str, bytes] = {}
        if joined.is_leader:
            shares = await self._rebalance.divide(joined)
            if self._era != era:
                return None
        asked_at = self._loop.now_ms()
        sync = self._requests.sync(self.group, joined.protocol_name, shares)
        assignment = await self._checked(era, sync)
        if assignment is None:
            return None
        self._metrics.syncs.add(self._loop.now_ms() - asked_at)
        self.state = MemberState.STABLE
        return assignment

    async def _checked(self, era: int, request: Awaitable[Result]) -> Result | None:
        """Await a response; an error may end the membership. None if it has ended meanwhile."""
        try:
            answer = await request
        except BrokerError as error:
            if self._era == era:
                self._on_refusal(error)
            raise
        return answer if self._era == era else None

    def _on_refusal(self, error: BrokerError) -> None:
        if error.error in COORDINATOR_MOVED:
            self._requests.forget_coordinator()
        elif error.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.group = self.group._replace(member_id=error.message or "")
        elif error.error in _NO_LONGER_MEMBER:
            forget = error.error is ErrorCode.UNKNOWN_MEMBER_ID
            self.reset(f"of {error.error.name}", forget_member=forget)

    # --- heartbeats ------------------------------------------------------------------------------

    def _begin_heartbeats(self) -> None:
        self._stop_heartbeats()
        self._plan_heartbeat(self._settings.heartbeat_interval_ms)

    def _plan_heartbeat(self, delay_ms: float) -> None:
        self._heartbeat = self._loop.call_at(self._loop.now_ms() + delay_ms, self._beat)

    def _stop_heartbeats(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.cancel()
            self._heartbeat = None

    def _beat(self) -> None:
        self._heartbeat = None
        if self._closed or self.state in (MemberState.UNJOINED, MemberState.PREPARING):
            return
        if self.is_polling():
            self.last_poll_ms = self._loop.now_ms()
        if self._loop.now_ms() - self.last_poll_ms > self._settings.max_poll_interval_ms:
            self._leave_for_silence()
            return
        spawn(self._send_heartbeat(self._era, self.group))

    def _leave_for_silence(self) -> None:
        _log.warning(
            "group %s: leaving, because no poll came for max.poll.interval.ms (%d): handle fewer "
            "records at once (max.poll.records) or raise it",
            self.group.group_id,
            self._settings.max_poll_interval_ms,
        )
        group = self.group
        self.reset("no poll came for max.poll.interval.ms", forget_member=True)
        if group.group_instance_id is None:
            reason = "consumer poll timeout has expired"
            spawn(self._requests.leave(group, reason, is_joining=True))

    async def _send_heartbeat(self, era: int, group: GroupMetadata) -> None:
        asked_at = self._loop.now_ms()
        delay_ms: float = self._settings.heartbeat_interval_ms
        try:
            stable = self.state is MemberState.STABLE
            await self._requests.heartbeat(group, is_stable=stable)
            self._metrics.heartbeats.add(self._loop.now_ms() - asked_at)
            self._metrics.last_heartbeat_ms = self._loop.now_ms()
        except BrokerError as error:
            delay_ms = self._settings.retry_backoff_ms
            if self._era == era and self.group == group and not self._heartbeat_refused(error):
                return
            if error.error is ErrorCode.REBALANCE_IN_PROGRESS:
                delay_ms = self._settings.heartbeat_interval_ms
        except (ClientError, KafkaError):
            delay_ms = self._settings.retry_backoff_ms
        if self._era == era and self._heartbeat is None and not self._closed:
            self._plan_heartbeat(delay_ms)

    def _heartbeat_refused(self, error: BrokerError) -> bool:
        """Handle an error; return False if heartbeats end with it."""
        code = error.error
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            if self.state is MemberState.STABLE:
                self.request_rejoin("the group is rebalancing already")
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            self.fail(FencedInstanceIdError(self.group.group_instance_id))
            return False
        elif code in _NO_LONGER_MEMBER:
            forget = code is ErrorCode.UNKNOWN_MEMBER_ID
            self.reset(f"a heartbeat was refused with {code.name}", forget_member=forget)
            return False
        elif code in COORDINATOR_MOVED:
            self._requests.forget_coordinator()
        elif not is_retriable(error):
            self.fail(error)
            return False
        return True


def _ends_membership(error: Exception) -> bool:
    return isinstance(error, KafkaError) and error.error is ErrorCode.FENCED_INSTANCE_ID
