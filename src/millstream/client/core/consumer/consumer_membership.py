"""Membership by the consumer protocol (KIP-848): heartbeats, and assignments of the coordinator.

``MemberMachine`` holds the states. This sends the heartbeats they ask for, and applies an
assignment: partitions that are not in it stop delivering, the user's next poll comes, their
positions are committed if commits are automatic, the listener hears of them; then the new ones
begin, and the next heartbeat reports what is owned now. A partition reaches its next owner only
after that heartbeat, so no two members deliver records of it at once.

Heartbeats continue whether the user polls or not, in the interval of the coordinator's answers;
without a poll for ``max.poll.interval.ms`` the member leaves. A coordinator that no longer knows
the member, or its epoch, fences it: its partitions are lost, and it joins again by itself. Kafka:
``AbstractMembershipManager``, ``ConsumerMembershipManager``, ``AbstractHeartbeatRequestManager``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from millstream.client.core.consumer.assigned_names import AssignedNames
from millstream.client.core.consumer.commits import COORDINATOR_MOVED
from millstream.client.core.consumer.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    RebalanceInProgressError,
)
from millstream.client.core.consumer.group_heartbeat import (
    HeartbeatFields,
    HeartbeatSender,
    assigned_partitions,
)
from millstream.client.core.consumer.member_machine import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    Assignment,
    MemberMachine,
    MemberState,
    TopicIdPartition,
)
from millstream.client.core.consumer.membership import MemberSite
from millstream.client.core.consumer.metrics import CoordinatorMetrics
from millstream.client.core.consumer.owned_partitions import OwnedPartitions
from millstream.client.core.consumer.record import GroupMetadata
from millstream.client.core.consumer.settings import ConsumerSettings
from millstream.client.core.consumer.subscription import Subscription, SubscriptionKind
from millstream.client.core.consumer.topic_pattern import match_pattern
from millstream.client.core.consumer.user_calls import RebalanceListener
from millstream.client.core.loop import TimerHandle
from millstream.client.core.metadata import MetadataView
from millstream.client.core.network import Network
from millstream.client.core.waiting import Signal, backoff_ms, sleep
from millstream.client.errors import (
    BrokerError,
    ClientError,
    ClosedError,
    UnsupportedVersionError,
    is_retriable,
)
from millstream.model.deferred import spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicId, TopicPartition, topic_id_to_text

_FENCED: Final = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
_OUT_OF_DATE: Final = frozenset({ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
_FIRST_INTERVAL_MS: Final = 5_000
"""Until the first answer names the interval: Kafka's default."""

_log = logging.getLogger("millstream.client.consumer")


