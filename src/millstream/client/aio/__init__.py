"""The asyncio API of the client: the same core on the application's own event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.client.lazy import names_of

if TYPE_CHECKING:
    from millstream.client.aio.admin import Admin as Admin
    from millstream.client.aio.consumer import Consumer as Consumer
    from millstream.client.aio.producer import Producer as Producer
    from millstream.client.aio.producer import RecordFuture as RecordFuture
    from millstream.client.aio.producer import RowsFuture as RowsFuture
    from millstream.client.aio.share_consumer import ShareConsumer as ShareConsumer
    from millstream.client.core.values import AcknowledgeType as AcknowledgeType
    from millstream.client.core.values import ConsumerRecord as ConsumerRecord
    from millstream.client.core.values import GroupMetadata as GroupMetadata
    from millstream.client.core.values import OffsetAndMetadata as OffsetAndMetadata
    from millstream.client.core.values import OffsetAndTimestamp as OffsetAndTimestamp
    from millstream.client.core.values import RecordMetadata as RecordMetadata
    from millstream.client.core.values import ShareRecord as ShareRecord
    from millstream.client.core.values import SubscriptionPattern as SubscriptionPattern
    from millstream.client.core.values import TopicPartition as TopicPartition

__getattr__ = names_of(
    __name__,
    {
        "Admin": "admin",
        "Consumer": "consumer",
        "Producer": "producer",
        "RecordFuture": "producer",
        "RowsFuture": "producer",
        "ShareConsumer": "share_consumer",
    },
)
