"""What a read asks of its topics before it reads: partitions, ends, ids, sizes, times.

Two answer: the brokers of a cluster, and, where there is none, the log directories themselves
(`log_files.topics`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

from millstream.client.cluster import Cluster, partitions_of
from millstream.client.errors import ClientError, UnsupportedVersionError
from millstream.client.groups import commit_offsets
from millstream.client.log_dirs import describe_log_dirs
from millstream.client.offsets import EARLIEST, LATEST, end_offsets, find_offsets
from millstream.client.settings import ClientSettings, parse_bootstrap_servers
from millstream.model.errors import ConfigError, ErrorCode, KafkaError
from millstream.model.offsets import Offset
from millstream.model.topic import ZERO_TOPIC_ID, TopicId, TopicPartition
from millstream.spark.kafka_settings import KafkaSettings
from millstream.spark.options import (
    Assign,
    SourceOptions,
    Subscribe,
    SubscribePattern,
    Subscription,
)

log = logging.getLogger(__name__)

T = TypeVar("T")


class Topics(Protocol):
    """The topics of one read, for as long as it is planned."""

    def __enter__(self) -> Topics:
        """Return itself."""

    def __exit__(self, *_: object) -> None:
        """Close."""

    def close(self) -> None:
        """Let go of connections."""

    def forget(self) -> None:
        """Look anew from here on: topics and partitions may have come or gone."""

    def places(self, subscription: Subscription) -> list[TopicPartition]:
        """Return the partitions that are read; ConfigError names the option when one is missing."""

    def earliest(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Return where each log starts."""

    def latest(
        self, places: Sequence[TopicPartition], *, read_committed: bool
    ) -> dict[TopicPartition, Offset]:
        """Return the offset after the last one that may be read."""

    def at_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Offset | None]:
        """Return the first offset at or after each time (ms); None where there is none."""

    def ids(self, names: Iterable[str]) -> dict[str, TopicId]:
        """Return the ids of topics, those that have one."""

    def sizes(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the bytes of each log; empty where nobody tells."""

    def commit(self, group: str, positions: Mapping[TopicPartition, Offset]) -> None:
        """Show a consumer group how far a load is; a failure is logged and nothing more."""


def open_topics(options: SourceOptions) -> Topics:
    """Return the brokers of ``kafka.bootstrap.servers``, or, without that, the log directories."""
    if options.kafka.bootstrap_servers:
        return ClusterTopics(connect(options.kafka))
    from millstream.spark.log_files.topics import FileTopics

    return FileTopics(options.log_dirs)


def connect(settings: KafkaSettings) -> Cluster:
    """Return the cluster that ``kafka.bootstrap.servers`` names; ConfigError names the option."""
    try:
        addresses = parse_bootstrap_servers(settings.bootstrap_servers)
    except ConfigError as error:
        raise ConfigError(f"option kafka.bootstrap.servers: {error}") from None
    return Cluster(
        ClientSettings(
            bootstrap_servers=addresses,
            client_id=settings.client_id,
            request_timeout_ms=settings.request_timeout_ms,
        )
    )


class ClusterTopics:
    """The brokers answer."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def __enter__(self) -> ClusterTopics:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """See :class:`Topics`."""
        self._cluster.close()

    def forget(self) -> None:
        """See :class:`Topics`."""
        self._cluster.forget()

    def places(self, subscription: Subscription) -> list[TopicPartition]:
        """See :class:`Topics`."""
        cluster = self._cluster
        match subscription:
            case Assign():
                for place in subscription.partitions:
                    _existing("assign", partial(cluster.partition, place))
                return list(subscription.partitions)
            case Subscribe():
                return partitions_of(
                    [
                        _existing("subscribe", partial(cluster.topic, name))
                        for name in subscription.topics
                    ]
                )
            case SubscribePattern():
                pattern = re.compile(subscription.pattern)
                names = sorted(
                    topic.name
                    for topic in cluster.metadata().topics.values()
                    if not topic.is_internal and pattern.fullmatch(topic.name)
                )
                return partitions_of([cluster.topic(name) for name in names])

    def earliest(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, Offset]:
        """See :class:`Topics`."""
        return end_offsets(self._cluster, places, which=EARLIEST)

    def latest(
        self, places: Sequence[TopicPartition], *, read_committed: bool
    ) -> dict[TopicPartition, Offset]:
        """See :class:`Topics`."""
        return end_offsets(self._cluster, places, which=LATEST, read_committed=read_committed)

    def at_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Offset | None]:
        """See :class:`Topics`."""
        found = find_offsets(self._cluster, timestamps)
        return {place: None if each is None else each.offset for place, each in found.items()}

    def ids(self, names: Iterable[str]) -> dict[str, TopicId]:
        """See :class:`Topics`."""
        ids = {name: self._cluster.topic(name).topic_id for name in names}
        return {name: each for name, each in ids.items() if each != ZERO_TOPIC_ID}

    def sizes(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """See :class:`Topics`."""
        try:
            replicas = describe_log_dirs(self._cluster)
        except (KafkaError, UnsupportedVersionError, ClientError) as error:
            log.warning("no broker tells the sizes of logs: %s", error)
            return {}
        wanted = set(places)
        sizes: dict[TopicPartition, int] = {}
        for each in replicas:
            place = each.topic_partition
            if place in wanted:
                sizes[place] = max(sizes.get(place, 0), each.size_bytes)
        return sizes

    def commit(self, group: str, positions: Mapping[TopicPartition, Offset]) -> None:
        """See :class:`Topics`."""
        try:
            commit_offsets(self._cluster, group, positions)
        except (ClientError, KafkaError) as error:
            log.warning("the offsets of group %s were not committed: %s", group, error)


def _existing(option: str, find: Callable[[], T]) -> T:
    try:
        return find()
    except KafkaError as error:
        if error.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise ConfigError(f"option {option}: {error.message} does not exist") from None
        raise
