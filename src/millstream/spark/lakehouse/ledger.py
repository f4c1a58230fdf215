"""The ledger of a load in its table: the next offset of each partition. Pure.

A load has a permanent name, its ``app_id``. A table stores integers by name for it and changes them
in the same commit as its data, so data and offsets cannot diverge::

    batch                      number of the last batch, from 1 on
    rejects                    number of the manifest of the last batch with dead letters
    <topic>/<partition>        the first offset that is not in the table
    <topic>/<partition>/start  the offset at which the load began
    <topic>/<partition>/epoch  the leader epoch of the last record, and 1; 0: unknown (KIP-320)
    <topic>/<partition>/id     the topic's id, folded to 63 bits: a recreated topic has another
    <topic>/partitions         how many partitions the topic had, where only some were assigned

The table of the dead letters has the same entries and, for ``rejects``, ``applied``: the number of
the manifest that it got last (``dead_letter_commits``).

A committed batch is never written again: every planner starts from the ledger, and of two planners
that start from the same state only the first can commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from millstream.model.offsets import LeaderEpoch, Offset
from millstream.model.topic import ZERO_TOPIC_ID, TopicId, TopicPartition
from millstream.spark.leader_epochs import EpochEnd
from millstream.spark.plan import RecreatedTopicError
from millstream.spark.ranges import OffsetRange

__all__ = ["Ledger", "RecreatedTopicError", "after", "keys"]

BATCH: Final = "batch"
REJECTS: Final = "rejects"
APPLIED: Final = "applied"
_FOLD: Final = (1 << 63) - 1


def unknown_load(app_id: str) -> str:
    """Return the error message for a load that has no ledger in the table."""
    return (
        f"no load of the name {app_id} has written to this table; --app-id takes the name of the "
        "load that has: the one in its pipeline.toml, or load:TOPICS as the load was given them"
    )


@dataclass(frozen=True, slots=True)
class Ledger:
    """The numbers of one load in one table, as they were read."""

    entries: Mapping[str, int]

    @property
    def batch(self) -> int:
        """Number of the last batch in the table; 0 when there is none."""
        return self.entries.get(BATCH, 0)

    def position(self, topic_partition: TopicPartition) -> Offset | None:
        """Return the first offset that is not in the table; None for a partition never loaded."""
        return self.entries.get(position_key(topic_partition))

    def has_topic(self, topic: str) -> bool:
        """Tell whether a partition of a topic was loaded."""
        return any(key.startswith(f"{topic}/") for key in self.entries)

    def is_added(self, topic_partition: TopicPartition) -> bool:
        """Tell whether a partition without an offset came to a topic that was loaded before.

        Others were there, and were not assigned: nothing of them was to be loaded.
        """
        topic = topic_partition.topic
        known = self.entries.get(_count_key(topic), 0)
        return self.has_topic(topic) and topic_partition.partition >= known

    def epoch(self, topic_partition: TopicPartition) -> LeaderEpoch:
        """Return the leader epoch of the batch before the position; −1 if it is unknown."""
        return self.entries.get(_epoch_key(topic_partition), 0) - 1

    def is_of(self, topic_partition: TopicPartition, topic_id: TopicId) -> bool:
        """Tell whether a partition's offsets are of this topic id; True if the id is unknown."""
        known = self.entries.get(_id_key(topic_partition))
        return not known or topic_id == ZERO_TOPIC_ID or known == fold(topic_id)

    def check_topic(
        self, topic_partition: TopicPartition, topic_id: TopicId, table: object
    ) -> None:
        """Raise RecreatedTopicError when the partition was loaded from another topic's log."""
        if not self.is_of(topic_partition, topic_id):
            raise RecreatedTopicError(
                f"topic {topic_partition.topic} was deleted and created again after offset "
                f"{self.position(topic_partition)} of {topic_partition} was loaded into {table}: "
                "its offsets begin at 0 again. Load it into another table, or under another app id"
            )


def position_key(topic_partition: TopicPartition) -> str:
    """Return the name under which a partition's next offset is kept."""
    return f"{topic_partition.topic}/{topic_partition.partition}"


def start_key(topic_partition: TopicPartition) -> str:
    """Return the name under which a partition's first offset is kept."""
    return f"{position_key(topic_partition)}/start"


def _id_key(topic_partition: TopicPartition) -> str:
    return f"{position_key(topic_partition)}/id"


def _epoch_key(topic_partition: TopicPartition) -> str:
    return f"{position_key(topic_partition)}/epoch"


def _count_key(topic: str) -> str:
    return f"{topic}/partitions"


def fold(topic_id: TopicId) -> int:
    """Return a topic id as a number of 63 bits, never 0."""
    number = int.from_bytes(topic_id, "big")
    return (number ^ (number >> 64)) & _FOLD or 1


def keys(topic_partitions: Iterable[TopicPartition]) -> list[str]:
    """Return every name that a load of these partitions keeps."""
    kept = (position_key, start_key, _id_key, _epoch_key)
    topic_partitions = list(topic_partitions)
    return [
        *(BATCH, REJECTS, APPLIED),
        *(name(topic_partition) for topic_partition in topic_partitions for name in kept),
        *map(_count_key, sorted({each.topic for each in topic_partitions})),
    ]


def after(
    ledger: Ledger,
    ranges: Iterable[OffsetRange],
    topic_ids: Mapping[str, TopicId],
    epochs: Mapping[TopicPartition, Sequence[EpochEnd]] = MappingProxyType({}),
    *,
    counts: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, int]:
    """Return the changes of the ledger for a commit of ``ranges``; ``epochs`` are those of the
    batches that were read, ``counts`` the partitions of topics that were assigned.

    Several ranges of one partition must follow each other, and the first one the ledger.
    """
    changed = {BATCH: ledger.batch + 1}
    for each in sorted(ranges, key=lambda each: (each.topic_partition, each.start)):
        topic_partition = each.topic_partition
        known = changed.get(position_key(topic_partition), ledger.position(topic_partition))
        assert known is None or known <= each.start, f"{each} is in the table up to {known}"
        if known is None:
            changed[start_key(topic_partition)] = each.start
        changed[position_key(topic_partition)] = each.end
        # Only of a batch that reaches to the position: behind another one, compaction may have
        # removed batches of later epochs.
        read = epochs.get(topic_partition, ())
        last = read[-1][0] if read and read[-1][1] >= each.end else -1
        if last >= 0 or ledger.epoch(topic_partition) >= 0:
            changed[_epoch_key(topic_partition)] = last + 1
        topic_id = topic_ids.get(topic_partition.topic, ZERO_TOPIC_ID)
        if topic_id != ZERO_TOPIC_ID:
            changed[_id_key(topic_partition)] = fold(topic_id)
        count_key = _count_key(topic_partition.topic)
        count = counts.get(topic_partition.topic, 0)
        if count > ledger.entries.get(count_key, 0):
            changed[count_key] = count
    return changed
