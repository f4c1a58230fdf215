"""The asyncio face of the client: the same core on the application's own event loop."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from millstream.client.aio.consumer import Consumer as Consumer
    from millstream.client.aio.producer import Producer as Producer
    from millstream.client.aio.producer import RecordFuture as RecordFuture
    from millstream.client.core.producer.batch import RecordMetadata as RecordMetadata

_HOMES: Final = {
    "Consumer": "millstream.client.aio.consumer",
    "Producer": "millstream.client.aio.producer",
    "RecordFuture": "millstream.client.aio.producer",
    "RecordMetadata": "millstream.client.core.producer.batch",
}

__all__ = ["Consumer", "Producer", "RecordFuture", "RecordMetadata"]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
