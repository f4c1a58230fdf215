"""Changes of a group's protocol while it has members (KIP-848, "Online migration").

An **upgrade** happens when a member of the consumer protocol joins a classic group: the classic
members become members of the consumer group with what they have, and go on to speak the classic
protocol. A **downgrade** happens when the last member of the consumer protocol goes: the classic
members form a classic group again. Kafka: ``ConsumerGroup.fromClassicGroup``,
``ClassicGroup.fromConsumerGroup``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from millstream.coordinator.group.classic_group import ClassicGroup
from millstream.coordinator.group.consumer import records as make
from millstream.coordinator.group.consumer.draft import Draft
from millstream.coordinator.group.consumer.member import (
    ClassicMembership,
    ConsumerMember,
    partitions_of,
)
from millstream.coordinator.group.consumer.reconciliation import Owned
from millstream.coordinator.group.member import Member
from millstream.coordinator.group.modern.topics import TopicsImage
from millstream.coordinator.group.records import group_tombstone
from millstream.coordinator.group.states import GroupState
from millstream.coordinator.group.subscription import CONSUMER_PROTOCOL_TYPE
from millstream.coordinator.result import Instant
from millstream.model.errors import ErrorCode, KafkaError, ProtocolError
from millstream.model.topic import TopicId
from millstream.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)

_VERSION_BYTES: Final = 2
_NEWEST: Final = 3


def metadata_version(metadata: bytes) -> int:
    """Return the version of a consumer's metadata, no newer than what is known here."""
    if len(metadata) < _VERSION_BYTES:
        raise ProtocolError("a subscription without a version")
    version = int.from_bytes(metadata[:_VERSION_BYTES], "big", signed=True)
    if version < 0:
        raise ProtocolError("a subscription with a negative version")
    return min(version, _NEWEST)


def parse_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Return a consumer's subscription; ProtocolError if it is not one."""
    version = metadata_version(metadata)
    body = memoryview(metadata)[_VERSION_BYTES:]
    return ConsumerProtocolSubscription.decode_body(version, body)


def parse_assignment(assignment: bytes) -> ConsumerProtocolAssignment:
    """Return what the leader of a classic group gave a member; nothing for an empty text."""
    if not assignment:
        return ConsumerProtocolAssignment(assigned_partitions=[])
    version = metadata_version(assignment)
    body = memoryview(assignment)[_VERSION_BYTES:]
    return ConsumerProtocolAssignment.decode_body(version, body)


def encode_assignment(member: ConsumerMember, topics: TopicsImage) -> bytes:
    """Return what a classic member has, in the version of its metadata."""
    assert member.classic is not None
    version = metadata_version(member.classic.protocols[0][1])
    found = []
    for topic_id, partitions in partitions_of(member.assigned).items():
        topic = topics.topic_by_id(topic_id)
        if topic is not None:
            found.append(TopicPartition(topic=topic.name, partitions=sorted(partitions)))
    found.sort(key=lambda each: each.topic)
    message = ConsumerProtocolAssignment(assigned_partitions=found)
    return version.to_bytes(_VERSION_BYTES, "big") + message.encode_body(version)


def owned_by_id(owned: Iterable[TopicPartition], topics: TopicsImage) -> Owned:
    """Return the partitions that a classic member says it has."""
    found = []
    for each in owned:
        topic = topics.topic(each.topic)
        if topic is not None:
            found.append((topic.topic_id, tuple(each.partitions)))
    return found


# Upgrade


def refuse_upgrade(
    group: ClassicGroup, *, allowed: bool, max_size: int, topics: TopicsImage
) -> None:
    """Raise GROUP_ID_NOT_FOUND unless the group may become a consumer group."""
    reason = None
    if not allowed:
        reason = "online upgrade is disabled"
    elif not group.is_consumer_group:
        reason = "the group does not use the consumer embedded protocol"
    elif len(group.members) > max_size:
        reason = "the group size exceeds the consumer group maximum size"
    if reason is not None:
        raise _cannot_upgrade(group, reason)


def _cannot_upgrade(group: ClassicGroup, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}.",
    )


