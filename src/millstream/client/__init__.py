"""A client of any Kafka-protocol broker: producer, consumer and admin.

``Producer``, ``Consumer`` and ``Admin`` here are for programs with threads; `millstream.client.aio`
has the same for asyncio. Both drive one core (`core/`), which is independent of sockets, clocks and
threads. Names are imported at first use.

`cluster.Cluster` with its `fetch.Fetcher` is used by Spark's executors for reading, and for nothing
else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.client.lazy import names_of

if TYPE_CHECKING:
    from millstream.client.admin import Admin as Admin
    from millstream.client.consumer import Consumer as Consumer
    from millstream.client.core.values import AcknowledgeType as AcknowledgeType
    from millstream.client.core.values import ConsumerRecord as ConsumerRecord
    from millstream.client.core.values import GroupMetadata as GroupMetadata
    from millstream.client.core.values import OffsetAndMetadata as OffsetAndMetadata
    from millstream.client.core.values import OffsetAndTimestamp as OffsetAndTimestamp
    from millstream.client.core.values import RecordMetadata as RecordMetadata
    from millstream.client.core.values import ShareRecord as ShareRecord
    from millstream.client.core.values import SubscriptionPattern as SubscriptionPattern
    from millstream.client.core.values import TopicPartition as TopicPartition
    from millstream.client.producer import Producer as Producer
    from millstream.client.producer import RecordFuture as RecordFuture
    from millstream.client.producer import RowsFuture as RowsFuture
    from millstream.client.share_consumer import ShareConsumer as ShareConsumer

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
