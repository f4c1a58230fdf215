"""Every log of this broker: start-up, look-up, creation, deletion, checkpoints, clean close.

Kafka: ``LogManager``.
"""

from __future__ import annotations

import base64
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeAlias

from millstream.config.topic import TopicConfig
from millstream.model.errors import (
    ConfigError,
    ErrorCode,
    KafkaError,
    MillstreamError,
    StorageError,
)
from millstream.model.offsets import Offset
from millstream.model.topic import TopicId, TopicPartition
from millstream.storage.directory import (
    PARTITION_METADATA,
    DirectoryKind,
    PartitionDirectory,
    directory_name,
)
from millstream.storage.environment import LogEnvironment
from millstream.storage.files import Space, read_file
from millstream.storage.flush import run_together
from millstream.storage.loader import LoadOptions
from millstream.storage.log import Log
from millstream.storage.log_directory import LogDirectory
from millstream.storage.meta_properties import MetaProperties
from millstream.storage.partition_metadata import parse_partition_metadata

_Offsets: TypeAlias = dict[TopicPartition, Offset]

_log = logging.getLogger(__name__)


class LogManager:
    """The log directories and the logs in them. Synchronous; one owner.

    A StorageError that leaves a log names its log directory: hand it to
    :meth:`directory_failed`, which takes that directory offline and returns the partitions lost.
    """

    def __init__(
        self, directories: Sequence[str], environment: LogEnvironment, *, broker_id: int
    ) -> None:
        self._environment = environment
        self._broker_id = broker_id
        paths = [os.path.abspath(directory) for directory in directories]
        if len(set(paths)) != len(paths):
            raise ConfigError(f"a log directory is named twice: {', '.join(directories)}")
        self._directories = {path: LogDirectory(environment.file_system, path) for path in paths}
        self._offline: list[str] = []
        self._unreadable: set[str] = set()
        self._logs: dict[TopicPartition, Log] = {}
        self._future: dict[TopicPartition, Log] = {}
        self._stray: list[PartitionDirectory] = []

    # Start

    def lock(self) -> None:
        """Lock the log directories, read their checkpoints, take the clean-shutdown markers away.

        A directory whose disk fails goes offline; StorageError when none is left or when another
        process holds one. Raises ConfigError when a directory belongs to another cluster or node.
        """
        for directory in list(self._directories.values()):
            self._attempt(directory, directory.open)
        self._check_identity()

    def start(
        self,
        *,
        config_of: Callable[[TopicPartition, TopicId | None], TopicConfig],
        now_ms: int,
    ) -> None:
        """Load every log of the directories that are locked. Failures as in :meth:`lock`."""
        for directory in list(self._directories.values()):
            self._attempt(directory, partial(self._load, directory, config_of, now_ms))

    def _attempt(self, directory: LogDirectory, step: Callable[[], None]) -> None:
        try:
            step()
        except StorageError as error:
            if isinstance(error.__cause__, BlockingIOError) or len(self._directories) == 1:
                self.give_back()
                raise
            _log.error("log directory offline: %s", error)
            self.directory_failed(directory.path)

    @property
    def had_clean_shutdown(self) -> bool:
        """True when every directory was closed cleanly by the one who wrote there last."""
        return all(directory.had_clean_shutdown for directory in self._directories.values())

    def _load(
        self,
        directory: LogDirectory,
        config_of: Callable[[TopicPartition, TopicId | None], TopicConfig],
        now_ms: int,
    ) -> None:
        for place, kind in directory.partitions():
            topic_partition = place.topic_partition
            if kind is DirectoryKind.DELETE:
                self._remove_later(place, now_ms)
            elif kind is DirectoryKind.STRAY:
                _log.warning("%s belongs to no topic and is left alone", place.path)
                self._stray.append(place)
            else:
                topic_id = self._read_topic_id(place)
                config = config_of(topic_partition, topic_id)
                log = self._open(place, config, _options(directory, place, topic_id, now_ms))
                if log is not None:
                    self._add(log, kind)
        if not directory.had_clean_shutdown:
            self._flush_recovered(directory)

    def _flush_recovered(self, directory: LogDirectory) -> None:
        """Bring to disk what a process that crashed had only written: from now on it counts."""
        logs = self._logs_in(directory.path)
        if not logs:
            return
        try:
            self._environment.file_system.sync_all(directory.path)
        except OSError as error:
            raise StorageError(directory.path, f"flush failed: {error}") from error
        for log in logs:
            log.volume_flushed()

    def _read_topic_id(self, place: PartitionDirectory) -> TopicId | None:
        try:
            data = read_file(self._environment.file_system, place.file(PARTITION_METADATA))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(place.parent, str(error)) from error
        return parse_partition_metadata(data.decode("utf-8", "replace"))

    def _open(
        self, place: PartitionDirectory, config: TopicConfig, options: LoadOptions
    ) -> Log | None:
        try:
            return Log.open(self._environment, place, config, options)
        except StorageError:
            raise
        except MillstreamError:
            _log.exception("%s cannot be read and is left alone", place.path)
            self._unreadable.add(place.path)
            return None

    def _add(self, log: Log, kind: DirectoryKind) -> None:
        logs = self._future if kind is DirectoryKind.FUTURE else self._logs
        other = logs.get(log.topic_partition)
        if other is not None:
            raise ConfigError(
                f"{log.directory} and {other.directory} hold the same partition: remove the one "
                "that is out of date"
            )
        logs[log.topic_partition] = log

    def _check_identity(self) -> None:
        found = [d for d in self._directories.values() if d.meta is not None]
        for directory in found:
            meta = directory.meta
            assert meta is not None
            if meta.node_id not in (None, self._broker_id):
                raise ConfigError(
                    f"{directory.path} belongs to node {meta.node_id}, not to {self._broker_id}"
                )
            if meta.cluster_id not in (None, self.cluster_id):
                raise ConfigError(
                    f"{directory.path} belongs to cluster {meta.cluster_id}, "
                    f"another one to {self.cluster_id}"
                )

    @property
    def cluster_id(self) -> str | None:
        """Cluster id in ``meta.properties``, if one was found."""
        for directory in self._directories.values():
            if directory.meta is not None and directory.meta.cluster_id is not None:
                return directory.meta.cluster_id
        return None

    def assign_cluster_id(self, cluster_id: str) -> None:
        """Write ``meta.properties`` into the directories that have none, or an older version.

        Raises StorageError.
        """
        for directory in self._directories.values():
            meta = directory.meta
            if meta is None or meta.cluster_id is None or meta.directory_id is None:
                directory_id = meta.directory_id if meta is not None else None
                new_id = base64.urlsafe_b64encode(self._environment.new_id()).decode().rstrip("=")
                directory.write_meta(
                    MetaProperties(cluster_id, self._broker_id, directory_id or new_id)
                )

    # Look-up

    @property
    def directories(self) -> Sequence[str]:
        """The log directories that are online."""
        return list(self._directories)

    @property
    def offline_directories(self) -> Sequence[str]:
        """The log directories that have failed."""
        return list(self._offline)

    def directory_id(self, directory: str) -> str | None:
        """Return the id of a log directory, 22 characters of base64url."""
        meta = self._directories[directory].meta
        return None if meta is None else meta.directory_id

    def space(self, directory: str) -> Space:
        """Return the room on a log directory's volume. Raises StorageError."""
        try:
            return self._environment.file_system.space(directory)
        except OSError as error:
            raise StorageError(directory, str(error)) from error

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """Return the log of a partition, or None."""
        return self._logs.get(topic_partition)

    def logs(self) -> Iterable[Log]:
        """Return every log."""
        return self._logs.values()

    # Creation and deletion

    def get_or_create(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        config: TopicConfig,
        *,
        now_ms: int,
        is_new: bool = True,
    ) -> Log:
        """Return the log of a partition, made in the emptiest directory if there is none.

        With ``is_new`` False the log should exist: while a directory is offline it is not made
        anew, for it may lie there. Raises KafkaError(INCONSISTENT_TOPIC_ID) when the log belongs
        to another topic id; StorageError.
        """
        log = self._logs.get(topic_partition)
        if log is not None:
            if log.topic_id is None:
                log.assign_topic_id(topic_id)
            elif log.topic_id != topic_id:
                raise KafkaError(
                    ErrorCode.INCONSISTENT_TOPIC_ID,
                    f"{log.directory} belongs to another topic of this name",
                )
            log.update_config(config)
            return log
        if self._offline and not is_new:
            raise StorageError(self._offline[0], f"{topic_partition} may lie there")
        place = PartitionDirectory(
            self._emptiest_directory(),
            directory_name(topic_partition, DirectoryKind.CURRENT),
            topic_partition,
        )
        if place.path in self._unreadable:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{place.path} cannot be read")
        log = Log.create(self._environment, place, config, topic_id=topic_id, now_ms=now_ms)
        self._logs[topic_partition] = log
        return log

    def _emptiest_directory(self) -> str:
        if len(self._directories) == 1:
            return next(iter(self._directories))
        counts = Counter(log.log_directory for log in self._logs.values())
        return min(self._directories, key=lambda path: counts[path])

    def delete(self, topic_partition: TopicPartition, *, now_ms: int) -> bool:
        """Rename a partition's directory to ``-delete`` now; its files are removed by
        :meth:`remove_deleted` after ``file.delete.delay.ms``. False when there is no log.

        Raises StorageError.
        """
        log = self._logs.pop(topic_partition, None)
        if log is None:
            return False
        delay_ms = log.config.file_delete_delay_ms
        place = self._rename(log, DirectoryKind.DELETE)
        self._remove_later(place, now_ms + delay_ms)
        return True

    def mark_stray(self, topic_partition: TopicPartition) -> bool:
        """Rename a partition's directory to ``-stray``: the cluster knows no such topic. Nothing
        is removed. False when there is no log. Raises StorageError.
        """
        log = self._logs.pop(topic_partition, None)
        if log is None:
            return False
        self._stray.append(self._rename(log, DirectoryKind.STRAY))
        return True

    def _rename(self, log: Log, kind: DirectoryKind) -> PartitionDirectory:
        name = directory_name(log.topic_partition, kind, self._environment.new_id().hex())
        place = PartitionDirectory(log.log_directory, name, log.topic_partition)
        try:
            self._environment.file_system.rename(log.directory, place.path)
        except OSError as error:
            raise StorageError(log.log_directory, str(error)) from error
        log.moved(log.log_directory, name)
        log.abandon()
        return place

    def _remove_later(self, place: PartitionDirectory, due_ms: int) -> None:
        def remove() -> None:
            self._environment.file_system.remove_tree(place.path)

        self._environment.removals.add(due_ms, place.parent, remove)

    def remove_deleted(self, *, now_ms: int) -> None:
        """Remove the directories and files that were deleted long enough ago.

        Raises StorageError.
        """
        self._environment.removals.run_due(now_ms)

    def removal_plan(self, *, now_ms: int) -> Callable[[], None] | None:
        """Return a function, safe on another thread, that does what :meth:`remove_deleted` does;
        None when there is nothing to do. Large files take their time.
        """
        return self._environment.removals.take_due(now_ms)

    def next_removal_ms(self) -> int | None:
        """Return when :meth:`remove_deleted` has something to do next; None if never."""
        return self._environment.removals.next_ms

    # Upkeep

    def delete_old_segments(self, *, now_ms: int) -> int:
        """Apply retention to every log (call each ``log.retention.check.interval.ms``).

        Raises StorageError.
        """
        return sum(log.delete_old_segments(now_ms=now_ms) for log in list(self._logs.values()))

    def checkpoint_plan(self) -> Callable[[], None]:
        """Return a function, safe on another thread, that writes the recovery points, log starts
        and high watermarks of this moment. Raises StorageError.
        """
        jobs = [(d, self._checkpoints(d)) for d in self._directories.values()]

        def write() -> None:
            for directory, checkpoints in jobs:
                directory.write_checkpoints(*checkpoints)

        return write

    def checkpoint(self) -> None:
        """Write the checkpoints now. Raises StorageError."""
        self.checkpoint_plan()()

    def _checkpoints(self, directory: LogDirectory) -> tuple[_Offsets, _Offsets, _Offsets]:
        logs = self._logs_in(directory.path)
        return (
            {log.topic_partition: log.recovery_point for log in logs},
            {
                log.topic_partition: log.log_start_offset
                for log in logs
                if log.starts_inside_segment
            },
            {log.topic_partition: log.high_watermark for log in logs},
        )

    def _logs_in(self, directory: str) -> list[Log]:
        return [log for log in self._logs.values() if log.log_directory == directory]

    def directory_failed(self, directory: str) -> list[TopicPartition]:
        """Take a log directory offline; return the partitions that are gone with it."""
        failed = self._directories.pop(directory, None)
        if failed is None:
            return []
        self._offline.append(directory)
        gone = self._logs_in(directory)
        for log in gone:
            del self._logs[log.topic_partition]
            log.abandon()
        failed.release()
        return [log.topic_partition for log in gone]

    # Stop

    def close(self) -> None:
        """Flush and close every log, write the checkpoints, then the clean-shutdown markers.

        A directory that fails on the way gets no marker and is recovered at the next start; the
        others are closed. The first failure is raised when all is done (StorageError).
        """
        failure: StorageError | None = None
        for directory in list(self._directories.values()):
            try:
                self._close_directory(directory)
            except StorageError as error:
                failure = failure or error
                _log.exception("log directory %s was not closed cleanly", directory.path)
        self._release()
        if failure is not None:
            raise failure

    def _close_directory(self, directory: LogDirectory) -> None:
        plans = [
            (log, plan)
            for log in self._logs_in(directory.path)
            if (plan := log.close()) is not None
        ]
        run_together([plan for _, plan in plans])
        for log, plan in plans:
            log.flushed(plan)
        directory.write_checkpoints(*self._checkpoints(directory))
        if not any(path.startswith(directory.path) for path in self._unreadable):
            directory.write_clean_marker()

    def give_back(self) -> None:
        """Let go of everything as it was found: the start has failed. What was closed cleanly stays
        so, and what has to be recovered is recovered at the next start.
        """
        for log in (*self._logs.values(), *self._future.values()):
            log.abandon()
        for directory in self._directories.values():
            try:
                directory.give_back()
            except StorageError:
                _log.exception("log directory %s will be recovered", directory.path)

    def _release(self) -> None:
        for directory in self._directories.values():
            directory.release()


def _options(
    directory: LogDirectory, place: PartitionDirectory, topic_id: TopicId | None, now_ms: int
) -> LoadOptions:
    topic_partition = place.topic_partition
    return LoadOptions(
        now_ms=now_ms,
        had_clean_shutdown=directory.had_clean_shutdown,
        recovery_point=directory.recovery_points.get(topic_partition, 0),
        log_start_offset=directory.log_start_offsets.get(topic_partition, 0),
        high_watermark=directory.high_watermarks.get(topic_partition, 0),
        topic_id=topic_id,
    )
