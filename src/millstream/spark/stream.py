"""The planner of a streaming query: where it begins, how far micro-batches go, what tasks read.

It runs in a Python process of the driver for as long as the query, and keeps a connection.
`stream_offsets` describes a query's offsets, and why its first batch uses the start that is stored
in its end.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicId, TopicPartition
from millstream.spark.options import SourceOptions
from millstream.spark.plan import DataLossError, split_ranges, starting_offsets, tasks_of
from millstream.spark.ranges import OffsetRange
from millstream.spark.source import RangePartition, check_schema, read_partition
from millstream.spark.stream_offsets import (
    StreamOffset,
    batch_start,
    behind,
    limit_offsets,
)
from millstream.spark.topics import Topics, open_topics

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver; reads ranges on executors."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_schema(schema)
        self._options = options
        self._schema = schema
        self._topics: Topics | None = None
        self._target: Mapping[TopicPartition, Offset] | None = None
        self._initial: StreamOffset | None = None
        self._waiting_since: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_topics": None}  # executors get no connection

    # --- on the driver ---------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query begins."""
        topics = self._connected()
        earliest, latest = self._ends(topics)
        positions = starting_offsets(topics, self._options, earliest, latest)
        self._initial = StreamOffset(positions, positions, self._topic_ids(latest), True)
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return an arbitrary limit if the options set one: ``latestOffset`` applies the real
        one.
        """
        limits = self._options.trigger
        if not limits.limits_anything:
            return ReadAllAvailable()
        return ReadMaxRows(limits.max_offsets or 2**62)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch; ``start`` if there is nothing to do."""
        topics = self._connected()
        since = StreamOffset.from_json(start)
        earliest, latest = self._ends(topics)
        topic_ids = self._topic_ids(latest)
        positions = self._positions(since, earliest, latest, topic_ids)
        if self._target is not None:
            latest = {p: min(end, self._target.get(p, 0)) for p, end in latest.items()}
        end = latest if isinstance(limit, ReadAllAvailable) else self._limited(positions, latest)
        if end is None or not behind(positions, end):
            if not self._has_to_be_noted(positions, since):
                return start
            end = positions
        reached = {
            topic_partition: max(end[topic_partition], positions[topic_partition])
            for topic_partition in end
        }
        begin = since.positions if since.is_initial else since.begin
        return StreamOffset(reached, begin, topic_ids).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Record the ends: later records belong to the next run."""
        self._target = self._ends(self._connected())[1]

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends of the topics, for the query's progress."""
        latest = self._ends(self._connected())[1]
        return StreamOffset(latest, {}, {}).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return one partition for each task of the micro-batch."""
        since, until = StreamOffset.from_json(start), StreamOffset.from_json(end)
        began = batch_start(since, until)
        gone = self._gone(until)
        earliest: Mapping[TopicPartition, Offset] = {}
        unknown = [p for p in until.positions if p not in began and p.topic not in gone]
        if unknown:
            earliest = self._connected().earliest(unknown)
            lost = _cut_off(earliest)
            if lost:  # since the micro-batch was planned
                self._report_loss(lost)
        ranges = []
        for topic_partition, stop in sorted(until.positions.items()):
            if topic_partition.topic in gone:
                continue
            first = began.get(topic_partition, earliest.get(topic_partition, 0))
            if self._was_recreated(topic_partition, since, until):
                first = 0
            if first < stop:
                ranges.append(OffsetRange(topic_partition, first, stop))
        parts = split_ranges(ranges, self._options)
        return [RangePartition(task) for task in tasks_of(parts, self._options)]

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the checkpoint has the offsets. `progress` commits them to a consumer
        group.
        """

    def stop(self) -> None:
        """Close the connection."""
        if self._topics is not None:
            self._topics.close()
            self._topics = None

    # --- in a worker -----------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a range's record batches."""
        return read_partition(partition, self._options, self._schema)

    # --- how far ---------------------------------------------------------------------------------

    def _positions(
        self,
        since: StreamOffset,
        earliest: Mapping[TopicPartition, Offset],
        latest: Mapping[TopicPartition, Offset],
        topic_ids: Mapping[str, TopicId],
    ) -> dict[TopicPartition, Offset]:
        """Return the positions to continue from; report or raise lost offsets."""
        lost = [
            f"{topic_partition} is gone"
            for topic_partition in since.positions
            if topic_partition not in latest
        ]
        lost += _cut_off({p: first for p, first in earliest.items() if p not in since.positions})
        positions = {}
        for topic_partition, end in latest.items():
            known = since.positions.get(topic_partition)
            old_id, new_id = (
                since.topic_ids.get(topic_partition.topic),
                topic_ids.get(topic_partition.topic),
            )
            if known is not None and old_id is not None and new_id not in (None, old_id):
                lost.append(f"{topic_partition} was deleted and created again after offset {known}")
                known = None
            if known is None:
                known = earliest[topic_partition]
            elif known < earliest[topic_partition]:
                lost.append(
                    f"offsets [{known}, {earliest[topic_partition]}) of {topic_partition} "
                    "are not in the log"
                )
                known = earliest[topic_partition]
            elif known > end and known > self._log_end(topic_partition):
                lost.append(f"{topic_partition} ends at {end}, before offset {known} that was read")
                known = end
            positions[topic_partition] = known
        if lost:
            self._report_loss(lost)
        return positions

    def _log_end(self, topic_partition: TopicPartition) -> Offset:
        """Return the readable end of a log: the last stable offset for read_committed."""
        return self._connected().latest([topic_partition], read_committed=False)[topic_partition]

    def _has_to_be_noted(
        self, positions: Mapping[TopicPartition, Offset], since: StreamOffset
    ) -> bool:
        """Tell whether positions have to be stored in the checkpoint even if there is nothing to
        read: those of new partitions, and those that went back because a log was truncated or
        recreated.
        """
        known = since.positions
        if any(
            positions[topic_partition] < known[topic_partition]
            for topic_partition in positions.keys() & known.keys()
        ):
            return True
        return self._target is None and not positions.keys() <= known.keys()

    def _report_loss(self, lost: Sequence[str]) -> None:
        text = "; ".join(lost)
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{text} (option failOnDataLoss=false continues with the available offsets)"
            )
        log.warning("%s", text)

    def _limited(
        self, start: Mapping[TopicPartition, Offset], latest: Mapping[TopicPartition, Offset]
    ) -> Mapping[TopicPartition, Offset] | None:
        """Return the end that the options allow; None to wait for more."""
        limits = self._options.trigger
        rest = behind(start, latest)
        if limits.min_offsets is not None and self._target is None and rest > 0:
            now = time.monotonic()
            self._waiting_since = now if self._waiting_since is None else self._waiting_since
            waited_ms = (now - self._waiting_since) * 1000
            if rest < limits.min_offsets and waited_ms < limits.max_delay_ms:
                return None
            self._waiting_since = None
        most = rest if limits.max_offsets is None else limits.max_offsets
        if limits.max_bytes is not None and rest:
            most = min(most, max(int(limits.max_bytes / self._bytes_per_offset(latest)), 1))
        return limit_offsets(start, latest, most)

    def _bytes_per_offset(self, latest: Mapping[TopicPartition, Offset]) -> float:
        """Return the average size of an offset in the logs, in bytes."""
        topics = self._connected()
        sizes = topics.sizes(list(latest))
        if not sizes:
            log.warning("maxBytesPerTrigger cannot be applied: it is used as a number of offsets")
            return 1.0
        earliest = topics.earliest(list(latest))
        offsets = sum(
            latest[topic_partition] - earliest[topic_partition] for topic_partition in latest
        )
        return max(
            sum(sizes.get(topic_partition, 0) for topic_partition in latest) / max(offsets, 1), 1.0
        )

    def _gone(self, until: StreamOffset) -> set[str]:
        """Return the topics of a micro-batch that were deleted or recreated.

        A micro-batch that was planned before a restart is run again unchanged, without checking the
        topics.
        """
        gone = set()
        for name, planned in until.topic_ids.items():
            try:
                known = self._connected().ids([name]).get(name, planned)
            except KafkaError as error:
                if error.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                known = None
            if known != planned:
                gone.add(name)
        if gone:
            names = ", ".join(sorted(gone))
            self._report_loss([f"{names} was deleted after this micro-batch was planned"])
        return gone

    def _was_recreated(
        self, topic_partition: TopicPartition, since: StreamOffset, until: StreamOffset
    ) -> bool:
        old, new = (
            since.topic_ids.get(topic_partition.topic),
            until.topic_ids.get(topic_partition.topic),
        )
        return old is not None and new is not None and old != new

    # --- the cluster -----------------------------------------------------------------------------

    def _connected(self) -> Topics:
        if self._topics is None:
            self._topics = open_topics(self._options)
        return self._topics

    def _ends(
        self, topics: Topics
    ) -> tuple[Mapping[TopicPartition, Offset], Mapping[TopicPartition, Offset]]:
        topics.forget()
        topic_partitions = topics.topic_partitions(self._options.subscription)
        committed = self._options.kafka.read_committed
        return topics.earliest(topic_partitions), topics.latest(
            topic_partitions, read_committed=committed
        )

    def _topic_ids(self, latest: Mapping[TopicPartition, Offset]) -> dict[str, TopicId]:
        return self._connected().ids({topic_partition.topic for topic_partition in latest})


def _cut_off(earliest: Mapping[TopicPartition, Offset]) -> list[str]:
    """Return what is lost of partitions that are new to a query, which the stock connector takes
    for loss too. ``earliest`` are their first offsets.
    """
    return [
        f"offsets [0, {first}) of {topic_partition}, new here, are not in the log"
        for topic_partition, first in earliest.items()
        if first > 0
    ]
