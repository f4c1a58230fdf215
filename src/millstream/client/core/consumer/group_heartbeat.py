"""ConsumerGroupHeartbeat 0 to 1, as a member sends it.

The first heartbeat, and every one after an error, says everything; others say what has changed
since the one before (Kafka: ``ConsumerHeartbeatRequestManager.HeartbeatState``). Version 0 has no
subscription by expression.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from millstream.client.core.consumer.member_machine import (
    Assignment,
    MemberMachine,
    TopicIdPartition,
)
from millstream.client.core.consumer.settings import ConsumerSettings
from millstream.client.core.consumer.subscription import Subscription, SubscriptionKind
from millstream.client.core.network import CoordinatorType, Network
from millstream.client.errors import BrokerError, UnsupportedVersionError
from millstream.model.errors import ErrorCode
from millstream.model.topic import TopicId
from millstream.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

_FIRST_WITH_EXPRESSION: Final = 1


@dataclass(frozen=True, slots=True)
class _Sent:
    """What the last heartbeat said, by now."""

    topics: frozenset[str]
    expression: str | None
    owned: Assignment


class HeartbeatFields:
    """Builds the heartbeats of one member."""

    def __init__(
        self, settings: ConsumerSettings, subscription: Subscription, machine: MemberMachine
    ) -> None:
        assert settings.group_id is not None
        self._group_id = settings.group_id
        self._settings = settings
        self._subscription = subscription
        self._machine = machine
        self._sent: _Sent | None = None

    def reset(self) -> None:
        """Say everything in the next heartbeat."""
        self._sent = None

    @property
    def subscription_changed(self) -> bool:
        """True if the coordinator has not heard of the present subscription."""
        sent, now = self._sent, self._now()
        return sent is None or (sent.topics, sent.expression) != (now.topics, now.expression)

    def request(self, member_id: str) -> ConsumerGroupHeartbeatRequest:
        """Return the next heartbeat, which is taken as sent."""
        settings, machine = self._settings, self._machine
        before, now = self._sent, self._now()
        self._sent = now
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=member_id,
            member_epoch=machine.epoch,
            instance_id=settings.group_instance_id,
        )
        if before is None:
            request.rack_id = settings.client_rack or None
            request.rebalance_timeout_ms = settings.max_poll_interval_ms
            request.server_assignor = settings.group_remote_assignor
        if before is None or before.topics != now.topics:
            request.subscribed_topic_names = sorted(now.topics)
        if before is None or before.expression != now.expression:
            # An empty expression takes an earlier one back; a new member has none.
            unset = None if before is None and machine.epoch == 0 else ""
            request.subscribed_topic_regex = unset if now.expression is None else now.expression
        if before is None or before.owned != now.owned:
            request.topic_partitions = _by_topic(now.owned)
        return request

    def leave(self, member_id: str, epoch: int) -> ConsumerGroupHeartbeatRequest:
        """Return the heartbeat that leaves the group with −1 or −2."""
        self._sent = None
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=self._settings.group_instance_id,
        )

    def _now(self) -> _Sent:
        subscription = self._subscription
        remote = subscription.kind is SubscriptionKind.REMOTE_PATTERN
        return _Sent(
            frozenset() if remote else subscription.topics,
            subscription.expression if remote else None,
            self._machine.current,
        )


class HeartbeatSender:
    """Sends heartbeats to the coordinator of one group."""

    def __init__(self, network: Network, group_id: str) -> None:
        self._network = network
        self._group_id = group_id

    def forget_coordinator(self) -> None:
        """Look up the coordinator again before the next request."""
        self._network.forget_coordinator(self._group_id, CoordinatorType.GROUP)

    async def send(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat; BrokerError with the coordinator's error.

        UnsupportedVersionError if the brokers do not know the protocol, or version 0 of it only and
        the subscription is an expression.
        """
        node_id = await self._network.coordinator(self._group_id, CoordinatorType.GROUP)
        if request.subscribed_topic_regex == "":
            version = await self._network.version_for(node_id, ConsumerGroupHeartbeatRequest)
            if version < _FIRST_WITH_EXPRESSION:
                request.subscribed_topic_regex = None
        elif request.subscribed_topic_regex is not None:
            version = await self._network.version_for(node_id, ConsumerGroupHeartbeatRequest)
            if version < _FIRST_WITH_EXPRESSION:
                raise UnsupportedVersionError(
                    "the brokers do not know subscriptions by SubscriptionPattern: "
                    "subscribe to topics, or with a compiled pattern of Python"
                )
        answer = await self._network.send_to_coordinator(
            self._group_id, CoordinatorType.GROUP, request
        )
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        if answer.error_code:
            raise BrokerError(
                ErrorCode.of(answer.error_code),
                answer.error_message or f"heartbeat of group {self._group_id!r}",
            )
        return answer


def assigned_partitions(
    answer: ConsumerGroupHeartbeatResponse,
) -> frozenset[TopicIdPartition] | None:
    """Return the assignment in an answer, None if it is unchanged."""
    if answer.assignment is None:
        return None
    return frozenset(
        TopicIdPartition(each.topic_id, number)
        for each in answer.assignment.topic_partitions
        for number in each.partitions
    )


def _by_topic(assignment: Assignment) -> list[TopicPartitions]:
    topics: dict[TopicId, list[int]] = {}
    for topic_id, partition in sorted(assignment.partitions):
        topics.setdefault(topic_id, []).append(partition)
    return [
        TopicPartitions(topic_id=topic_id, partitions=numbers)
        for topic_id, numbers in topics.items()
    ]
