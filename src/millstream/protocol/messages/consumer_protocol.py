"""What members of a "consumer" group of the classic protocol tell each other.

On the wire it is preceded by an int16 with the version, which the caller writes and reads.
"""

from __future__ import annotations

from millstream.protocol.fields import array, bytes_, int32, string
from millstream.protocol.message import Message
from millstream.protocol.schema import Struct


class TopicPartition(Struct):
    """One of ``ConsumerProtocolSubscription.owned_partitions``."""

    topic: str = string()
    partitions: list[int] = array(int32())


class ConsumerProtocolSubscription(Message, versions="0-3", flexible="none"):
    """A member's subscription: its topics, and the partitions it owns."""

    topics: list[str] = array(string())
    user_data: bytes | None = bytes_(nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = array(
        TopicPartition, "1+", factory=list, ignorable=True
    )
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", nullable="0+", default=None, ignorable=True)


class ConsumerProtocolAssignment(Message, versions="0-3", flexible="none"):
    """What the leader of the group gives a member."""

    assigned_partitions: list[TopicPartition] = array(TopicPartition)
    user_data: bytes | None = bytes_(nullable="0+", default=None)
