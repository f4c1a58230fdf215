"""The metadata that a read needs of its topics: partitions, ends, ids, sizes, offsets by time.

There are two implementations: over the brokers of a cluster, and, without one, over the log
directories (`log_files.topics`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Protocol, TypeVar

from millstream.client import Admin
from millstream.client.cluster import Cluster
from millstream.client.errors import ClientError, UnsupportedVersionError
from millstream.client.metadata import Topic
from millstream.client.offsets import EARLIEST, LATEST, end_offsets, ends_of_epochs
from millstream.client.settings import ClientSettings, parse_bootstrap_servers
from millstream.model.errors import ConfigError, ErrorCode, KafkaError
from millstream.model.offsets import LeaderEpoch, Offset
from millstream.model.topic import ZERO_TOPIC_ID, TopicId, TopicPartition
from millstream.spark.kafka_settings import KafkaSettings
from millstream.spark.options import (
    Assign,
    SourceOptions,
    Subscribe,
    SubscribePattern,
    Subscription,
)
from millstream.spark.security_options import open_settings

log = logging.getLogger(__name__)

T = TypeVar("T")


class Topics(Protocol):
    """The topics of one read, for as long as it is planned."""

    def __enter__(self) -> Topics:
        """Return itself."""

    def __exit__(self, *_: object) -> None:
        """Close."""

    def close(self) -> None:
        """Close the connections."""

    def forget(self) -> None:
        """Drop cached metadata: topics and partitions may have been created or deleted."""

    def topic_partitions(self, subscription: Subscription) -> list[TopicPartition]:
        """Return the partitions that are read; ConfigError names the option when one is missing."""

    def earliest(self, topic_partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Return the first offset of each log."""

    def latest(
        self, topic_partitions: Sequence[TopicPartition], *, read_committed: bool
    ) -> dict[TopicPartition, Offset]:
        """Return the offset after the last one that may be read."""

    def at_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Offset | None]:
        """Return the first offset at or after each time (ms); None where there is none."""

    def ids(self, names: Iterable[str]) -> dict[str, TopicId]:
        """Return the ids of topics, those that have one."""

    def leader_epochs(
        self, topic_partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, LeaderEpoch]:
        """Return the epochs of the leaders, those that are known."""

    def ends_of_epochs(
        self, epochs: Mapping[TopicPartition, LeaderEpoch]
    ) -> dict[TopicPartition, tuple[LeaderEpoch, Offset]]:
        """Return where the logs end for these leader epochs, −1 where they have none (KIP-320);
        nothing where that cannot be asked.
        """

    def sizes(self, topic_partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the bytes of each log; empty if that is unknown."""

    def commit(self, group: str, positions: Mapping[TopicPartition, Offset]) -> None:
        """Commit the progress of a load to a consumer group; a failure is only logged."""


def open_topics(options: SourceOptions) -> Topics:
    """Return the brokers of ``kafka.bootstrap.servers``, or, without that, the log directories."""
    if options.kafka.bootstrap_servers:
        return ClusterTopics(options.kafka)
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
            security=open_settings(settings.security),
        )
    )


class ClusterTopics:
    """Topics over brokers; an administrator, created on demand, does the requests that a reader has
    not.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._cluster = connect(settings)
        self._admin: Admin | None = None

    def __enter__(self) -> ClusterTopics:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """See :class:`Topics`."""
        self._cluster.close()
        if self._admin is not None:
            self._admin.close()

    def _administrator(self) -> Admin:
        if self._admin is None:
            self._admin = Admin(
                self._settings.security,
                bootstrap_servers=self._settings.bootstrap_servers,
                client_id=self._settings.client_id,
                default_api_timeout_ms=self._settings.request_timeout_ms,
            )
        return self._admin

    def forget(self) -> None:
        """See :class:`Topics`."""
        self._cluster.forget()

    def topic_partitions(self, subscription: Subscription) -> list[TopicPartition]:
        """See :class:`Topics`."""
        cluster = self._cluster
        match subscription:
            case Assign():
                for topic_partition in subscription.partitions:
                    _existing("assign", partial(cluster.partition, topic_partition))
                return list(subscription.partitions)
            case Subscribe():
                return _partitions_of(
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
                return _partitions_of([cluster.topic(name) for name in names])

    def earliest(self, topic_partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Offset]:
        """See :class:`Topics`."""
        return end_offsets(self._cluster, topic_partitions, which=EARLIEST)

    def latest(
        self, topic_partitions: Sequence[TopicPartition], *, read_committed: bool
    ) -> dict[TopicPartition, Offset]:
        """See :class:`Topics`."""
        return end_offsets(
            self._cluster, topic_partitions, which=LATEST, read_committed=read_committed
        )

    def at_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Offset | None]:
        """See :class:`Topics`."""
        found = self._administrator().list_offsets(timestamps).get_all()
        return {
            topic_partition: None if each is None else each.offset
            for topic_partition, each in found.items()
        }

    def ids(self, names: Iterable[str]) -> dict[str, TopicId]:
        """See :class:`Topics`."""
        ids = {name: self._cluster.topic(name).topic_id for name in names}
        return {name: each for name, each in ids.items() if each != ZERO_TOPIC_ID}

    def leader_epochs(
        self, topic_partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, LeaderEpoch]:
        """See :class:`Topics`."""
        found = {each: self._cluster.partition(each).leader_epoch for each in topic_partitions}
        return {each: epoch for each, epoch in found.items() if epoch >= 0}

    def ends_of_epochs(
        self, epochs: Mapping[TopicPartition, LeaderEpoch]
    ) -> dict[TopicPartition, tuple[LeaderEpoch, Offset]]:
        """See :class:`Topics`."""
        try:
            return ends_of_epochs(self._cluster, epochs)
        except UnsupportedVersionError:
            return {}

    def sizes(self, topic_partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """See :class:`Topics`."""
        try:
            brokers = (
                self._administrator().describe_log_dirs(topic_partitions=topic_partitions).get_all()
            )
        except (KafkaError, UnsupportedVersionError, ClientError) as error:
            log.warning("the sizes of the logs are unknown: %s", error)
            return {}
        sizes: dict[TopicPartition, int] = {}
        for directory in chain.from_iterable(brokers.values()):
            for topic_partition, replica in directory.replicas.items():
                if not replica.is_future:
                    sizes[topic_partition] = max(sizes.get(topic_partition, 0), replica.size_bytes)
        return sizes

    def commit(self, group: str, positions: Mapping[TopicPartition, Offset]) -> None:
        """See :class:`Topics`."""
        commit_positions(self._administrator(), group, positions)


def commit_positions(admin: Admin, group: str, positions: Mapping[TopicPartition, Offset]) -> None:
    """Set a group's offsets; errors are only logged."""
    try:
        admin.alter_group_offsets(group, positions).get_all()
    except (ClientError, KafkaError) as error:
        log.warning("the offsets of group %s were not committed: %s", group, error)


def _partitions_of(topics: Iterable[Topic]) -> list[TopicPartition]:
    return [each.topic_partition for topic in topics for each in topic.partitions]


def _existing(option: str, find: Callable[[], T]) -> T:
    try:
        return find()
    except KafkaError as error:
        if error.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise ConfigError(f"option {option}: {error.message} does not exist") from None
        raise
