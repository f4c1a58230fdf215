"""The partitions of a group member during a rebalance (KIP-429).

Eager: commit, revoke everything, join, get an assignment. Cooperative: keep everything while
joining, then revoke what is not in the new assignment, and rejoin so that others can get it. A
group is eager unless all assignors of the member support the cooperative protocol. Kafka:
``ConsumerCoordinator``.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from millstream.client.core.consumer.assignors.assignor import (
    Assignor,
    GroupMember,
    RebalanceProtocol,
    TopicRacks,
)
from millstream.client.core.consumer.group_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from millstream.client.core.consumer.group_requests import Joined
from millstream.client.core.consumer.owned_partitions import OwnedPartitions
from millstream.client.core.consumer.settings import (
    ConsumerSettings,
    make_assignors,
    rebalance_protocol,
)
from millstream.client.core.consumer.subscription import Subscription, SubscriptionKind
from millstream.client.core.consumer.topic_pattern import match_pattern
from millstream.client.core.metadata import MetadataView
from millstream.client.core.network import Network
from millstream.client.core.waiting import within
from millstream.client.errors import ClientError
from millstream.model.errors import KafkaError
from millstream.model.topic import TopicPartition

_COOPERATIVE: Final = RebalanceProtocol.COOPERATIVE

_log = logging.getLogger("millstream.client.consumer")


class GroupAssignment:
    """The partitions' side of a membership.

    ``commit`` commits the positions of some partitions if commits are automatic, ``at_poll`` waits
    for the user's next poll, ``is_current`` tells whether a generation is still the member's.
    """

    def __init__(
        self,
        network: Network,
        metadata: MetadataView,
        settings: ConsumerSettings,
        subscription: Subscription,
        owned: OwnedPartitions,
    ) -> None:
        self.is_leader = False
        self.on_assigned: Callable[[], None] = lambda: None
        self.commit: Callable[[Iterable[TopicPartition]], Awaitable[None]] = _do_nothing
        self.at_poll: Callable[[], Awaitable[None]] = _nothing
        self.is_current: Callable[[int], bool] = lambda generation: True
        self._network = network
        self._metadata = metadata
        self._settings = settings
        self._subscription = subscription
        self._assignors = make_assignors(settings.partition_assignment_strategy)
        self._protocol = rebalance_protocol(self._assignors)
        self._generation = -1
        self._joined_topics: frozenset[str] | None = None
        self._group_topics: frozenset[str] = frozenset()
        self._divided: TopicRacks | None = None
        self._owned = owned

    def stop_reading(self) -> None:
        """Return no more records until partitions are assigned again."""
        self._owned.stop_reading()

    # --- before joining --------------------------------------------------------------------------

    async def prepare(self, *, lost: bool) -> None:
        """Commit, call the listener, and revoke the partitions."""
        self.is_leader = False
        owned = list(self._subscription.partitions)
        if lost:
            await self._owned.give_up(owned, lost=True)
        elif self._protocol is _COOPERATIVE:
            gone = [
                topic_partition
                for topic_partition in owned
                if not self._subscription.matches(topic_partition.topic)
            ]
            self._owned.stop_reading(gone)
            await self.commit(owned)
            await self._owned.give_up(gone)
        else:
            self._owned.stop_reading()
            await self.commit(owned)
            await self._owned.give_up(owned)

    async def describe(self) -> list[tuple[str, bytes]]:
        """Match a pattern against the present topics, then return this member's subscription and
        owned partitions.
        """
        subscription = self._subscription
        if subscription.kind is SubscriptionKind.PATTERN:
            await self._metadata.request_update()
            match_pattern(self._metadata, self._settings, subscription)
        self._joined_topics = subscription.topics
        owned = () if self._protocol is not _COOPERATIVE else tuple(subscription.partitions)
        return [
            (
                assignor.name,
                encode_subscription(
                    GroupMember(
                        member_id="",
                        topics=subscription.topics,
                        owned=owned,
                        generation=self._generation,
                        rack_id=self._settings.client_rack or None,
                        user_data=assignor.user_data(subscription.topics),
                    )
                ),
            )
            for assignor in self._assignors
        ]

    # --- the leader ------------------------------------------------------------------------------

    async def divide(self, joined: Joined) -> dict[str, bytes]:
        """Assign the partitions of all members' topics with the chosen assignor."""
        assignor = self._assignor(joined.protocol_name)
        members = [
            decode_subscription(
                each.subscription,
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
            )
            for each in joined.members
        ]
        self._group_topics = frozenset(topic for each in members for topic in each.topics)
        await self._learn(self._group_topics)
        self.is_leader = True
        self._divided = self._topic_racks()
        if joined.skip_assignment:
            return {}
        assignments = assignor.assign(self._divided, members)
        _log.info("group divided by %s: %s", assignor.name, assignments)
        return {
            member_id: encode_assignment(topic_partitions)
            for member_id, topic_partitions in assignments.items()
        }

    async def _learn(self, topics: frozenset[str]) -> None:
        """Get metadata of all topics; one that is still unknown after an update does not exist."""
        missing = [topic for topic in topics if self._metadata.known(topic) is None]
        self._metadata.want(topics)
        if missing:
            update = self._metadata.request_update()
            try:
                await within(
                    self._network.loop,
                    update,
                    self._settings.request_timeout_ms,
                    "metadata",
                    where=self._network.whereabouts,
                )
            except (ClientError, KafkaError) as error:
                _log.warning("dividing without metadata of %s: %s", missing, error)

    def _topic_racks(self) -> TopicRacks:
        brokers = self._network.brokers
        layout: dict[str, list[frozenset[str]]] = {}
        for name in sorted(self._group_topics):
            topic = self._metadata.known(name)
            if topic is None:
                continue
            layout[name] = [
                frozenset(
                    rack
                    for replica in each.replicas
                    if replica in brokers and (rack := brokers[replica].rack)
                )
                for each in topic.partitions
            ]
        return layout

    @property
    def outdated(self) -> str | None:
        """Return the reason why the group should rebalance: other topics, or other partitions of
        them.
        """
        if self._joined_topics is not None and self._joined_topics != self._subscription.topics:
            return "the subscription has changed"
        if not self.is_leader or self._divided is None:
            return None
        now = self._topic_racks()
        if self._settings.client_rack:
            changed = now != self._divided
        else:
            counts = {name: len(each) for name, each in now.items()}
            changed = counts != {name: len(each) for name, each in self._divided.items()}
        return "topics of the group have changed" if changed else None

    @property
    def wanted_topics(self) -> frozenset[str]:
        """Topics to keep metadata of: the member's own, and as the leader those of all members."""
        own = self._subscription.topics | {
            topic_partition.topic for topic_partition in self._subscription.partitions
        }
        return own | self._group_topics if self.is_leader else own

    # --- after joining ---------------------------------------------------------------------------

    async def take(self, assignor: str, assignment: bytes, generation: int) -> bool:
        """Revoke partitions that are not in the assignment, then add the new ones."""
        assigned = decode_assignment(assignment)
        subscription = self._subscription
        strange = [
            topic_partition
            for topic_partition in assigned
            if not subscription.matches(topic_partition.topic)
        ]
        if strange:
            _log.info("assigned %s, which is not subscribed to any more", strange)
            return True
        if subscription.kind is SubscriptionKind.PATTERN:
            # The leader may know a topic that this member does not know yet: it is part of the
            # assignment.
            subscription.topics |= {topic_partition.topic for topic_partition in assigned}
            self._joined_topics = subscription.topics
        owned = frozenset(subscription.partitions)
        revoked = owned - frozenset(assigned)
        if revoked:
            await self._owned.hand_over(revoked, at_poll=self.at_poll, commit=self.commit)
        self._generation = generation
        self._assignor(assignor).on_assignment(assigned, generation)
        added = frozenset(assigned) - subscription.partitions.keys()
        subscription.set_partitions(assigned)
        self._metadata.want(self.wanted_topics)
        self.on_assigned()
        await self._owned.tell_assigned(added, lambda: self.is_current(generation))
        return bool(revoked) and self._protocol is _COOPERATIVE

    def reset(self) -> None:
        """Reset after the end of the subscription."""
        self._joined_topics = None
        self._group_topics = frozenset()
        self._divided = None
        self._generation = -1
        self.is_leader = False

    def _assignor(self, name: str) -> Assignor:
        for assignor in self._assignors:
            if assignor.name == name:
                return assignor
        raise ClientError(f"the group chose the assignor {name!r}, which this member did not offer")


async def _do_nothing(topic_partitions: Iterable[TopicPartition]) -> None:
    return None


async def _nothing() -> None:
    return None
