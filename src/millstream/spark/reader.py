"""On an executor: offset ranges to Arrow record batches, about a megabyte of log each."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from millstream.client.cluster import Cluster
from millstream.client.errors import (
    ConnectionFailedError,
    OffsetOutOfRangeError,
    TopicRecreatedError,
)
from millstream.client.fetch import Fetched, Fetcher, FetchSettings
from millstream.client.offsets import EARLIEST, end_offsets
from millstream.model.offsets import Offset
from millstream.model.topic import ZERO_TOPIC_ID, TopicPartition
from millstream.records.arrow_decoder import decode_arrow_pieces
from millstream.records.batch import Batch
from millstream.records.kernel_decoder import Selection
from millstream.spark.kafka_settings import KafkaSettings
from millstream.spark.leader_epochs import EpochEnd, add_epoch, epoch_ends
from millstream.spark.options import SourceOptions
from millstream.spark.plan import DataLossError, RecreatedTopicError
from millstream.spark.ranges import OffsetRange
from millstream.spark.topics import connect

log = logging.getLogger(__name__)

ARROW_BATCH_BYTES: Final = 1 << 20
"""Decoded bytes in one record batch. Smaller ones cost more per row in the JVM, larger ones more
memory on both sides.
"""

_RECONNECT_S: Final = 1.0
_SMALL_RANGE_OFFSETS: Final = 2_000
_SMALL_ANSWER_BYTES: Final = 1 << 20
"""The fetch size for a small range, as long as the size of records is unknown."""
_MARGIN: Final = 1.25
_MORE_BYTES: Final = 128 << 10
"""A range begins and ends within batches, which come as a whole."""


@dataclass(frozen=True, slots=True)
class ReadRules:
    """The parameters of a task besides its range."""

    kafka: KafkaSettings
    fail_on_data_loss: bool
    poll_timeout_ms: int
    log_dirs: tuple[str, ...] = ()
    """The log directories to read; a partition that is not there is fetched."""
    waits_for_brokers: bool = False
    """True: wait for unreachable brokers as long as for data. A load retries by itself."""

    @classmethod
    def of(
        cls,
        options: SourceOptions,
        *,
        fail_on_data_loss: bool | None = None,
        waits_for_brokers: bool = False,
    ) -> ReadRules:
        """Return the rules of the options; ``fail_on_data_loss`` may be overridden."""
        fail = options.fail_on_data_loss if fail_on_data_loss is None else fail_on_data_loss
        timeout_ms = options.poll_timeout_ms
        return cls(options.kafka, fail, timeout_ms, options.log_dirs, waits_for_brokers)


def read_range(each: OffsetRange, rules: ReadRules, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range as batches of exactly ``schema``.

    Raises DataLossError for offsets that are gone, KafkaError, and TimeoutError if nothing is
    received for ``poll_timeout_ms``.
    """
    return read_ranges((each,), rules, schema)


