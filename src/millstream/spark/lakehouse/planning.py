"""Plans the batches of a load: what follows a ledger, checked against the topics, as tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from millstream.model.offsets import LeaderEpoch, Offset
from millstream.model.topic import ZERO_TOPIC_ID, TopicPartition
from millstream.spark.lakehouse.batches import Plan
from millstream.spark.lakehouse.batching import (
    BatchLimits,
    ByteLimit,
    SizeEstimate,
    byte_limit,
    deal,
    next_batch,
)
from millstream.spark.lakehouse.landing import Landed
from millstream.spark.lakehouse.ledger import Ledger
from millstream.spark.lakehouse.settings import LoadSettings
from millstream.spark.lakehouse.table import Table
from millstream.spark.lakehouse.topic_reader import TopicEnds, TopicReader
from millstream.spark.ranges import OffsetRange


class Planner:
    """Plans the batches of one load, and learns from each how large records are."""

    def __init__(self, settings: LoadSettings, table: Table) -> None:
        self._table = table
        self._sizes = SizeEstimate()
        self._limits = BatchLimits(
            batch_bytes=settings.batch_limit,
            task_bytes=settings.file_bytes * 2,  # a Parquet file is less than half of its log
        )
        self._checked_epochs: dict[TopicPartition, LeaderEpoch] = {}

    def expect(self, ends: TopicEnds, sizes: Mapping[TopicPartition, int]) -> None:
        """Estimate the size of records; ``sizes`` are the bytes of logs."""
        for topic_partition, size_bytes in sizes.items():
            offsets = ends.latest[topic_partition] - ends.earliest[topic_partition]
            self._sizes.expect(topic_partition.topic, offsets=offsets, size_bytes=size_bytes)

    def plan(
        self,
        ledger: Ledger,
        reader: TopicReader,
        ends: TopicEnds,
        goal: TopicEnds | None,
        started: float,
    ) -> Plan | None:
        """Return the batch that follows a ledger, up to ``goal``; None if there is nothing left.

        Raises RecreatedTopicError and DataLossError.
        """
        latest = up_to(goal, ends)
        positions = self.positions(ledger, reader, ends, latest)
        self._check_epochs(reader, ledger, ends)
        ranges = next_batch(positions, latest, self._sizes, self._limits)
        if not ranges:
            return None
        behind = sum(latest.values()) - sum(positions.values()) - sum(each.size for each in ranges)
        return Plan(ledger, ranges, ends, max(behind, 0), started)

    def positions(
        self,
        ledger: Ledger,
        reader: TopicReader,
        ends: TopicEnds,
        topic_partitions: Iterable[TopicPartition],
    ) -> dict[TopicPartition, Offset]:
        """Return where partitions are read from.

        Raises RecreatedTopicError, and DataLossError for offsets that are lost.
        """
        positions = {}
        for topic_partition in topic_partitions:
            topic_id = ends.topic_ids.get(topic_partition.topic)
            if topic_id is not None:
                ledger.check_topic(topic_partition, topic_id, self._table.name)
            known = ledger.position(topic_partition)
            if known is None:
                positions[topic_partition] = reader.first(topic_partition, ledger, ends)
            else:
                positions[topic_partition] = reader.check(topic_partition, known, ends)
        return positions

    def _check_epochs(self, reader: TopicReader, ledger: Ledger, ends: TopicEnds) -> None:
        """Check that what the table holds is what the topics hold, whenever a leader is new."""
        new = [
            each
            for each, epoch in ends.leader_epochs.items()
            if self._checked_epochs.get(each) != epoch and ledger.epoch(each) >= 0
        ]
        if new:
            read = {each: (ledger.epoch(each), ledger.position(each) or 0) for each in new}
            reader.check_epochs(read, table=self._table.name)
        self._checked_epochs = dict(ends.leader_epochs)

    def size(self, plan: Plan) -> float:
        """Return the estimated bytes of log of a batch."""
        return sum(map(self._sizes.size, plan.ranges))

    def tasks(self, plan: Plan, *, parallelism: int) -> list[list[OffsetRange]]:
        """Return the ranges of each task of a batch, each with its topic's id."""
        ids = plan.ends.topic_ids
        return [
            [replace(e, topic_id=ids.get(e.topic_partition.topic, ZERO_TOPIC_ID)) for e in ranges]
            for ranges in deal(plan.ranges, self._sizes, self._limits, parallelism=parallelism)
        ]

    def byte_limit(self, plan: Plan) -> ByteLimit | None:
        """Return how much the tasks of a batch may read, if the driver holds what they land."""
        return byte_limit(plan.ranges, self._sizes, self._limits)

    def learn_excess(self, landed: Sequence[Landed]) -> bool:
        """Tell whether tasks have stopped because there was more to read than they may, and learn
        from what they have read.
        """
        excess = [each.excess for each in landed if each.excess]
        for each in excess:
            for topic, bytes_per_offset in each.items():
                self._sizes.raise_to(topic, bytes_per_offset)
        return bool(excess)

    def learn(self, plan: Plan, landed: Sequence[Landed]) -> None:
        """Learn from what was landed."""
        ranges = plan.ranges
        for topic in {each.topic_partition.topic for each in ranges}:
            offsets = sum(each.size for each in ranges if each.topic_partition.topic == topic)
            size_bytes = sum(each.read_bytes.get(topic, 0) for each in landed)
            self._sizes.learn(topic, offsets=offsets, size_bytes=size_bytes)


def up_to(goal: TopicEnds | None, ends: TopicEnds) -> dict[TopicPartition, Offset]:
    """Return the offsets up to which is loaded."""
    if goal is None:
        return dict(ends.latest)
    return {p: min(end, ends.latest[p]) for p, end in goal.latest.items() if p in ends.latest}
