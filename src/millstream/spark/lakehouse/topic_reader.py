"""The topic metadata of a load: partitions, ids, ends, starting offsets and committed positions."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millstream.model.offsets import Offset
from millstream.model.topic import TopicId, TopicPartition
from millstream.spark.options import SourceOptions
from millstream.spark.plan import DataLossError, starting_offsets
from millstream.spark.topics import Topics

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TopicEnds:
    """The subscribed partitions at one moment."""

    earliest: Mapping[TopicPartition, Offset]
    latest: Mapping[TopicPartition, Offset]
    topic_ids: Mapping[str, TopicId]

    @property
    def topic_partitions(self) -> Sequence[TopicPartition]:
        """Every partition."""
        return list(self.latest)


class TopicReader:
    """Reads the topics of one load; every call includes new topics and partitions."""

    def __init__(self, topics: Topics, options: SourceOptions) -> None:
        self._topics = topics
        self._options = options

    def read(self, options: SourceOptions) -> None:
        """Change the subscription."""
        self._options = options

    def ends(self) -> TopicEnds:
        """Return partitions, ends and topic ids as they are now."""
        topics = self._topics
        topics.forget()
        topic_partitions = topics.topic_partitions(self._options.subscription)
        return TopicEnds(
            topics.earliest(topic_partitions),
            topics.latest(topic_partitions, read_committed=self._options.kafka.read_committed),
            topics.ids({topic_partition.topic for topic_partition in topic_partitions}),
        )

    def starts(self, ends: TopicEnds) -> dict[TopicPartition, Offset]:
        """Return the starting offsets of a new load."""
        return starting_offsets(self._topics, self._options, ends.earliest, ends.latest)

    def check(self, topic_partition: TopicPartition, position: Offset, ends: TopicEnds) -> Offset:
        """Return the positions to continue from; DataLossError for lost offsets, unless allowed."""
        earliest, latest = ends.earliest[topic_partition], ends.latest[topic_partition]
        if earliest <= position <= latest:
            return position
        if position > latest and self._options.kafka.read_committed:
            return position  # the end went back because of an open transaction
        lost = (position, earliest) if position < earliest else (latest, position)
        text = (
            f"offsets [{lost[0]}, {lost[1]}) of {topic_partition} are not in the log: "
            f"it holds [{earliest}, {latest})"
        )
        if self._options.fail_on_data_loss or position > latest:
            raise DataLossError(f"{text} (option failOnDataLoss=false continues after the gap)")
        log.warning("%s", text)
        return earliest

    def commit_to_group(self, group: str, positions: Mapping[TopicPartition, Offset]) -> None:
        """Commit the table's offsets to a consumer group; a failure is only logged, because the
        table has them.
        """
        self._topics.commit(group, positions)