def read_ranges(
    ranges: Sequence[OffsetRange], rules: ReadRules, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the records of ranges, one after the other, over the same connections."""
    with RangeReader(rules) as reader:
        for each in ranges:
            yield from reader.read(each, schema)


class AnswerSizes:
    """How many bytes to ask for: a little more than the rest of a range takes, judged by what was
    read of its topic. A broker also sends what follows the range's end, if there is room for it.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._seen: dict[str, tuple[int, int]] = {}

    def learn(self, fetched: Fetched) -> None:
        """Learn from an answer."""
        topic = fetched.topic_partition.topic
        offsets, size_bytes = self._seen.get(topic, (0, 0))
        offsets += fetched.next_offset - fetched.fetch_offset
        self._seen[topic] = offsets, size_bytes + len(fetched.data)

    def wanted(self, topic: str, offsets: int) -> int:
        """Return the bytes to ask for where so many offsets are left."""
        seen_offsets, seen_bytes = self._seen.get(topic, (0, 0))
        if seen_offsets:
            expected = int(offsets * seen_bytes / seen_offsets * _MARGIN) + _MORE_BYTES
            return min(self._most_bytes, expected)
        is_small = offsets <= _SMALL_RANGE_OFFSETS
        return min(self._most_bytes, _SMALL_ANSWER_BYTES) if is_small else self._most_bytes


class RangeReader:
    """Reads ranges one after the other; a context manager that closes its connections."""

    def __init__(self, rules: ReadRules) -> None:
        self._rules = rules
        self.epochs: dict[TopicPartition, list[EpochEnd]] = {}
        """The leader epochs of the batches that were read."""
        self.read_bytes = 0
        """Bytes of log that were fetched, or read from files."""
        self._sizes = AnswerSizes(rules.kafka.fetch_max_bytes)
        self._cluster: Cluster | None = None
        self._fetcher: Fetcher | None = None

    def __enter__(self) -> RangeReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._close_fetcher()
        if self._cluster is not None:
            self._cluster.close()

    def read(self, each: OffsetRange, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range; see :func:`read_range`.

        RecreatedTopicError if its topic id is that of another topic than the one there is.
        """
        epochs = self.epochs.setdefault(each.topic_partition, [])
        for fetched in self._batches(each):
            self.read_bytes += len(fetched.data)
            last = (fetched.last_epoch, fetched.next_offset)
            for epoch in epoch_ends(fetched.data, each.end, last):
                add_epoch(epochs, epoch)
            yield from _decode(fetched, each, self._rules, schema)

    def _batches(self, each: OffsetRange) -> Iterator[Fetched]:
        rules = self._rules
        if rules.log_dirs:
            from millstream.spark.log_files.topics import find_partition, topic_id_of

            directory = find_partition(rules.log_dirs, each.topic_partition)
            if directory is not None:
                found = topic_id_of(directory)
                if each.topic_id != ZERO_TOPIC_ID and found not in (None, each.topic_id):
                    raise _recreated(each.topic_partition.topic)
                return _from_files(directory, each, rules)
            if not rules.kafka.bootstrap_servers:
                _report_loss(each.topic_partition, (each.start, each.end), rules)
                return iter(())
        return self._over_the_wire(each)

    def _over_the_wire(self, each: OffsetRange) -> Iterator[Fetched]:
        """Fetch a range; what is yielded is overwritten by the next."""
        cluster, fetcher = self._connected()
        fetcher.positions.clear()
        fetcher.positions[each.topic_partition] = each.start
        fetcher.topic_ids = {each.topic_partition.topic: each.topic_id}
        whole = False
        try:
            yield from _fetch(fetcher, each, self._rules, cluster, self._sizes)
            whole = True
        except TopicRecreatedError:
            raise _recreated(each.topic_partition.topic) from None
        finally:
            if not whole:
                self._close_fetcher()  # a response may be in flight

    def _connected(self) -> tuple[Cluster, Fetcher]:
        kafka = self._rules.kafka
        if self._cluster is None:
            self._cluster = connect(kafka)
        if self._fetcher is None:
            settings = FetchSettings(
                max_bytes=kafka.fetch_max_bytes,
                max_partition_bytes=kafka.fetch_max_bytes,
                read_committed=kafka.read_committed,
                overwrites=True,
            )
            self._fetcher = Fetcher(self._cluster, {}, settings)
        return self._cluster, self._fetcher

    def _close_fetcher(self) -> None:
        if self._fetcher is not None:
            self._fetcher.close()
            self._fetcher = None


def _recreated(topic: str) -> RecreatedTopicError:
    return RecreatedTopicError(
        f"topic {topic} was deleted and created again since its offsets were planned"
    )


def _from_files(directory: Path, each: OffsetRange, rules: ReadRules) -> Iterator[Fetched]:
    from millstream.spark.log_files.reading import FileReader, FileRules, LostOffsetsError

    # The end may come from another broker, which this replica follows.
    patience_ms = rules.poll_timeout_ms if rules.kafka.bootstrap_servers else 0
    committed = rules.kafka.read_committed
    reader = FileReader(
        directory, each, FileRules(read_committed=committed, patience_ms=patience_ms)
    )
    while reader.position < each.end:
        try:
            yield from reader.read()
        except LostOffsetsError as lost:
            _report_loss(each.topic_partition, (lost.start, lost.next_offset), rules)
            reader.position = lost.next_offset


def _fetch(
    fetcher: Fetcher, each: OffsetRange, rules: ReadRules, cluster: Cluster, sizes: AnswerSizes
) -> Iterator[Fetched]:
    """Yield the range's records from the broker; the next request is sent before each is yielded.

    While Spark processes a batch, the broker prepares the next response.
    """
    topic_partition = each.topic_partition
    progress = time.monotonic()
    fetcher.max_partition_bytes = sizes.wanted(topic_partition.topic, each.size)
    _request(fetcher, rules, progress)
    while True:
        try:
            received = fetcher.receive()
        except OffsetOutOfRangeError as error:
            fetcher.positions[topic_partition] = _after_loss(error, each, rules, cluster)
            received = []
        for answer in received:
            sizes.learn(answer)
        position = fetcher.positions[topic_partition]
        if position < each.end:
            rest = each.end - position
            fetcher.max_partition_bytes = sizes.wanted(topic_partition.topic, rest)
            _request(fetcher, rules, progress)
        if received and len(received[0].data):
            progress = time.monotonic()
            yield received[0]
        elif position < each.end and time.monotonic() - progress > rules.poll_timeout_ms / 1000:
            raise TimeoutError(
                f"nothing came from offset {position} of {topic_partition} on for "
                f"{rules.poll_timeout_ms} ms (option kafkaConsumer.pollTimeoutMs)"
            )
        if position >= each.end:
            return


def _request(fetcher: Fetcher, rules: ReadRules, progress: float) -> None:
    """Send the next request; with ``retries`` repeat it until nothing has been received for too
    long.
    """
    while True:
        try:
            fetcher.request()
        except ConnectionFailedError as error:
            waited_ms = (time.monotonic() - progress) * 1000
            if not rules.waits_for_brokers or waited_ms > rules.poll_timeout_ms:
                raise
            log.warning("waiting for a broker: %s", error)
            time.sleep(_RECONNECT_S)
        else:
            return


def _after_loss(
    error: OffsetOutOfRangeError, each: OffsetRange, rules: ReadRules, cluster: Cluster
) -> Offset:
    """Return where to continue after lost offsets; DataLossError unless data loss is allowed."""
    topic_partition = each.topic_partition
    earliest = end_offsets(cluster, [topic_partition], which=EARLIEST)[topic_partition]
    # An offset that is out of range although the log starts before it: the log was cut at its end.
    next_offset = min(earliest, each.end) if earliest > error.offset else each.end
    _report_loss(topic_partition, (error.offset, next_offset), rules)
    return next_offset


def _report_loss(
    topic_partition: TopicPartition, lost: tuple[Offset, Offset], rules: ReadRules
) -> None:
    text = f"offsets [{lost[0]}, {lost[1]}) of {topic_partition} are not in the log any more"
    if rules.fail_on_data_loss:
        raise DataLossError(f"{text} (option failOnDataLoss=false reads what is there)") from None
    log.warning("%s", text)


def _decode(
    fetched: Fetched, each: OffsetRange, rules: ReadRules, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    keep: Callable[[Batch], bool] | None = None
    if fetched.aborted_transactions:
        visible = {batch.base_offset for batch in fetched.batches()}
        keep = lambda batch: batch.base_offset in visible  # noqa: E731 - one of two values
    selection = Selection(
        start_offset=fetched.fetch_offset,
        end_offset=each.end,
        keep=keep,
        check_crcs=rules.kafka.check_crcs,
    )
    return decode_arrow_pieces(
        [fetched.data],
        schema,
        topic=each.topic_partition.topic,
        partition=each.topic_partition.partition,
        selection=selection,
        piece_bytes=ARROW_BATCH_BYTES,
    )
