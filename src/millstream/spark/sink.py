"""Rows to topics: `write` and `writeStream` with `format("millstream")`.

A batch write is at least once, as with the stock connector: every task has an idempotent producer
of its own, and Spark may run a task twice. A streaming query writes each micro-batch once: every
task writes a transaction and prepares it, and the driver commits those of all tasks, see
`sink_commits`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from millstream.client import Producer
from millstream.client.core.producer.transactions import PreparedTransaction
from millstream.model.errors import ConfigError, MillstreamError
from millstream.spark.sink_commits import SinkCommits, SinkState
from millstream.spark.sink_journal import Journal
from millstream.spark.sink_options import SinkOptions

_SETTINGS: Final[Mapping[str, str]] = {
    "linger.ms": "20",
    "batch.size": str(256 * 1024),
    "acks": "all",
}
_TRANSACTION_TIMEOUT_MS: Final = "900000"
"""The longest that brokers permit, unless their transaction.max.timeout.ms is another."""


@dataclass
class Written(WriterCommitMessage):
    """The result of a task."""

    rows: int
    prepared: PreparedTransaction | None = None
    """The transaction that the driver commits; None for a task without rows."""


class TopicWriter(DataSourceArrowWriter):
    """A batch write."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send the rows of one task and wait until the brokers have them."""
        return _write(iterator, self._options)


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """A streaming query's writes.

    Spark makes it on the driver: to plan a micro-batch, when what an earlier driver left is
    finished, and again to commit it.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._state: SinkState | None = None
        if options.exactly_once:
            self._state = self._commits().recover()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send the rows of one task of a micro-batch, unless it is in the topics already."""
        if self._state is None:
            return _write(iterator, self._options)
        context = TaskContext.get()
        batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
        if context is None or batch is None:
            raise MillstreamError(
                "Spark does not tell the task its micro-batch: use the option exactlyOnce=false"
            )
        if self._state.is_committed(int(batch)):
            return Written(0)
        name = self._state.transactional_id(context.partitionId(), context.attemptNumber())
        return write_transaction(iterator, self._options, name)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit the transactions of all tasks."""
        if self._state is not None:
            self._commits().commit(batchId, _prepared(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Abort the transactions of the tasks that have ended."""
        if self._state is not None:
            self._commits().abort(batchId, _prepared(messages))

    def _commits(self) -> SinkCommits:
        directory = self._options.state_directory
        assert directory is not None, "exactly once has a state directory"
        options = self._options
        return SinkCommits(Journal(directory), options.producer, options.security)


def _prepared(messages: Sequence[WriterCommitMessage | None]) -> list[PreparedTransaction]:
    return [
        each.prepared
        for each in messages
        if isinstance(each, Written) and each.prepared is not None
    ]


def write_transaction(
    iterator: Iterator[pa.RecordBatch], options: SinkOptions, name: str
) -> Written:
    """Write the rows of one task into a transaction, and leave its end to the driver.

    An error aborts it. ``name`` is the transactional id: an earlier attempt with it is fenced.
    """
    settings = {"transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS, **_SETTINGS, **options.producer}
    with Producer({**settings, "transactional.id": name}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        sender = _Sender(producer, options)
        for batch in iterator:
            sender.send(batch)
        producer.flush()
        rows = sender.result()
        return Written(rows, producer.prepare_transaction())


def _write(iterator: Iterator[pa.RecordBatch], options: SinkOptions) -> Written:
    with Producer({**_SETTINGS, **options.producer}) as producer:
        sender = _Sender(producer, options)
        for batch in iterator:
            sender.send(batch)
        producer.flush()
        return Written(sender.result())


class _Sender:
    """Sends the rows of one task to their topics."""

    def __init__(self, producer: Producer, options: SinkOptions) -> None:
        self._producer = producer
        self._options = options
        self._futures: list[Any] = []
        self._rows = 0

    def send(self, batch: pa.RecordBatch) -> None:
        """Send the rows of one record batch."""
        if self._options.topic is not None:
            self._send(self._options.topic, batch)
            return
        topics = batch.column("topic")
        if topics.null_count:
            raise ConfigError("a row has no topic: its column topic is null")
        for topic in pc.unique(topics).to_pylist():
            self._send(topic, batch.filter(pc.equal(topics, topic)))

    def result(self) -> int:
        """Wait for every row, raise the first error, and return the number of rows."""
        for future in self._futures:
            future.result()
        return self._rows

    def _send(self, topic: str, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        self._rows += rows.num_rows
        names = set(rows.schema.names)
        self._futures.append(
            self._producer.send_table(
                rows,
                topic,
                key="key" if "key" in names else None,
                value="value",
                headers="headers" if "headers" in names else None,
                timestamp=None,
                partition="partition" if "partition" in names else None,
            )
        )
