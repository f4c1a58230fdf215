"""The topics that the members of a "consumer" group subscribe to.

Each member's metadata is an int16 version and a ConsumerProtocolSubscription,
of which version 0 is the prefix of every other, so it is read as version 0 (Kafka:
``ClassicGroup.computeSubscribedTopics``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from millstream.model.errors import ProtocolError
from millstream.protocol.messages.consumer_protocol import ConsumerProtocolSubscription

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
_VERSION_BYTES: Final = 2


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return every topic in the members' metadata; None if one of them cannot be parsed."""
    topics: set[str] = set()
    for metadata in subscriptions:
        if len(metadata) < _VERSION_BYTES:
            return None
        try:
            subscription = ConsumerProtocolSubscription.decode_body(
                0, memoryview(metadata)[_VERSION_BYTES:]
            )
        except ProtocolError:
            return None
        topics.update(subscription.topics)
    return frozenset(topics)
