"""Rows to topics: `write` and `writeStream` with `format("millstream")`.

Every task has an idempotent producer of its own, so retries after a late response cause no
duplicates. A batch write is at least once, as with the stock connector: Spark may run a task twice.
In a streaming query a replayed micro-batch writes nothing twice, see `sink_journal`, and only one
attempt at a time writes a task, see `sink_claims`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from millstream.client import Producer
from millstream.client.cluster import Cluster
from millstream.client.settings import ClientSettings, parse_bootstrap_servers
from millstream.model.errors import ConfigError, MillstreamError
from millstream.spark.kafka_settings import KafkaSettings, parse_kafka_settings
from millstream.spark.lakehouse.formats.raw import HEADERS
from millstream.spark.sink_claims import Claim
from millstream.spark.sink_journal import MARK, Journal, WrittenRows, digest, mark_of, written_since
from millstream.spark.sink_options import SinkOptions

_LINGER_MS: Final = "20"
_BATCH_BYTES: Final = str(256 * 1024)
_DELIVERY_TIMEOUT_MS: Final = "120000"
_MARGIN_S: Final = 5.0


@dataclass
class Written(WriterCommitMessage):
    """The result of a task."""

    rows: int
    replayed: int = 0
    """Rows that an earlier attempt has written."""


class TopicWriter(DataSourceArrowWriter):
    """A batch write."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send the rows of one task and wait until the brokers have them."""
        return _write(iterator, self._options, None)


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """A streaming query's writes."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send the rows of one task of a micro-batch, except those that are in the topic
        already.
        """
        if not self._options.exactly_once:
            return _write(iterator, self._options, None)
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
        if context is None or query is None or batch is None:
            raise MillstreamError(
                "Spark does not tell the task its micro-batch: use the option exactlyOnce=false"
            )
        directory = self._options.state_directory
        assert directory is not None
        return write_once(
            iterator,
            self._options,
            query=query,
            batch=int(batch),
            task=context.partitionId(),
            run=context.getLocalProperty("spark.jobGroup.id") or "",
        )

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Remove the notes of earlier micro-batches."""
        if self._options.state_directory is not None:
            Journal.forget_before(self._options.state_directory, batchId)


@dataclass(slots=True)
class _Once:
    """The means by which a task recognises its own records."""

    journal: Journal
    mark: bytes
    claim: Claim


def write_once(
    iterator: Iterator[pa.RecordBatch],
    options: SinkOptions,
    *,
    query: str,
    batch: int,
    task: int,
    run: str = "",
) -> Written:
    """Write the rows of one task of a micro-batch, except those that an earlier attempt wrote.

    ``run`` distinguishes starts of the query, see `sink_claims`. Raises SupersededError when a
    later attempt takes over, as happens to an executor that outlives its driver.
    """
    directory = options.state_directory
    assert directory is not None
    claim = Claim.take(directory / str(batch), task, run)
    try:
        claim.wait_for_others(_patience_s(options))
        once = _Once(Journal(directory, batch, task), mark_of(query, batch, task), claim)
        return _write(iterator, options, once)
    finally:
        claim.release()  # the producer is closed: no request is in flight


def _patience_s(options: SinkOptions) -> float:
    """Return after how many seconds no request of a producer is in flight any more."""
    given = options.producer.get("delivery.timeout.ms", _DELIVERY_TIMEOUT_MS)
    return float(given) / 1000 + _MARGIN_S


def _write(iterator: Iterator[pa.RecordBatch], options: SinkOptions, once: _Once | None) -> Written:
    settings = {"linger.ms": _LINGER_MS, "batch.size": _BATCH_BYTES, "acks": "all"}
    if once is not None:
        settings["enable.idempotence"] = "true"
    with Producer({**settings, **options.producer}) as producer:
        sender = _Sender(producer, options, once)
        for batch in iterator:
            sender.send(batch)
        producer.flush()
        written = sender.result()
    if once is not None:
        once.claim.check()
    return written


class _Sender:
    """Sends the rows of one task to their topics."""

    def __init__(self, producer: Producer, options: SinkOptions, once: _Once | None) -> None:
        self._producer = producer
        self._options = options
        self._once = once
        self._futures: list[Any] = []
        self._written: dict[str, WrittenRows] = {}
        self._rows = 0
        self._replayed = 0

    def send(self, batch: pa.RecordBatch) -> None:
        """Send the rows of one record batch. SupersededError if another attempt has taken over."""
        if self._once is not None:
            self._once.claim.check()
        if self._options.topic is not None:
            self._send(self._options.topic, batch)
            return
        topics = batch.column("topic")
        if topics.null_count:
            raise ConfigError("a row has no topic: its column topic is null")
        for topic in pc.unique(topics).to_pylist():
            self._send(topic, batch.filter(pc.equal(topics, topic)))

    def result(self) -> Written:
        """Wait for every row, raise the first error, and return the numbers."""
        for future in self._futures:
            future.result()
        return Written(self._rows, self._replayed)

    def _send(self, topic: str, rows: pa.RecordBatch) -> None:
        if self._once is not None:
            rows = self._not_there_yet(topic, rows, self._once)
            rows = _marked(rows, self._once.mark)
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

    def _not_there_yet(self, topic: str, rows: pa.RecordBatch, once: _Once) -> pa.RecordBatch:
        """Leave out the rows that an earlier attempt wrote."""
        if topic not in self._written:
            self._written[topic] = self._read_back(topic, once)
        written = self._written[topic]
        if not written:
            return rows
        names = set(rows.schema.names)
        none = [None] * rows.num_rows
        keys = rows.column("key").to_pylist() if "key" in names else none
        headers = rows.column("headers").to_pylist() if "headers" in names else none
        partitions = rows.column("partition").to_pylist() if "partition" in names else none
        values = rows.column("value").to_pylist()
        kept = []
        for key, value, pairs, partition in zip(keys, values, headers, partitions, strict=True):
            content = digest(
                _bytes(key), _bytes(value), [(each["key"], each["value"]) for each in pairs or ()]
            )
            is_there = written.take(content, partition)
            self._replayed += is_there
            kept.append(not is_there)
        return rows.filter(pa.array(kept, pa.bool_()))

    def _read_back(self, topic: str, once: _Once) -> WrittenRows:
        settings = _reader_settings(self._options)
        addresses = parse_bootstrap_servers(settings.bootstrap_servers)
        with Cluster(ClientSettings(bootstrap_servers=addresses)) as cluster:
            cluster.topic(topic, create_missing=True)
            noted = once.journal.begin(cluster, topic)
            if noted is None:
                return WrittenRows()
            return written_since(cluster, settings, noted, once.mark)


def _reader_settings(options: SinkOptions) -> KafkaSettings:
    return parse_kafka_settings({"bootstrap.servers": options.producer["bootstrap.servers"]})


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _marked(rows: pa.RecordBatch, mark: bytes) -> pa.RecordBatch:
    """Add the mark to every row's headers."""
    count = rows.num_rows
    pair = HEADERS.value_type
    if "headers" in rows.schema.names:
        lists = rows.column("headers").cast(HEADERS)
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
        pairs = lists.flatten()
    else:
        lengths = np.zeros(count, np.int32)
        pairs = pa.array([], pair)
    own = pa.StructArray.from_arrays(
        [pa.array([MARK], pa.string()), pa.array([mark], pa.binary())], fields=list(pair)
    )
    ends = np.cumsum(lengths + 1)
    indices = np.arange(int(ends[-1]) if count else 0)
    # The mark is appended after all pairs and becomes the last header of each row; the others move
    # up.
    is_mark = np.zeros(len(indices), bool)
    if count:
        is_mark[ends - 1] = True
    indices -= np.cumsum(is_mark)
    indices[is_mark] = len(pairs)
    joined = pa.concat_arrays([pairs, own]).take(pa.array(indices))
    offsets = pa.array(np.concatenate([[0], ends]).astype(np.int32))
    headers = pa.ListArray.from_arrays(offsets, joined)
    position = rows.schema.get_field_index("headers")
    if position >= 0:
        return rows.set_column(position, "headers", headers)
    return rows.append_column("headers", headers)