def upgrade(group: ClassicGroup, draft: Draft, topics: TopicsImage) -> None:
    """Add the records that make a consumer group of a classic group; GROUP_ID_NOT_FOUND if its
    members' metadata or assignments cannot be read, or would lose data of an assignor of theirs.
    """
    try:
        found = [_read(group, member, topics) for member in group.members.values()]
    except ProtocolError as error:
        raise _cannot_upgrade(group, "the embedded consumer protocol is malformed") from error
    _add_claims(found)
    members = [_upgraded(group, each) for each in found]
    group_id, epoch = group.group_id, group.generation_id
    draft.add_foreign(group_tombstone(group_id))
    draft.add(
        *(make.member_record(group_id, member) for member in members),
        make.epoch_record(group_id, epoch, 0),
        *(
            make.target_record(group_id, member.member_id, partitions_of(member.assigned))
            for member in members
        ),
        make.target_epoch_record(group_id, epoch, 0),
        *(make.current_record(group_id, member) for member in members),
    )


@dataclass(slots=True)
class _Found:
    """A classic member; ``partitions`` are those that it is assigned, ``claims`` those that it had
    when it joined.
    """

    member: Member
    subscription: ConsumerProtocolSubscription
    partitions: set[tuple[TopicId, int]]
    claims: set[tuple[TopicId, int]]


def _read(group: ClassicGroup, member: Member, topics: TopicsImage) -> _Found:
    for metadata in member.protocols.values():
        metadata_version(metadata)
    name = group.protocol_name if group.protocol_name in member.protocols else None
    subscription = parse_subscription(member.protocols[name or next(iter(member.protocols))])
    assignment = parse_assignment(member.assignment)
    if assignment.user_data:
        raise _cannot_upgrade(
            group,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch "
            "to a default assignor before re-attempting the upgrade",
        )
    return _Found(
        member,
        subscription,
        _places(assignment.assigned_partitions, topics),
        _places(subscription.owned_partitions, topics),
    )


def _places(partitions: Iterable[TopicPartition], topics: TopicsImage) -> set[tuple[TopicId, int]]:
    return {
        (topic_id, partition)
        for topic_id, numbers in owned_by_id(partitions, topics)
        for partition in numbers
    }


def _add_claims(found: list[_Found]) -> None:
    """Let members have what they said they had when they joined, unless it is assigned.

    A cooperative member goes on with a partition until it hears that it is not its own any more;
    until then no other member may have it. Kafka looks at assignments alone. Of two members that
    say so, the one with the newer generation is believed.
    """
    taken = set[tuple[TopicId, int]]().union(*(each.partitions for each in found))
    for each in sorted(found, key=lambda one: -one.subscription.generation_id):
        claims = each.claims - taken
        each.partitions |= claims
        taken |= claims


def _upgraded(group: ClassicGroup, found: _Found) -> ConsumerMember:
    epoch, member = group.generation_id, found.member
    assigned: dict[TopicId, dict[int, int]] = {}
    for topic_id, partition in sorted(found.partitions):
        assigned.setdefault(topic_id, {})[partition] = epoch
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=found.subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        subscribed_topic_names=frozenset(found.subscription.topics),
        regex="",
        classic=ClassicMembership(member.session_timeout_ms, tuple(member.protocols.items())),
        member_epoch=epoch,
        previous_member_epoch=epoch,
        assigned=assigned,
    )


# Downgrade


def downgraded(
    group_id: str,
    generation_id: int,
    members: Iterable[ConsumerMember],
    topics: TopicsImage,
    now: Instant,
) -> ClassicGroup:
    """Return the classic group of classic members, STABLE, with what they have."""
    group = ClassicGroup(group_id, state_timestamp_ms=now.wall_ms)
    for member in members:
        assert member.classic is not None, "only classic members stay"
        group.add(
            Member(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.classic.session_timeout_ms,
                protocol_type=CONSUMER_PROTOCOL_TYPE,
                protocols=dict(member.classic.protocols),
                assignment=encode_assignment(member, topics),
            )
        )
    group.state = GroupState.STABLE
    group.generation_id = generation_id
    group.protocol_name = group.select_protocol()
    group.compute_subscribed_topics()
    return group
