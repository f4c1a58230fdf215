"""What members of the classic protocol say of themselves, and are assigned, as bytes."""

from __future__ import annotations

from millstream.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)


def subscription(
    names: list[str], owned: dict[str, list[int]], version: int, generation_id: int
) -> bytes:
    message = ConsumerProtocolSubscription(
        topics=names,
        owned_partitions=[
            TopicPartition(topic=name, partitions=parts) for name, parts in owned.items()
        ]
        if version >= 1
        else [],
        generation_id=generation_id if version >= 2 else -1,
        rack_id="r1" if version >= 3 else None,
    )
    return version.to_bytes(2, "big") + message.encode_body(version)


def assignment(parts: list[int], user_data: bytes | None) -> bytes:
    message = ConsumerProtocolAssignment(
        assigned_partitions=[TopicPartition(topic="t", partitions=parts)], user_data=user_data
    )
    return b"\x00\x01" + message.encode_body(1)
