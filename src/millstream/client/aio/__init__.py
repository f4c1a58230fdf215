"""The asyncio face of the client: the same core on the application's own event loop."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from millstream.client.aio.admin import Admin as Admin
    from millstream.client.aio.consumer import Consumer as Consumer
    from millstream.client.aio.producer import Producer as Producer
    from millstream.client.aio.producer import RecordFuture as RecordFuture
    from millstream.client.core.consumer.record import ConsumerRecord as ConsumerRecord
    from millstream.client.core.consumer.record import OffsetAndMetadata as OffsetAndMetadata
    from millstream.client.core.consumer.record import OffsetAndTimestamp as OffsetAndTimestamp
    from millstream.client.core.producer.batch import RecordMetadata as RecordMetadata
    from millstream.model.topic import TopicPartition as TopicPartition

_HOMES: Final = {
    "Admin": "millstream.client.aio.admin",
    "Consumer": "millstream.client.aio.consumer",
    "ConsumerRecord": "millstream.client.core.consumer.record",
    "OffsetAndMetadata": "millstream.client.core.consumer.record",
    "OffsetAndTimestamp": "millstream.client.core.consumer.record",
    "Producer": "millstream.client.aio.producer",
    "RecordFuture": "millstream.client.aio.producer",
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
