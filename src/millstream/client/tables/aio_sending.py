"""Tables of the asyncio producer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from time import time

from millstream.client.core.producer.accumulator import TopicBuffer
from millstream.client.core.producer.batch import ProducerBatch
from millstream.client.core.producer.core import ProducerCore
from millstream.client.core.producer.table import TableMetadata, TableOutcome, table_batches
from millstream.client.tables.sending import ColumnChoices
from millstream.records.tables import Rows, TableColumns


class TableFuture:
    """The outcome of one ``send_table``: await it for a TableMetadata, or the first error."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.outcome = TableOutcome(self._event.set)

    def done(self) -> bool:
        """True once the outcome of every row is known."""
        return self._event.is_set()

    def __await__(self) -> Generator[object, None, TableMetadata]:
        """Wait, and return where the rows lie."""
        yield from self._event.wait().__await__()
        return self.outcome.metadata()


async def send_batches(
    core: ProducerCore,
    topic: TopicBuffer,
    table: Rows,
    columns: ColumnChoices,
    append: Callable[[ProducerBatch], Awaitable[None]],
) -> TableFuture:
    """Encode a table batch by batch and ``append`` each, which waits for memory."""
    future = TableFuture()
    outcome = future.outcome
    now_ms = int(time() * 1000)
    for batch in table_batches(core, topic, table, TableColumns(**columns), now_ms):
        outcome.expect(batch)
        await append(batch)
    outcome.complete()
    return future
