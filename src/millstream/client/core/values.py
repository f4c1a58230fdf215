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
from millstream.client.core.share.acknowledgements import AcknowledgeType
from millstream.client.core.share.record import ShareRecord
from millstream.model.topic import TopicPartition

__all__ = [
    "AcknowledgeType",
    "ConsumerRecord",
    "GroupMetadata",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "RecordMetadata",
    "ShareRecord",
    "SubscriptionPattern",
    "TopicPartition",
]
