"""The batches of a load: planned, landed, ready to be committed, and committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import pyarrow as pa

from millstream.spark.lakehouse.data_files import DataFile
from millstream.spark.lakehouse.landing import Landed
from millstream.spark.lakehouse.ledger import Ledger
from millstream.spark.lakehouse.topic_reader import TopicEnds
from millstream.spark.ranges import OffsetRange


class Verdict(Enum):
    """What is to be done with what the tasks of a batch have landed."""

    COMMIT = 1
    LAND_AGAIN = 2
    """Values need columns that the table did not have; it has them now."""
    PLAN_AGAIN = 3
    """It is more than the driver may hold: its files are removed, and the next plan is smaller."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The next batch of a table."""

    ledger: Ledger
    """The ledger that it follows: the table's, or what it will be once the batch before is in."""
    ranges: Sequence[OffsetRange]
    ends: TopicEnds
    behind: int
    """Offsets that remain after it."""
    started: float

    @property
    def batch(self) -> int:
        """Return its number."""
        return self.ledger.batch + 1

    @property
    def size(self) -> int:
        """Return how many offsets it has."""
        return sum(each.size for each in self.ranges)

    @property
    def beginnings(self) -> list[OffsetRange]:
        """Return empty ranges where the other partitions begin of topics that no batch before has
        had, or that had some of their partitions assigned. They are there already, so what their
        logs have lost by now was never to be loaded.
        """
        read = {each.topic_partition for each in self.ranges}
        topics = {each.topic for each in read}
        return [
            OffsetRange(topic_partition, earliest, earliest)
            for topic_partition, earliest in self.ends.earliest.items()
            if topic_partition not in read
            and self.ledger.position(topic_partition) is None
            and topic_partition.topic in topics
            and not self.ledger.is_added(topic_partition)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A batch whose files are checked, and that nothing but its commit is left of."""

    plan: Plan
    landed: Sequence[Landed]
    schema: pa.Schema
    """The columns that it was landed with."""
    entries: Mapping[str, int]
    """What the commit changes in the ledger."""
    reasons: Mapping[str, int]
    """Why records are dead letters, and how many."""

    @property
    def files(self) -> list[DataFile]:
        """The files of the table, or those of its changes."""
        return [file for each in self.landed for file in each.files]

    @property
    def rejected(self) -> int:
        """The number of dead letters."""
        return sum(each.rejected for each in self.landed)

    @property
    def ledger(self) -> Ledger:
        """The ledger behind its commit."""
        return Ledger({**self.plan.ledger.entries, **self.entries})


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """The result of one batch."""

    batch: int
    rows: int
    dead_letters: int
    read_bytes: int
    files: int
    behind: int
    """Offsets that were in the topics when the batch was planned and are not in the table."""
    seconds: float
    """Since it was planned, or since the batch before was committed, if that was later."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Why records are dead letters, and how many."""
    offsets: int = 0
    """Offsets that the batch has moved the table on by."""
    written_bytes: int = 0
    """Bytes of its files."""
    lag_seconds: float | None = None
    """Age of the last record of the partition that is furthest back, 0 when none of the batch is
    behind; None where the tasks do not tell.
    """
    paths: Sequence[str] = ()
    """Its files, relative to the table."""
    by_topic: Mapping[str, BatchReport] = field(default_factory=dict)
    """The reports of the tables that were loaded together."""