class ConsumerMembership:
    """Implements ``Membership``."""

    def __init__(
        self,
        network: Network,
        metadata: MetadataView,
        settings: ConsumerSettings,
        subscription: Subscription,
        metrics: CoordinatorMetrics,
    ) -> None:
        assert settings.group_id is not None
        self.machine = MemberMachine()
        self.member_id = new_member_id(network.loop.random)
        self.last_poll_ms = network.loop.now_ms()
        self.polled = Signal()
        self._group_id = settings.group_id
        self._loop = network.loop
        self._metadata = metadata
        self._settings = settings
        self._subscription = subscription
        self._metrics = metrics
        self._owned = OwnedPartitions(subscription)
        self._fields = HeartbeatFields(settings, subscription, self.machine)
        self._sender = HeartbeatSender(network, settings.group_id)
        self._site: MemberSite | None = None
        self._names = AssignedNames(
            network.loop,
            metadata,
            settings.group_id,
            timeout_ms=settings.request_timeout_ms,
            pause_ms=settings.retry_backoff_max_ms,
            try_again=self._reconcile_soon,
        )
        self._interval_ms: float = _FIRST_INTERVAL_MS
        self._next_ms = float("inf")
        """When the next heartbeat is due."""
        self._not_before_ms = 0.0
        """No heartbeat is sent before, whatever there is to say: the last ones were refused."""
        self._fences = 0
        """How often the coordinator did not know the member since it last confirmed an epoch."""
        self._timer: TimerHandle | None = None
        self._in_flight = False
        self._attempts = 0
        self._is_reconciling = False
        self._is_releasing = False
        self._began_ms: float | None = None
        self._answered = Signal()
        """Raised after every heartbeat, however it ended, and when the membership changes."""
        self._fatal: Exception | None = None
        self._closed = False

    # --- what the consumer asks ------------------------------------------------------------------

    @property
    def group(self) -> GroupMetadata:
        """The group metadata for transactions; the generation is the member epoch."""
        instance_id = self._settings.group_instance_id
        if not self.machine.is_member:
            return GroupMetadata(self._group_id, group_instance_id=instance_id)
        return GroupMetadata(self._group_id, self.machine.epoch, self.member_id, instance_id)

    @property
    def can_commit(self) -> bool:
        """True while the coordinator knows this member, also between two assignments."""
        return self.machine.is_member

    @property
    def fetches_offsets_as(self) -> GroupMetadata | None:
        """This member, so that its epoch is checked."""
        return self.group if self.machine.is_member else None

    @property
    def wanted_topics(self) -> frozenset[str]:
        """Topics subscribed to or owned, and those about to be assigned."""
        owned = {each.topic for each in self._subscription.partitions}
        return self._subscription.topics | owned | set(self._names.topics)

    def connect(self, site: MemberSite) -> None:
        """Connect the membership to its consumer."""
        self._site = site
        self._owned.run = site.run

    @property
    def _here(self) -> MemberSite:
        assert self._site is not None
        return self._site

    def subscribed(self, listener: RebalanceListener | None) -> None:
        """Join at the next poll, or let the coordinator know then."""
        self._owned.listen(listener)
        match_pattern(self._metadata, self._settings, self._subscription)
        self._here.attend()

    def review(self) -> None:
        """See whether the coordinator must hear of other topics, or new names are known."""
        match_pattern(self._metadata, self._settings, self._subscription)
        if self.machine.takes_part and self._fields.subscription_changed:
            self._beat_now()
        self._reconcile_soon()

    def poll(self) -> None:
        """Join if that is due. Raises the error that ended the membership."""
        self.last_poll_ms = self._loop.now_ms()
        if self._fatal is not None:
            raise self._fatal
        if self._closed:
            return
        self.polled.notify()
        match_pattern(self._metadata, self._settings, self._subscription)
        state = self.machine.state
        if state is MemberState.UNSUBSCRIBED or (
            state is MemberState.STALE and not self._is_releasing
        ):
            self._join()
        self.review()

    def enforce_rebalance(self, reason: str) -> None:
        """Do nothing: the coordinator alone decides when to assign (as in Kafka's client)."""
        _log.warning(
            "group %s: members of the consumer protocol cannot enforce a rebalance (%s)",
            self._group_id,
            reason,
        )

    # --- commits ---------------------------------------------------------------------------------

    def commits_as(self) -> GroupMetadata:
        """Return the member's present epoch."""
        if self.machine.is_member:
            return self.group
        if self.machine.state is MemberState.JOINING:
            raise RebalanceInProgressError
        raise CommitFailedError("this consumer is not a member of the group now")

    async def after_refused_commit(self, group: GroupMetadata, error: BrokerError) -> None:
        """Wait for the newest epoch if the commit had an older one."""
        code = error.error
        if code is ErrorCode.STALE_MEMBER_EPOCH:
            await self._newer_than(group)
            if not self.machine.is_member:
                raise CommitFailedError from error
            return
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            # The answer to a heartbeat says the same, and that decides what becomes of the member.
            self._beat_now()
            raise CommitFailedError from error
        if code is ErrorCode.FENCED_INSTANCE_ID:
            self._fail(error)
        raise error

    async def after_refused_fetch(self, group: GroupMetadata, error: BrokerError) -> None:
        """Wait for the newest epoch, or for the end of the membership."""
        if error.error not in _OUT_OF_DATE:
            raise error
        await self._newer_than(group)

    async def _newer_than(self, group: GroupMetadata) -> None:
        """Wait until the epoch has changed, or a heartbeat has ended otherwise."""
        if self.group != group:
            return
        self._beat_now()
        await self._answered.wait()
        if self._closed:
            raise ClosedError("the consumer is closed")
        if self.group == group:
            await sleep(self._loop, self._settings.retry_backoff_ms)

    # --- beginning and end -----------------------------------------------------------------------

    def _join(self) -> None:
        self.machine.join()
        self._fields.reset()
        self._attempts = 0
        self._beat_now()

    def _fence(self, reason: str) -> None:
        _log.info("group %s: no longer a member because %s", self._group_id, reason)
        if self._fences:
            self._pause(self._fences - 1)
        self._fences += 1
        if self.machine.fence():
            self._metrics.failed_rebalances += self._began_ms is not None
            self._lose(then_join=True)
        self._fields.reset()
        self._answered.notify()

    def _lose(self, *, then_join: bool) -> None:
        """Drop all partitions as lost; the listener is called in a poll of the user."""
        self._began_ms = None
        self._names.clear()
        self._stop_timer()
        self._owned.stop_reading()
        self._is_releasing = True
        spawn(self._release_lost(self.machine.life, then_join=then_join))

    async def _release_lost(self, life: int, *, then_join: bool) -> None:
        try:
            await self._owned.give_up(self._owned.partitions, lost=True)
        finally:
            self._is_releasing = False
        if self._closed or self.machine.life != life:
            return
        if then_join:
            self._join()
        self._here.attend()

    def _leave_for_silence(self) -> None:
        _log.warning(
            "group %s: leaving, because no poll came for max.poll.interval.ms (%d): handle fewer "
            "records at once (max.poll.records) or raise it",
            self._group_id,
            self._settings.max_poll_interval_ms,
        )
        announced = self.machine.is_announced
        self.machine.expire()
        self._answered.notify()
        self._lose(then_join=False)
        if announced:
            spawn(self._send_leave())

    def _fail(self, error: Exception) -> None:
        """End the membership for good: every poll raises ``error``."""
        if self._fatal is not None:
            return
        self._fatal = error
        self.machine.fail()
        self._answered.notify()
        self._lose(then_join=False)
        self._here.fail(error)

    async def release(self) -> None:
        """Call the listener with all partitions; heartbeats continue meanwhile."""
        lost = not self.machine.is_member
        self.machine.prepare_to_leave()
        await self._owned.give_up(self._owned.partitions, lost=lost)

    async def leave(self, reason: str) -> None:
        """Send the heartbeat that leaves; a static member keeps its partitions for a session."""
        announced = self.machine.is_announced
        _log.info("group %s: leaving because %s", self._group_id, reason)
        self.machine.left()
        self._stop_timer()
        self._names.clear()
        self._answered.notify()
        if announced:
            await self._send_leave()

    async def _send_leave(self) -> None:
        static = self._settings.group_instance_id is not None
        epoch = LEAVE_STATIC_EPOCH if static else LEAVE_EPOCH
        try:
            await self._sender.send(self._fields.leave(self.member_id, epoch))
        except (ClientError, KafkaError) as error:
            _log.debug("group %s: leaving: %s", self._group_id, error)

    def unsubscribed(self) -> None:
        """Nothing is kept of a subscription that ends."""

    def close(self) -> None:
        """Stop everything."""
        self._closed = True
        self.machine.left()
        self._stop_timer()
        self.polled.notify()
        self._answered.notify()

    # --- heartbeats ------------------------------------------------------------------------------

    def _beat_now(self) -> None:
        self._be_due()
        self._set_timer()

    def _be_due(self) -> None:
        self._next_ms = max(self._loop.now_ms(), self._not_before_ms)

    def _pause(self, attempts: int) -> None:
        """Send no heartbeat for a while."""
        settings = self._settings
        pause = backoff_ms(
            self._loop, attempts, settings.retry_backoff_ms, settings.retry_backoff_max_ms
        )
        self._next_ms = self._not_before_ms = self._loop.now_ms() + pause

    def _set_timer(self) -> None:
        """Wake up for the next heartbeat, and when the user has not polled for too long."""
        self._stop_timer()
        if self._closed or not self.machine.heartbeats:
            return
        when = float("inf")
        if self.machine.takes_part:
            when = self.last_poll_ms + self._settings.max_poll_interval_ms
            if self._here.is_polling():
                when = max(when, self._loop.now_ms() + self._interval_ms)
        if not self._in_flight:
            when = min(when, self._next_ms)
        if when == float("inf"):
            return
        self._timer = self._loop.call_at(when, self._on_timer)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        if self._closed or not self.machine.heartbeats:
            return
        now = self._loop.now_ms()
        if self._here.is_polling():
            self.last_poll_ms = now
        silent_ms = now - self.last_poll_ms
        if self.machine.takes_part and silent_ms >= self._settings.max_poll_interval_ms:
            self._leave_for_silence()
        elif not self._in_flight and now >= self._next_ms:
            spawn(self._heartbeat())
        else:
            self._set_timer()

    async def _heartbeat(self) -> None:
        machine = self.machine
        life = machine.life
        request = self._fields.request(self.member_id)
        machine.sent()
        self._in_flight = True
        self._next_ms = self._loop.now_ms() + self._interval_ms
        self._set_timer()
        began = self._loop.now_ms()
        try:
            answer = await self._sender.send(request)
        except (ClientError, KafkaError) as error:
            self._in_flight = False
            self._fields.reset()
            if self._closed or isinstance(error, ClosedError):
                return
            if machine.life == life:
                self._refused(error)
        else:
            self._in_flight = False
            if self._closed:
                return
            if machine.life == life:
                self._metrics.heartbeats.add(self._loop.now_ms() - began)
                self._metrics.last_heartbeat_ms = self._loop.now_ms()
                self._attempts = 0
                if request.member_epoch > JOIN_EPOCH:
                    self._fences = 0
                self._interval_ms = max(answer.heartbeat_interval_ms, 1)
                self._next_ms = self._loop.now_ms() + self._interval_ms
                if answer.member_id:
                    self.member_id = answer.member_id
                self._take(answer.member_epoch, assigned_partitions(answer))
        if machine.heartbeats_now and self._attempts == 0:
            self._be_due()
        self._answered.notify()
        self._set_timer()

    def _take(self, epoch: int, partitions: frozenset[TopicIdPartition] | None) -> None:
        if epoch != self.machine.epoch:
            _log.info("group %s: member %s, epoch %d", self._group_id, self.member_id, epoch)
        self.machine.on_heartbeat(epoch, partitions)
        if self.machine.state is MemberState.RECONCILING and self._began_ms is None:
            self._began_ms = self._loop.now_ms()
        if self.machine.takes_part and self._fields.subscription_changed:
            self._be_due()
        self._reconcile_soon()

    def _refused(self, error: ClientError | KafkaError) -> None:
        """Handle a heartbeat that failed."""
        code = error.error if isinstance(error, KafkaError) else None
        _log.debug("group %s: heartbeat: %s", self._group_id, error)
        # A member whose session ended while its group was deleted, or became a classic group, is
        # answered GROUP_ID_NOT_FOUND by Apache Kafka, whose consumer gives up. Joining again makes
        # a group, or says for good that it is of another kind.
        is_gone = code is ErrorCode.GROUP_ID_NOT_FOUND and self.machine.is_member
        if code in _FENCED or is_gone:
            assert code is not None
            self._fence(f"of {code.name}")
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            self._fail(FencedInstanceIdError(self._settings.group_instance_id))
        elif isinstance(error, UnsupportedVersionError):
            self._fail(_unsupported(error))
        elif is_retriable(error):
            if code in COORDINATOR_MOVED:
                self._sender.forget_coordinator()
            self._pause(self._attempts)
            self._attempts += 1
        else:
            self._fail(error)

    # --- assignments -----------------------------------------------------------------------------

    def _reconcile_soon(self) -> None:
        if self.machine.state is MemberState.RECONCILING and not self._is_reconciling:
            self._is_reconciling = True
            spawn(self._reconcile())

    async def _reconcile(self) -> None:
        """Apply assignments until the last one is applied, as far as names are known."""
        try:
            while self.machine.state is MemberState.RECONCILING and not self._closed:
                era = self.machine.era
                if not await self._apply(self.machine.target) and self.machine.era == era:
                    return
        except ClosedError:
            return
        finally:
            self._is_reconciling = False

    async def _apply(self, target: Assignment) -> bool:
        """Apply one assignment; return False if it is of topics whose names nobody knows yet."""
        machine, era = self.machine, self.machine.era
        await self._names.learn({each.topic_id for each in target.partitions})
        if machine.era != era or machine.state is not MemberState.RECONCILING:
            return False
        known = Assignment(
            target.number,
            frozenset(each for each in target.partitions if each.topic_id in self._names),
        )
        if known == machine.current:
            return False
        assigned = [
            TopicPartition(self._names[each.topic_id], each.partition)
            for each in sorted(known.partitions)
        ]
        owned = self._owned.partitions
        revoked, added = owned - frozenset(assigned), frozenset(assigned) - owned
        _log.info(
            "group %s: epoch %d: %d partitions, %d new, %d to give up",
            self._group_id,
            machine.epoch,
            len(assigned),
            len(added),
            len(revoked),
        )
        if revoked:
            await self._owned.hand_over(revoked, at_poll=self._next_poll, commit=self._here.commit)
            if machine.era != era:
                return False
        self._subscription.set_partitions(assigned)
        self._keep_topics({each.topic for each in assigned})
        self._here.assigned()
        await self._owned.tell_assigned(added, lambda: machine.era == era)
        if machine.era != era:
            return False
        machine.reconciled(known)
        if self._began_ms is not None:
            self._metrics.rebalances.add(self._loop.now_ms() - self._began_ms)
            self._metrics.last_rebalance_ms = self._loop.now_ms()
            self._began_ms = None
        self._beat_now()
        return True

    async def _next_poll(self) -> None:
        self._here.attend()
        await self.polled.wait()
        if self._closed:
            raise ClosedError("the consumer is closed")

    def _keep_topics(self, topics: set[str]) -> None:
        self._names.keep(topics)
        if self._subscription.kind is SubscriptionKind.REMOTE_PATTERN:
            self._subscription.topics = frozenset(topics)


def new_member_id(random: Callable[[], float]) -> str:
    """Return a random id in the form of Kafka's ``Uuid``: 22 characters, no leading dash."""
    while True:
        text = topic_id_to_text(TopicId(bytes(int(random() * 256) for _ in range(16))))
        if not text.startswith("-"):
            return text


def _unsupported(error: UnsupportedVersionError) -> Exception:
    if "SubscriptionPattern" in str(error):
        return error
    return UnsupportedVersionError(
        "the brokers do not know the consumer protocol of groups: "
        f"set group.protocol to classic until they are upgraded ({error})"
    )
