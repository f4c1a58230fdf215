"""A client of any Kafka-protocol broker: producer, consumer and admin.

``Producer``, ``Consumer`` and ``Admin`` here are for programs with threads; `millstream.client.aio`
has the same for asyncio. Both drive one core (`core/`), which knows no socket, clock or thread.
Names load when they are first used, so that a tool pays only for what it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from millstream.client.consumer import Consumer as Consumer
    from millstream.client.core.producer.batch import RecordMetadata as RecordMetadata
    from millstream.client.producer import Producer as Producer
    from millstream.client.producer import RecordFuture as RecordFuture

_HOMES: Final = {
    "Consumer": "millstream.client.consumer",
    "Producer": "millstream.client.producer",
    "RecordFuture": "millstream.client.producer",
    "RecordMetadata": "millstream.client.core.producer.batch",
}

__all__ = ["Consumer", "Producer", "RecordFuture", "RecordMetadata"]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
