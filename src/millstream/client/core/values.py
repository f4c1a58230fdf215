"""The values that producers and consumers of both APIs take and return."""

from __future__ import annotations

from millstream.client.core.consumer.record import (
    ConsumerRecord,
    GroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    SubscriptionPattern,
)
from millstream.client.core.producer.batch import RecordMetadata
from millstream.model.topic import TopicPartition

__all__ = [
    "ConsumerRecord",
    "GroupMetadata",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "RecordMetadata",
    "SubscriptionPattern",
    "TopicPartition",
]
