"""A client of any Kafka-protocol broker: producer, consumer and admin.

``Producer``, ``Consumer`` and ``Admin`` here are for programs with threads; `millstream.client.aio`
has the same for asyncio. Both drive one core (`core/`), which knows no socket, clock or thread.
Names load when they are first used, so that a tool pays only for what it needs.

Beside them stands a plain blocking client without a thread, used by one thread at a time: Spark's
executors and some tools ask one request after the other through `cluster.Cluster`. It shares the
sans-IO side of a connection (`conversation`), values and settings' addresses with the others.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from millstream.client.admin import Admin as Admin
    from millstream.client.consumer import Consumer as Consumer
    from millstream.client.core.consumer.record import ConsumerRecord as ConsumerRecord
    from millstream.client.core.consumer.record import OffsetAndMetadata as OffsetAndMetadata
    from millstream.client.core.consumer.record import OffsetAndTimestamp as OffsetAndTimestamp
    from millstream.client.core.producer.batch import RecordMetadata as RecordMetadata
    from millstream.client.producer import Producer as Producer
    from millstream.client.producer import RecordFuture as RecordFuture
    from millstream.model.topic import TopicPartition as TopicPartition

_HOMES: Final = {
    "Admin": "millstream.client.admin",
    "Consumer": "millstream.client.consumer",
    "ConsumerRecord": "millstream.client.core.consumer.record",
    "OffsetAndMetadata": "millstream.client.core.consumer.record",
    "OffsetAndTimestamp": "millstream.client.core.consumer.record",
    "Producer": "millstream.client.producer",
    "RecordFuture": "millstream.client.producer",
    "RecordMetadata": "millstream.client.core.producer.batch",
    "TopicPartition": "millstream.model.topic",
}

__all__ = [
    "Consumer",
    "ConsumerRecord",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "Producer",
    "RecordFuture",
    "RecordMetadata",
    "TopicPartition",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
