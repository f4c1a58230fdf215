"""What a load asks of the brokers: partitions, ids, ends; and where it begins and has come to."""

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
    """Looks at the topics of one load; every call sees topics and partitions that are new."""

    def __init__(self, topics: Topics, options: SourceOptions) -> None:
        self._topics = topics
        self._options = options

    def read(self, options: SourceOptions) -> None:
        """Look at other topics from now on."""
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
        """Return where a load begins that has nothing yet."""
        return starting_offsets(self._topics, self._options, ends.earliest, ends.latest)

    def check(self, topic_partition: TopicPartition, position: Offset, ends: TopicEnds) -> Offset:
        """Return where reading goes on; DataLossError for offsets that are gone and count."""
        earliest, latest = ends.earliest[topic_partition], ends.latest[topic_partition]
        if earliest <= position <= latest:
            return position
        if position > latest and self._options.kafka.read_committed:
            return position  # a transaction that is open again: its end will come
        lost = (position, earliest) if position < earliest else (latest, position)
        text = (
            f"offsets [{lost[0]}, {lost[1]}) of {topic_partition} are not in the log: "
            f"it holds [{earliest}, {latest})"
        )
        if self._options.fail_on_data_loss or position > latest:
            raise DataLossError(f"{text} (option failOnDataLoss=false goes on behind the gap)")
        log.warning("%s", text)
        return earliest

    def commit_to_group(self, group: str, positions: Mapping[TopicPartition, Offset]) -> None:
        """Show a consumer group how far the table is; a failure is logged, for the table counts."""
        self._topics.commit(group, positions)
