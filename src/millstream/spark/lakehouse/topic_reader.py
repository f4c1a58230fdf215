"""The topic metadata of a load: partitions, ids, ends, starting offsets and committed positions."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from millstream.model.errors import MillstreamError
from millstream.model.offsets import LeaderEpoch, Offset
from millstream.model.topic import TopicId, TopicPartition
from millstream.spark.lakehouse.ledger import Ledger
from millstream.spark.leader_epochs import EpochEnd
from millstream.spark.options import Assign, SourceOptions, Subscribe
from millstream.spark.plan import DataLossError, RecreatedTopicError, starting_offsets
from millstream.spark.topics import Topics

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TopicEnds:
    """The subscribed partitions at one moment."""

    earliest: Mapping[TopicPartition, Offset]
    latest: Mapping[TopicPartition, Offset]
    topic_ids: Mapping[str, TopicId]
    leader_epochs: Mapping[TopicPartition, LeaderEpoch] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many partitions topics have of which some are assigned by hand."""

    @property
    def topic_partitions(self) -> Sequence[TopicPartition]:
        """Every partition."""
        return list(self.latest)


class ReplacedRecordsError(MillstreamError):
    """Records were replaced while they were read: they are read again."""


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
            topics.leader_epochs(topic_partitions),
            self._counts(),
        )

    def _counts(self) -> dict[str, int]:
        subscription = self._options.subscription
        if not isinstance(subscription, Assign):
            return {}
        names = {each.topic for each in subscription.partitions}
        found: dict[str, int] = {}
        for each in self._topics.topic_partitions(Subscribe(tuple(sorted(names)))):
            found[each.topic] = max(found.get(each.topic, 0), each.partition + 1)
        return found

    def starts(self, ends: TopicEnds) -> dict[TopicPartition, Offset]:
        """Return the starting offsets of a new load."""
        return starting_offsets(self._topics, self._options, ends.earliest, ends.latest)

    def first(self, topic_partition: TopicPartition, ledger: Ledger, ends: TopicEnds) -> Offset:
        """Return where a partition is read from that a load has not read yet: its first record.

        DataLossError, unless it is allowed, if the partition was added to a topic that the load
        reads, and records of it are gone already.
        """
        earliest = ends.earliest[topic_partition]
        is_assigned = isinstance(self._options.subscription, Assign)
        if earliest > 0 and not is_assigned and ledger.is_added(topic_partition):
            text = f"offsets [0, {earliest}) of {topic_partition}, new here, are not in the log"
            if self._options.fail_on_data_loss:
                raise DataLossError(f"{text} (option failOnDataLoss=false continues after the gap)")
            log.warning("%s", text)
        return earliest

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

    def check_epochs(
        self, epochs: Mapping[TopicPartition, tuple[LeaderEpoch, Offset]], *, table: object
    ) -> None:
        """Raise DataLossError, unless it is allowed, if the log was cut below what a table holds
        and written anew, as an unclean leader election does (Kafka: LogTruncationException).

        ``epochs`` are leader epochs of what was read, and where it ended.
        """
        for topic_partition, end in self._replaced(epochs).items():
            read = epochs[topic_partition][1]
            text = (
                f"the log of {topic_partition} was truncated at offset {max(end, 0)} by an "
                f"unclean leader election, and has new records: {table} has the old ones, up to "
                f"{read}"
            )
            if self._options.fail_on_data_loss:
                raise DataLossError(
                    f"{text} (option failOnDataLoss=false continues behind them; loading into "
                    "another table reads what there is now)"
                )
            log.warning("%s", text)

    def check_unchanged(
        self, ends: TopicEnds, epochs: Mapping[TopicPartition, Sequence[EpochEnd]]
    ) -> None:
        """Raise RecreatedTopicError or ReplacedRecordsError if what was read since ``ends`` is not
        what the topics hold now; then nothing of it may be committed.
        """
        topics = self._topics
        topics.forget()
        now = topics.ids({topic_partition.topic for topic_partition in epochs})
        for topic, topic_id in now.items():
            if ends.topic_ids.get(topic, topic_id) != topic_id:
                raise RecreatedTopicError(
                    f"topic {topic} was deleted and created again while it was loaded"
                )
        leaders = topics.leader_epochs(list(epochs))
        moved = [each for each in epochs if leaders.get(each) != ends.leader_epochs.get(each)]
        for number in range(max((len(epochs[each]) for each in moved), default=0)):
            some = {each: epochs[each][number] for each in moved if number < len(epochs[each])}
            for topic_partition, end in self._replaced(some).items():
                raise ReplacedRecordsError(
                    f"the log of {topic_partition} was cut at offset {max(end, 0)} by an unclean "
                    f"leader election while it was read up to {some[topic_partition][1]}"
                )

    def _replaced(
        self, epochs: Mapping[TopicPartition, tuple[LeaderEpoch, Offset]]
    ) -> dict[TopicPartition, Offset]:
        """Return where the logs end for epochs that were read further than that."""
        known = {each: epoch for each, (epoch, _) in epochs.items() if epoch >= 0}
        found = self._topics.ends_of_epochs(known) if known else {}
        return {
            each: end for each, (epoch, end) in found.items() if epoch < 0 or end < epochs[each][1]
        }

    def commit_to_group(self, group: str, positions: Mapping[TopicPartition, Offset]) -> None:
        """Commit the table's offsets to a consumer group; a failure is only logged, because the
        table has them.
        """
        self._topics.commit(group, positions)
