"""The messages between members of a consumer group, embedded in JoinGroup and SyncGroup.

Both kinds are ``version i16 | message``; a newer version is read as the newest known one, because
versions only append fields (Kafka: ``ConsumerProtocol``).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from millstream.client.core.consumer.assignors.assignor import GroupMember
from millstream.model.errors import ProtocolError
from millstream.model.topic import TopicPartition
from millstream.protocol.messages import consumer_protocol
from millstream.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

PROTOCOL_TYPE: Final = "consumer"

_VERSION: Final = struct.Struct(">h")
_NEWEST: Final = 3


def encode_subscription(member: GroupMember) -> bytes:
    """Encode a member's subscription for one assignor; topics and partitions in order."""
    message = ConsumerProtocolSubscription(
        topics=sorted(member.topics),
        user_data=member.user_data,
        owned_partitions=_by_topic(sorted(member.owned)),
        generation_id=member.generation,
        rack_id=member.rack_id,
    )
    return _VERSION.pack(_NEWEST) + message.encode_body(_NEWEST)


def decode_subscription(
    data: bytes, *, member_id: str, group_instance_id: str | None
) -> GroupMember:
    """Decode a subscription of any client; ProtocolError if it is invalid."""
    version, body = _split(data)
    message = ConsumerProtocolSubscription.decode_body(version, body)
    return GroupMember(
        member_id=member_id,
        group_instance_id=group_instance_id,
        topics=frozenset(message.topics),
        owned=_flat(message.owned_partitions),
        generation=message.generation_id,
        rack_id=message.rack_id or None,
        user_data=None if message.user_data is None else bytes(message.user_data),
    )


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode a member's assignment."""
    message = ConsumerProtocolAssignment(assigned_partitions=_by_topic(partitions), user_data=None)
    return _VERSION.pack(_NEWEST) + message.encode_body(_NEWEST)


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Decode an assignment of any client; ProtocolError if it is invalid.

    Empty bytes, which a coordinator returns to members without an assignment, mean no partitions.
    """
    if not data:
        return ()
    version, body = _split(data)
    return _flat(ConsumerProtocolAssignment.decode_body(version, body).assigned_partitions)


def _split(data: bytes) -> tuple[int, memoryview]:
    if len(data) < _VERSION.size:
        raise ProtocolError(f"{len(data)} bytes are not a message between members of a group")
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        raise ProtocolError(f"version {version} of a message between members of a group")
    return min(version, _NEWEST), memoryview(data)[_VERSION.size :]


def _by_topic(partitions: Iterable[TopicPartition]) -> list[consumer_protocol.TopicPartition]:
    topics: dict[str, list[int]] = {}
    for topic_partition in partitions:
        topics.setdefault(topic_partition.topic, []).append(topic_partition.partition)
    return [
        consumer_protocol.TopicPartition(topic=topic, partitions=numbers)
        for topic, numbers in topics.items()
    ]


def _flat(topics: Iterable[consumer_protocol.TopicPartition]) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(each.topic, number) for each in topics for number in each.partitions
    )
