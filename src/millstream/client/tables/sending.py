"""Tables of the blocking producer: handing batches over, and the future of them all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import time
from typing import TypedDict

from millstream.client.core.producer.accumulator import TopicBuffer
from millstream.client.core.producer.batch import ProducerBatch
from millstream.client.core.producer.core import ProducerCore
from millstream.client.core.producer.table import TableMetadata, TableOutcome, table_batches
from millstream.client.errors import TimedOutError
from millstream.records.tables import ColumnChoice, Rows, TableColumns


class ColumnChoices(TypedDict, total=False):
    """Which columns of a table become which part of a record; see ``TableColumns``."""

    key: ColumnChoice
    value: ColumnChoice
    headers: ColumnChoice
    timestamp: ColumnChoice
    partition: ColumnChoice


class TableFuture:
    """The outcome of one ``send_table``."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.outcome = TableOutcome(self._event.set)

    def done(self) -> bool:
        """True once the outcome of every row is known."""
        return self._event.is_set()

    def result(self, timeout: float | None = None) -> TableMetadata:
        """Wait, ``timeout`` seconds at most, and return where the rows lie.

        When some were not delivered the first error is raised, with a note that says how many.
        TimedOutError when it is not known by then. Never wait in a delivery callback.
        """
        if not self._event.wait(timeout):
            raise TimedOutError(f"no outcome within {timeout} s; the rows are still on their way")
        return self.outcome.metadata()


def send_batches(
    core: ProducerCore,
    topic: TopicBuffer,
    table: Rows,
    columns: ColumnChoices,
    append: Callable[[ProducerBatch], None],
) -> TableFuture:
    """Encode a table batch by batch and ``append`` each, which waits for memory."""
    future = TableFuture()
    outcome = future.outcome
    now_ms = int(time() * 1000)
    for batch in table_batches(core, topic, table, TableColumns(**columns), now_ms):
        outcome.expect(batch)
        append(batch)
    outcome.complete()
    return future
