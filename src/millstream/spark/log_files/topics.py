"""Topics as log directories tell of them, without a broker.

How far a log may be read is what the broker wrote down last: the high watermark in its checkpoint,
some seconds old while it runs, and the log's end once it has stopped cleanly.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from millstream.model.errors import ConfigError
from millstream.model.offsets import Offset
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


def find_partition(log_dirs: Sequence[str], place: TopicPartition) -> Path | None:
    """Return the directory of a partition, None where no log directory has it."""
    name = directory_name(place, DirectoryKind.CURRENT)
    return next(
        (path for directory in log_dirs if (path := Path(directory, name)).is_dir()),
        None,
    )


class FileTopics:
    """Log directories answer. Every question looks at the files anew."""

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
        """Nothing is open."""

    def forget(self) -> None:
        """Nothing is remembered."""

    def places(self, subscription: Subscription) -> list[TopicPartition]:
        """See :class:`millstream.spark.topics.Topics`."""
        found = self._all()
        match subscription:
            case Assign():
                for place in subscription.partitions:
                    if place not in found:
                        raise ConfigError(f"option assign: partition {place} does not exist")
                return list(subscription.partitions)
            case Subscribe():
                topics = {place.topic for place in found}
                for name in subscription.topics:
                    if name not in topics:
                        raise ConfigError(f"option subscribe: topic {name!r} does not exist")
                return [p for name in subscription.topics for p in found if p.topic == name]
            case SubscribePattern():
                pattern = re.compile(subscription.pattern)
                return [
                    place
                    for place in found
                    if place.topic not in INTERNAL_TOPICS and pattern.fullmatch(place.topic)
                ]

    def earliest(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, Offset]:
        """See :class:`millstream.spark.topics.Topics`."""
        kept = self._checkpoints(LOG_START_OFFSETS)
        starts = {}
        for place in places:
            segments = list_segments(self._directory(place))
            first = segments[0].base_offset if segments else 0
            starts[place] = max(first, kept.get(place, 0))
        return starts

    def latest(
        self, places: Sequence[TopicPartition], *, read_committed: bool
    ) -> dict[TopicPartition, Offset]:
        """See :class:`millstream.spark.topics.Topics`."""
        high_watermarks = self._checkpoints(HIGH_WATERMARKS)
        starts = self.earliest(places)
        ends = {}
        for place in places:
            directory = self._directory(place)
            if (directory.parent / CLEAN_SHUTDOWN_MARKER).exists():
                end = log_end(directory, list_segments(directory))
            else:
                end = high_watermarks.get(place, 0)
            end = max(end, starts[place])
            ends[place] = first_unstable(directory, starts[place], end) if read_committed else end
        return ends

    def at_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Offset | None]:
        """See :class:`millstream.spark.topics.Topics`."""
        places = list(timestamps)
        starts, ends = self.earliest(places), self.latest(places, read_committed=False)
        return {
            place: offset_at_time(
                self._directory(place), timestamps[place], starts[place], ends[place]
            )
            for place in places
        }

    def ids(self, names: Iterable[str]) -> dict[str, TopicId]:
        """See :class:`millstream.spark.topics.Topics`."""
        wanted = set(names)
        ids: dict[str, TopicId] = {}
        for place in self._all():
            if place.topic in wanted and place.topic not in ids:
                try:
                    text = (self._directory(place) / PARTITION_METADATA).read_text("utf-8")
                except FileNotFoundError:
                    continue
                topic_id = parse_partition_metadata(text)
                if topic_id is not None:
                    ids[place.topic] = topic_id
        return ids

    def sizes(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """See :class:`millstream.spark.topics.Topics`."""
        return {
            place: sum(each.size_bytes for each in list_segments(self._directory(place)))
            for place in places
        }

    def commit(self, group: str, positions: Mapping[TopicPartition, Offset]) -> None:
        """Without a broker there are no groups."""
        log.debug("group %s is not told: there is no broker", group)

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

    def _directory(self, place: TopicPartition) -> Path:
        directory = find_partition(self._log_dirs, place)
        if directory is None:
            raise ConfigError(f"{place} is in none of {', '.join(self._log_dirs)}")
        return directory

    def _checkpoints(self, name: str) -> dict[TopicPartition, Offset]:
        found: dict[TopicPartition, Offset] = {}
        for directory in self._log_dirs:
            try:
                found |= parse_offsets((Path(directory) / name).read_text("utf-8"))
            except FileNotFoundError:
                continue
        return found
