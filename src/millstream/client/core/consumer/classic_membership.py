"""Membership by the classic protocol: ``group_member`` joins, ``group_assignment`` assigns."""

from __future__ import annotations

from millstream.client.core.consumer.errors import CommitFailedError, RebalanceInProgressError
from millstream.client.core.consumer.group_assignment import GroupAssignment
from millstream.client.core.consumer.group_member import GroupMember
from millstream.client.core.consumer.group_requests import GroupRequests
from millstream.client.core.consumer.membership import MemberSite
from millstream.client.core.consumer.metrics import CoordinatorMetrics
from millstream.client.core.consumer.owned_partitions import OwnedPartitions
from millstream.client.core.consumer.record import GroupMetadata
from millstream.client.core.consumer.settings import ConsumerSettings
from millstream.client.core.consumer.subscription import Subscription
from millstream.client.core.consumer.topic_pattern import match_pattern
from millstream.client.core.consumer.user_calls import RebalanceListener
from millstream.client.core.metadata import MetadataView
from millstream.client.core.network import Network
from millstream.client.errors import BrokerError
from millstream.model.errors import ErrorCode


class ClassicMembership:
    """Implements ``Membership``."""

    def __init__(
        self,
        network: Network,
        metadata: MetadataView,
        settings: ConsumerSettings,
        subscription: Subscription,
        metrics: CoordinatorMetrics,
    ) -> None:
        self._metadata = metadata
        self._settings = settings
        self._subscription = subscription
        self._owned = OwnedPartitions(subscription)
        self.assignment = GroupAssignment(network, metadata, settings, subscription, self._owned)
        self.member = GroupMember(
            network.loop, settings, GroupRequests(network, settings), self.assignment, metrics
        )
        self._site: MemberSite | None = None

    @property
    def last_poll_ms(self) -> float:
        """When the user polled last."""
        return self.member.last_poll_ms

    @last_poll_ms.setter
    def last_poll_ms(self, now_ms: float) -> None:
        self.member.last_poll_ms = now_ms

    @property
    def group(self) -> GroupMetadata:
        """The group metadata for transactions."""
        return self.member.group

    @property
    def can_commit(self) -> bool:
        """True in a generation, not between two."""
        return self.member.stable_group is not None

    @property
    def fetches_offsets_as(self) -> GroupMetadata | None:
        """None: offsets are fetched without an identity."""
        return None

    @property
    def wanted_topics(self) -> frozenset[str]:
        """The member's own topics, and as the leader those of all members."""
        return self.assignment.wanted_topics

    def connect(self, site: MemberSite) -> None:
        """Connect the membership to its consumer."""
        self._site = site
        member, assignment = self.member, self.assignment
        member.on_attention = site.attend
        member.on_failure = site.fail
        member.is_polling = site.is_polling
        self._owned.run = site.run
        assignment.on_assigned = site.assigned
        assignment.commit = site.commit
        assignment.at_poll = self._next_poll
        assignment.is_current = lambda number: member.group.generation_id == number

    async def _next_poll(self) -> None:
        assert self._site is not None
        self._site.attend()
        await self.member.polled.wait()

    def subscribed(self, listener: RebalanceListener | None) -> None:
        """Rejoin if the topics have changed."""
        self._owned.listen(listener)
        self.review()

    def review(self) -> None:
        """Rejoin if the topics, or as the leader their partitions, have changed."""
        member = self.member
        match_pattern(self._metadata, self._settings, self._subscription)
        reason = self.assignment.outdated
        if reason is not None and not member.is_rebalancing:
            member.request_rejoin(reason)
        elif member.rejoin_needed and not member.is_rebalancing:
            assert self._site is not None
            self._site.attend()

    def poll(self) -> None:
        """Begin a rebalance if one is due."""
        self.review()
        self.member.poll()

    def enforce_rebalance(self, reason: str) -> None:
        """Rejoin at the next poll."""
        self.member.request_rejoin(reason)

    def commits_as(self) -> GroupMetadata:
        """Return the generation to commit with."""
        group = self.member.stable_group
        if group is not None:
            return group
        if self.member.is_rebalancing:
            raise RebalanceInProgressError
        raise CommitFailedError("this consumer is not a member of the group now")

    async def after_refused_commit(self, group: GroupMetadata, error: BrokerError) -> None:
        """Rejoin where the generation has ended."""
        member, code = self.member, error.error
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            member.request_rejoin("a commit was refused: the group is rebalancing")
            raise RebalanceInProgressError from error
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            if member.group == group:
                forget = code is ErrorCode.UNKNOWN_MEMBER_ID
                member.reset(f"a commit was refused with {code.name}", forget_member=forget)
            raise CommitFailedError from error
        if code is ErrorCode.FENCED_INSTANCE_ID:
            member.fail(error)
        raise error

    async def after_refused_fetch(self, group: GroupMetadata, error: BrokerError) -> None:
        """Offsets are fetched without an identity: nothing of it can be out of date."""
        raise error

    async def release(self) -> None:
        """Call the listener with all partitions."""
        await self._owned.give_up(self._owned.partitions, lost=not self.can_commit)

    async def leave(self, reason: str) -> None:
        """Send LeaveGroup, unless the member is static."""
        await self.member.leave(reason)

    def unsubscribed(self) -> None:
        """Forget the topics and the generation."""
        self.assignment.reset()

    def close(self) -> None:
        """Stop everything."""
        self.member.close()
