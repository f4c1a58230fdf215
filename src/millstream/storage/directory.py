"""Names in a log directory: the directory of a partition, the files of a segment.

A partition's directory is ``<topic>-<partition>``, with a suffix while it is being deleted, moved
or set aside::

    <topic>-<partition>.<32 hex digits>-delete    to be removed after file.delete.delay.ms
    <topic>-<partition>.<32 hex digits>-future    a replica that moves here from another directory
    <topic>-<partition>.<32 hex digits>-stray     belongs to no topic that the cluster knows

Files are named by the base offset of their segment, 20 digits; while a segment is being deleted or
replaced, one more suffix follows: ``.deleted``, ``.cleaned`` (unfinished output of compaction) or
``.swap`` (finished output). Kafka: ``LogFileUtils``, ``LocalLog``.
"""

from __future__ import annotations

import os
import re
from enum import Enum
from typing import Final

from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TRANSACTION_INDEX: Final = ".txnindex"
PRODUCER_SNAPSHOT: Final = ".snapshot"
SEGMENT_EXTENSIONS: Final = (LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX)

DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"

LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"

CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
"""The log of Apache Kafka's own controllers: Millstream never opens it as a partition."""

_MAX_NAME_BYTES: Final = 255
_OFFSET_NAME = re.compile(
    r"(\d{1,20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)\Z", re.ASCII
)
_PARTITION_NAME = re.compile(
    r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d+)"
    r"(?:\.(?P<id>[0-9a-f]{32})-(?P<kind>delete|future|stray))?\Z",
    re.ASCII,
)


class DirectoryKind(Enum):
    """What the suffix of a partition's directory says."""

    CURRENT = ""
    DELETE = "delete"
    FUTURE = "future"
    STRAY = "stray"


def file_name(base_offset: Offset, extension: str) -> str:
    """Return the name of a segment's or snapshot's file."""
    return f"{base_offset:020d}{extension}"


def parse_file_name(name: str) -> tuple[Offset, str] | None:
    """Return base offset and extension of a file named by its offset, else None."""
    match = _OFFSET_NAME.match(name)
    return (int(match[1]), match[2]) if match else None


def directory_name(
    topic_partition: TopicPartition, kind: DirectoryKind, unique_id: str = ""
) -> str:
    """Return the name of a partition's directory; ``unique_id`` is 32 hex digits.

    A topic name that leaves no room for the suffixes of ``-delete`` and ``-stray`` is cut, as
    Kafka does: such a directory is never looked up by its topic again.
    """
    if kind is DirectoryKind.CURRENT:
        return f"{topic_partition.topic}-{topic_partition.partition}"
    suffix = f"-{topic_partition.partition}.{unique_id}-{kind.value}"
    topic = topic_partition.topic
    if kind is not DirectoryKind.FUTURE:
        topic = topic[: _MAX_NAME_BYTES - len(suffix)]
    return topic + suffix


def parse_directory_name(name: str) -> tuple[TopicPartition, DirectoryKind] | None:
    """Return the partition and the kind of its directory; None for any other directory."""
    match = _PARTITION_NAME.match(name)
    if match is None:
        return None
    kind = DirectoryKind(match["kind"] or "")
    return TopicPartition(match["topic"], int(match["partition"])), kind


class PartitionDirectory:
    """Where a log lies now. Its files derive their paths from here, so a rename is one change."""

    __slots__ = ("parent", "path", "topic_partition")

    def __init__(self, parent: str, name: str, topic_partition: TopicPartition) -> None:
        self.parent = parent
        self.path = os.path.join(parent, name)
        self.topic_partition = topic_partition

    @property
    def name(self) -> str:
        """The directory's own name."""
        return os.path.basename(self.path)

    def file(self, name: str) -> str:
        """Return the path of a file in the directory."""
        return f"{self.path}/{name}"

    def moved(self, parent: str, name: str) -> None:
        """Record a rename."""
        self.parent = parent
        self.path = os.path.join(parent, name)


class SegmentLocation:
    """Where the files of one segment lie now."""

    __slots__ = ("base_offset", "directory", "suffix")

    def __init__(
        self, directory: PartitionDirectory, base_offset: Offset, suffix: str = ""
    ) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.suffix = suffix

    def name(self, extension: str) -> str:
        """Return the name of one of the segment's files."""
        return f"{self.base_offset:020d}{extension}{self.suffix}"

    def path(self, extension: str) -> str:
        """Return the path of one of the segment's files."""
        return f"{self.directory.path}/{self.base_offset:020d}{extension}{self.suffix}"
