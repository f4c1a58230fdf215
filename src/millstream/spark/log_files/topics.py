"""The metadata of topics from log directories, without a broker.

A log is readable up to what the broker wrote last: the high watermark in its checkpoint, some
seconds old while it runs, and the log end once it has stopped cleanly.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from millstream.model.errors import ConfigError
from millstream.model.offsets import LeaderEpoch, Offset
from millstream.model.topic import INTERNAL_TOPICS, TopicId, TopicPartition
from millstream.spark.log_files.headers import first_unstable, log_end, offset_at_time
from millstream.spark.log_files.segments import list_segments
from millstream.spark.options import Assign, Subscribe, SubscribePattern, Subscription
from millstream.storage.checkpoint import HIGH_WATERMARKS, LOG_START_OFFSETS, parse_offsets
from millstream.storage.directory import (
    CLUSTER_METADATA_TOPIC,
    PARTITION_METADATA,
    DirectoryKind,
    directory_name,
    parse_directory_name,
)
from millstream.storage.log_directory import CLEAN_SHUTDOWN_MARKER
from millstream.storage.partition_metadata import parse_partition_metadata

log = logging.getLogger(__name__)


def find_partition(log_dirs: Sequence[str], topic_partition: TopicPartition) -> Path | None:
    """Return the directory of a partition, None where no log directory has it."""
    name = directory_name(topic_partition, DirectoryKind.CURRENT)
    return next(
        (path for directory in log_dirs if (path := Path(directory, name)).is_dir()),
        None,
    )


def topic_id_of(directory: Path) -> TopicId | None:
    """Return the topic id of a partition's directory; None where it has none."""
    try:
        return parse_partition_metadata((directory / PARTITION_METADATA).read_text("utf-8"))
    except FileNotFoundError:
        return None


class FileTopics:
    """Topics over log directories. Every call reads the files again."""

    def __init__(self, log_dirs: Sequence[str]) -> None:
        for directory in log_dirs:
            if not Path(directory).is_dir():
                raise ConfigError(f"option logDirs: there is no directory {directory}")
        self._log_dirs = log_dirs

    def __enter__(self) -> FileTopics:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def forget(self) -> None:
        """Do nothing: nothing is cached."""

    def topic_partitions(self, subscription: Subscription) -> list[TopicPartition]:
        """See :class:`millstream.spark.topics.Topics`."""
        found = self._all()
        match subscription:
            case Assign():
                for topic_partition in subscription.partitions:
                    if topic_partition not in found:
                        raise ConfigError(
                            f"option assign: partition {topic_partition} does not exist"
                        )
                return list(subscription.partitions)
            case Subscribe():
                topics = {topic_partition.topic for topic_partition in found}
                for name in subscription.topics:
                    if name not in topics:
                        raise ConfigError(f"option subscribe: topic {name!r} does not exist")
                return [p for name in subscription.topics for p in found if p.topic == name]
            case SubscribePattern():
                pattern = re.compile(subscription.pattern)
                return [
                    topic_partition
                    for topic_partition in found
                    if topic_partition.topic not in INTERNAL_TOPICS
                    and pattern.fullmatch(topic_partition.topic)
                ]

    def earliest(self, topic_partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Offset]:
        """See :class:`millstream.spark.topics.Topics`."""
        kept = self._checkpoints(LOG_START_OFFSETS)
        starts = {}
        for topic_partition in topic_partitions:
            segments = list_segments(self._directory(topic_partition))
            first = segments[0].base_offset if segments else 0
            starts[topic_partition] = max(first, kept.get(topic_partition, 0))
        return starts

    def latest(
        self, topic_partitions: Sequence[TopicPartition], *, read_committed: bool
    ) -> dict[TopicPartition, Offset]:
        """See :class:`millstream.spark.topics.Topics`."""
        high_watermarks = self._checkpoints(HIGH_WATERMARKS)
        starts = self.earliest(topic_partitions)
        ends = {}
        for topic_partition in topic_partitions:
            directory = self._directory(topic_partition)
            if (directory.parent / CLEAN_SHUTDOWN_MARKER).exists():
                end = log_end(directory, list_segments(directory))
            else:
                end = high_watermarks.get(topic_partition, 0)
            end = max(end, starts[topic_partition])
            ends[topic_partition] = (
                first_unstable(directory, starts[topic_partition], end) if read_committed else end
            )
        return ends

    def at_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Offset | None]:
        """See :class:`millstream.spark.topics.Topics`."""
        topic_partitions = list(timestamps)
        starts, ends = (
            self.earliest(topic_partitions),
            self.latest(topic_partitions, read_committed=False),
        )
        return {
            topic_partition: offset_at_time(
                self._directory(topic_partition),
                timestamps[topic_partition],
                starts[topic_partition],
                ends[topic_partition],
            )
            for topic_partition in topic_partitions
        }

    def ids(self, names: Iterable[str]) -> dict[str, TopicId]:
        """See :class:`millstream.spark.topics.Topics`."""
        wanted = set(names)
        ids: dict[str, TopicId] = {}
        for topic_partition in self._all():
            if topic_partition.topic in wanted and topic_partition.topic not in ids:
                topic_id = topic_id_of(self._directory(topic_partition))
                if topic_id is not None:
                    ids[topic_partition.topic] = topic_id
        return ids

    def leader_epochs(
        self, topic_partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, LeaderEpoch]:
        """Return {}: files do not tell who leads."""
        return {}

    def ends_of_epochs(
        self, epochs: Mapping[TopicPartition, LeaderEpoch]
    ) -> dict[TopicPartition, tuple[LeaderEpoch, Offset]]:
        """Return {}: a replica's own files say nothing about its leader's log."""
        return {}

    def sizes(self, topic_partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """See :class:`millstream.spark.topics.Topics`."""
        return {
            topic_partition: sum(
                each.size_bytes for each in list_segments(self._directory(topic_partition))
            )
            for topic_partition in topic_partitions
        }

    def commit(self, group: str, positions: Mapping[TopicPartition, Offset]) -> None:
        """Log that there is no group without a broker."""
        log.debug("offsets are not committed to group %s: there is no broker", group)

    def _all(self) -> list[TopicPartition]:
        found = set()
        for directory in self._log_dirs:
            for path in Path(directory).iterdir():
                parsed = parse_directory_name(path.name)
                if (
                    parsed is not None
                    and parsed[1] is DirectoryKind.CURRENT
                    and parsed[0].topic != CLUSTER_METADATA_TOPIC
                    and path.is_dir()
                ):
                    found.add(parsed[0])
        return sorted(found)

    def _directory(self, topic_partition: TopicPartition) -> Path:
        directory = find_partition(self._log_dirs, topic_partition)
        if directory is None:
            raise ConfigError(f"{topic_partition} is in none of {', '.join(self._log_dirs)}")
        return directory

    def _checkpoints(self, name: str) -> dict[TopicPartition, Offset]:
        found: dict[TopicPartition, Offset] = {}
        for directory in self._log_dirs:
            try:
                found |= parse_offsets((Path(directory) / name).read_text("utf-8"))
            except FileNotFoundError:
                continue
        return found
