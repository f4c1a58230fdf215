"""The logs of one log directory, opened one after the other or side by side.

The directory is looked through on the owner's thread. Each log is then opened by itself, on any
thread: logs share nothing but the limit on open files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from millstream.config.topic import TopicConfig
from millstream.model.errors import MillstreamError, StorageError
from millstream.model.topic import TopicId, TopicPartition
from millstream.storage.directory import (
    LOG,
    PARTITION_METADATA,
    DirectoryKind,
    PartitionDirectory,
    parse_file_name,
)
from millstream.storage.environment import LogEnvironment
from millstream.storage.files import read_file
from millstream.storage.loader import LoadOptions
from millstream.storage.log import Log
from millstream.storage.log_directory import LogDirectory
from millstream.storage.partition_metadata import parse_partition_metadata
from millstream.storage.recovery_report import RecoveryCounter

_log = logging.getLogger(__name__)

ConfigOf: TypeAlias = Callable[[TopicPartition, TopicId | None], TopicConfig]
"""The settings of a log, by its partition and the topic id in its directory."""


@dataclass(frozen=True, slots=True)
class LogToOpen:
    """One log that was found."""

    directory: PartitionDirectory
    kind: DirectoryKind
    topic_id: TopicId | None
    config: TopicConfig


class DirectoryLoad:
    """What one log directory holds, and what has been opened of it."""

    def __init__(
        self, environment: LogEnvironment, directory: LogDirectory, *, now_ms: int
    ) -> None:
        self._environment = environment
        self._now_ms = now_ms
        self.directory = directory
        self.waiting: list[LogToOpen] = []
        """What is still to be opened; threads take from its end."""
        self.opened: list[tuple[Log, DirectoryKind]] = []
        self.unreadable: list[PartitionDirectory] = []
        """Logs in a format that is not supported: they are left unchanged."""
        self.failure: Exception | None = None
        """What stopped the load, if anything."""
        self.is_stopped = False
        """Set by the caller: no further log is opened."""
        self.total = RecoveryCounter()
        """What recovery has to read in total; after a clean shutdown only the logs are counted."""

    def find(
        self,
        config_of: ConfigOf,
        *,
        on_deleted: Callable[[PartitionDirectory], None],
        on_stray: Callable[[PartitionDirectory], None],
    ) -> None:
        """Look through the directory. Raises StorageError."""
        for partition_directory, kind in self.directory.partitions():
            if kind is DirectoryKind.DELETE:
                on_deleted(partition_directory)
            elif kind is DirectoryKind.STRAY:
                on_stray(partition_directory)
            else:
                topic_id = self._read_topic_id(partition_directory)
                config = config_of(partition_directory.topic_partition, topic_id)
                self.waiting.append(LogToOpen(partition_directory, kind, topic_id, config))
                self._count(partition_directory)
        self.waiting.reverse()

    def _count(self, partition_directory: PartitionDirectory) -> None:
        self.total.logs += 1
        if self.directory.had_clean_shutdown:
            return
        try:
            entries = self._environment.file_system.scan(partition_directory.path)
        except OSError as error:
            raise StorageError(partition_directory.parent, str(error)) from error
        sizes = {
            parsed[0]: entry.size
            for entry in entries
            if (parsed := parse_file_name(entry.name)) is not None and parsed[1] == LOG
        }
        recovery_point = self.directory.recovery_points.get(partition_directory.topic_partition, 0)
        first = max((base for base in sizes if base <= recovery_point), default=0)
        to_read = [size for base, size in sizes.items() if base >= first]
        self.total.segments += len(to_read)
        self.total.scanned_bytes += sum(to_read)

    def _read_topic_id(self, partition_directory: PartitionDirectory) -> TopicId | None:
        try:
            data = read_file(
                self._environment.file_system, partition_directory.file(PARTITION_METADATA)
            )
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(partition_directory.parent, str(error)) from error
        return parse_partition_metadata(data.decode("utf-8", "replace"))

    def run(self, counter: RecoveryCounter) -> None:
        """Open logs until none is left, one has failed, or :attr:`is_stopped` is set. May run on
        several threads at once; raises nothing, see :attr:`failure`.
        """
        while self.failure is None and not self.is_stopped:
            try:
                found = self.waiting.pop()
            except IndexError:
                return
            try:
                self.opened.append((self._open(found, counter), found.kind))
            except MillstreamError as error:
                if isinstance(error, StorageError):
                    self.failure = error
                    return
                _log.error(
                    "%s cannot be loaded, and is not touched: %s", found.directory.path, error
                )
                self.unreadable.append(found.directory)
            except Exception as error:  # raised again on the owner's thread
                self.failure = error
            counter.logs += 1

    def _open(self, found: LogToOpen, counter: RecoveryCounter) -> Log:
        directory, topic_partition = self.directory, found.directory.topic_partition
        options = LoadOptions(
            now_ms=self._now_ms,
            had_clean_shutdown=directory.had_clean_shutdown,
            recovery_point=directory.recovery_points.get(topic_partition, 0),
            log_start_offset=directory.log_start_offsets.get(topic_partition, 0),
            high_watermark=directory.high_watermarks.get(topic_partition, 0),
            cleaned_up_to=directory.cleaned_up_to.get(topic_partition, 0),
            topic_id=found.topic_id,
            counter=counter,
        )
        return Log.open(self._environment, found.directory, found.config, options)
