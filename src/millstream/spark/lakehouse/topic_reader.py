"""What a load asks of the brokers: partitions, ids, ends; and where it begins and has come to."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millstream.client.cluster import Cluster
from millstream.client.errors import ClientError
from millstream.client.groups import commit_offsets
from millstream.client.offsets import EARLIEST, LATEST, end_offsets
from millstream.model.errors import KafkaError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicId, TopicPartition
from millstream.spark.options import SourceOptions
from millstream.spark.plan import DataLossError, places_of, starting_offsets

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TopicEnds:
    """The subscribed partitions at one moment."""

    earliest: Mapping[TopicPartition, Offset]
    latest: Mapping[TopicPartition, Offset]
    topic_ids: Mapping[str, TopicId]

    @property
    def places(self) -> Sequence[TopicPartition]:
        """Every partition."""
        return list(self.latest)


class TopicReader:
    """Looks at the topics of one load; every call sees topics and partitions that are new."""

    def __init__(self, cluster: Cluster, options: SourceOptions) -> None:
        self._cluster = cluster
        self._options = options

    def ends(self) -> TopicEnds:
        """Return partitions, ends and topic ids as they are now."""
        self._cluster.forget()
        places = places_of(self._cluster, self._options.subscription)
        committed = self._options.kafka.read_committed
        return TopicEnds(
            end_offsets(self._cluster, places, which=EARLIEST),
            end_offsets(self._cluster, places, which=LATEST, read_committed=committed),
            {name: self._cluster.topic(name).topic_id for name in {p.topic for p in places}},
        )

    def starts(self, ends: TopicEnds) -> dict[TopicPartition, Offset]:
        """Return where a load begins that has nothing yet."""
        return starting_offsets(self._cluster, self._options, ends.earliest, ends.latest)

    def check(self, place: TopicPartition, position: Offset, ends: TopicEnds) -> Offset:
        """Return where reading goes on; DataLossError for offsets that are gone and count."""
        earliest, latest = ends.earliest[place], ends.latest[place]
        if earliest <= position <= latest:
            return position
        if position > latest and self._options.kafka.read_committed:
            return position  # a transaction that is open again: its end will come
        lost = (position, earliest) if position < earliest else (latest, position)
        text = (
            f"offsets [{lost[0]}, {lost[1]}) of {place} are not in the log: "
            f"it holds [{earliest}, {latest})"
        )
        if self._options.fail_on_data_loss or position > latest:
            raise DataLossError(f"{text} (option failOnDataLoss=false goes on behind the gap)")
        log.warning("%s", text)
        return earliest

    def commit_to_group(self, group: str, positions: Mapping[TopicPartition, Offset]) -> None:
        """Show a consumer group how far the table is; a failure is logged, for the table counts."""
        try:
            commit_offsets(self._cluster, group, positions)
        except (ClientError, KafkaError) as error:
            log.warning("the offsets of group %s were not committed: %s", group, error)
