"""Every log of this broker: start-up, look-up, creation, deletion, checkpoints, clean close.

Kafka: ``LogManager``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain

from millstream.config.topic import TopicConfig
from millstream.model.errors import ConfigError, ErrorCode, KafkaError, StorageError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicId, TopicPartition
from millstream.storage.deletion import PendingRemovals
from millstream.storage.directory import DirectoryKind, PartitionDirectory, directory_name
from millstream.storage.directory_identity import check_identity, cluster_id_of, complete_identity
from millstream.storage.directory_load import ConfigOf, DirectoryLoad
from millstream.storage.environment import LogEnvironment
from millstream.storage.files import Space
from millstream.storage.flush import run_together
from millstream.storage.future_logs import FutureLogs, which_counts
from millstream.storage.log import Log
from millstream.storage.log_checkpoints import checkpoints_of
from millstream.storage.log_directory import LogDirectory
from millstream.storage.log_placement import LogPlacement
from millstream.storage.log_renaming import rename_log
from millstream.storage.log_retention import delete_old_segments
from millstream.storage.recovery_report import RecoveryCounter
from millstream.storage.trust import distrust

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
        self._directories = {path: LogDirectory(environment, path) for path in paths}
        self._offline: list[str] = []
        self.has_lost_writes = False
        """True once a directory has failed that may lack what was written to it."""
        self.placement = LogPlacement()
        """In which directory a new log is made."""
        self.topic_id_of: Callable[[str], TopicId | None] = lambda _: None
        """Returns the id of an existing topic; set before logs are loaded."""
        self.on_gone: Callable[[], None] = lambda: None
        """Called when the checkpoints should be written soon: a log is gone, or has taken the place
        of another one, and they still say what was so before.
        """
        self._unreadable: dict[str, list[str]] = {}
        """Logs that are left unchanged, by the name and path of their directories."""
        self._logs: dict[TopicPartition, Log] = {}
        self.future_logs = FutureLogs(environment)
        """Logs that are being moved to another directory."""
        self._stray: list[PartitionDirectory] = []

    # Start

    def lock(self) -> None:
        """Lock the log directories, read their checkpoints, take the clean-shutdown markers away.

        A directory whose disk fails goes offline; StorageError when none is left or when another
        process holds one. Raises ConfigError when a directory belongs to another cluster or node.
        """
        for directory in list(self._directories.values()):
            self._attempt(directory, directory.open)
        check_identity(self._directories.values(), self._broker_id)

    def start(self, *, config_of: ConfigOf, now_ms: int) -> None:
        """Load every log of the directories that are locked, here and now. Failures as in
        :meth:`lock`.
        """
        for load in self.begin_load(config_of, now_ms=now_ms):
            load.run(RecoveryCounter())
            self.finish_load(load)
        self.settle_moves()

    def begin_load(self, config_of: ConfigOf, *, now_ms: int) -> list[DirectoryLoad]:
        """Look through the directories that are locked. The caller runs each load, on any number of
        threads, then passes it to :meth:`finish_load`; :meth:`settle_moves` ends the start.
        """
        loads = []
        for directory in list(self._directories.values()):
            load = DirectoryLoad(self._environment, directory, now_ms=now_ms)
            find = partial(
                load.find,
                config_of,
                on_deleted=partial(self.remove_later, due_ms=now_ms),
                on_stray=self._found_stray,
            )
            self._attempt(directory, find)
            if directory.path in self._directories:
                loads.append(load)
        return loads

    def finish_load(self, load: DirectoryLoad) -> None:
        """Add the logs that were opened. Failures as in :meth:`lock`."""
        self._attempt(load.directory, partial(self._add_loaded, load))

    def _add_loaded(self, load: DirectoryLoad) -> None:
        if load.failure is not None:
            for log, _ in load.opened:
                log.abandon()
            raise load.failure
        for partition_directory in load.unreadable:
            self._unreadable.setdefault(partition_directory.name, []).append(
                partition_directory.path
            )
            load.directory.left_alone.add(partition_directory.topic_partition)
        for log, kind in load.opened:
            self._add(log, kind)
        if not load.directory.had_clean_shutdown:
            self._flush_recovered(load.directory)

    def _found_stray(self, partition_directory: PartitionDirectory) -> None:
        _log.warning("%s belongs to no topic and is not touched", partition_directory.path)
        self._stray.append(partition_directory)

    def _attempt(self, directory: LogDirectory, step: Callable[[], None]) -> None:
        try:
            step()
        except StorageError as error:
            is_locked = isinstance(error.__cause__, BlockingIOError)
            if is_locked or len(self._directories) == 1:
                if not (is_locked or error.is_full):
                    # The process ends here. A flush that failed leaves pages that are never
                    # written, and the next start could not tell.
                    distrust(self._environment.file_system, directory.path)
                self.give_back()
                raise
            _log.error("log directory offline: %s", error)
            self.directory_failed(directory.path, lost_writes=not error.is_full)

    @property
    def had_clean_shutdown(self) -> bool:
        """True if every directory was closed cleanly by the last process that wrote there."""
        return all(directory.had_clean_shutdown for directory in self._directories.values())

    def _flush_recovered(self, directory: LogDirectory) -> None:
        """Flush what a crashed process had written but not flushed: it counts as recovered from now
        on.
        """
        logs = self._logs_in(directory.path)
        if not logs:
            return
        try:
            self._environment.file_system.sync_all(directory.path)
        except OSError as error:
            raise StorageError(directory.path, f"flush failed: {error}") from error
        for log in logs:
            log.volume_flushed()

    def _add(self, log: Log, kind: DirectoryKind) -> None:
        topic_partition = log.topic_partition
        if kind is DirectoryKind.FUTURE:
            self.future_logs.add(log)
            return
        other = self._logs.get(topic_partition)
        self._logs[topic_partition] = log
        if other is None:
            return
        both = which_counts(log, other, self.topic_id_of(topic_partition.topic))
        if both is None:
            raise ConfigError(
                f"{log.directory} and {other.directory} hold the same partition: remove the one "
                "that is out of date"
            )
        self._logs[topic_partition], old = both
        why = (
            "what a move left behind"
            if old.topic_id == log.topic_id == other.topic_id
            else "of a topic of that name that was deleted"
        )
        _log.warning("%s is %s: renamed to -stray", old.directory, why)
        self._stray.append(self._rename(old, DirectoryKind.STRAY))

    def settle_moves(self) -> None:
        """Finish the moves whose renames had begun when the process ended. Called once everything
        is loaded; the logs that remain in :attr:`future_logs` are still to be copied. Raises
        StorageError.
        """
        if self._offline:
            return
        for log in self.future_logs:
            if log.topic_partition not in self._logs:
                _log.warning("%s takes the place of the log that it was copied from", log.directory)
                self.future_logs.take_name(log)
                self._logs[log.topic_partition] = log
                self.future_logs.sync_plan([log.log_directory])()

    @property
    def cluster_id(self) -> str | None:
        """Cluster id in ``meta.properties``, if one was found."""
        return cluster_id_of(self._directories.values())

    def assign_cluster_id(self, cluster_id: str) -> None:
        """Write ``meta.properties`` into the directories that have none, or an older version.

        Raises StorageError.
        """
        for directory in self._directories.values():
            complete_identity(directory, cluster_id, self._broker_id, self._environment.new_id)

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

        With ``is_new`` False the log should exist: while a directory is offline the log is not
        created, because it may be there. Raises KafkaError(INCONSISTENT_TOPIC_ID) when the log
        belongs to another topic id; StorageError.
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
        name = directory_name(topic_partition, DirectoryKind.CURRENT)
        if name in self._unreadable:
            # If it were created elsewhere, there would be two once this one is repaired.
            left_alone = ", ".join(self._unreadable[name])
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{left_alone} cannot be read")
        directory = self.placement.choose(
            topic_partition,
            self.directories,
            (log.log_directory for log in (*self._logs.values(), *self.future_logs)),
        )
        partition_directory = PartitionDirectory(directory, name, topic_partition)
        log = Log.create(
            self._environment, partition_directory, config, topic_id=topic_id, now_ms=now_ms
        )
        self._logs[topic_partition] = log
        return log

    # Moving between directories

    def begin_move(self, current: Log, directory: str, *, now_ms: int) -> Log:
        """Make a future log of ``current`` in ``directory``; the caller fills it.

        Raises StorageError.
        """
        assert current.topic_partition not in self.future_logs
        return self.future_logs.create(current, directory, now_ms=now_ms)

    def cancel_move(self, topic_partition: TopicPartition, *, now_ms: int) -> None:
        """Schedule the future log of a partition for deletion, if there is one. Raises
        StorageError.
        """
        log = self.future_logs.pop(topic_partition)
        if log is not None:
            self.remove_later(self._rename(log, DirectoryKind.DELETE), now_ms)

    def finish_move(self, topic_partition: TopicPartition) -> tuple[Log, PartitionDirectory]:
        """Replace the current log by the future one, which is equal to it; return the new log and
        the old log's directory, which the caller passes to :meth:`remove_later` after the next
        flush.

        What was flushed in the current log has to be flushed in the future one. The names
        are on disk after the next flush of the log that is returned. Raises StorageError.
        """
        future, current = self.future_logs.get(topic_partition), self._logs[topic_partition]
        assert future is not None
        left = rename_log(self._environment, current, DirectoryKind.DELETE)
        try:
            self.future_logs.take_name(future)
            future.replace_current(current)
        except StorageError:
            # It serves on: under this name the next start would remove it.
            rename_log(self._environment, current, DirectoryKind.CURRENT)
            if topic_partition not in self.future_logs:
                self.future_logs.add(future)
            raise
        current.abandon()
        self._logs[topic_partition] = future
        # The checkpoint there knows little of the copy: a crash would have it read as a whole.
        self.on_gone()
        return future, left

    def delete(self, topic_partition: TopicPartition, *, now_ms: int) -> bool:
        """Rename a partition's directory to ``-delete`` now; its files are removed by
        ``removals`` after ``file.delete.delay.ms``. False when there is no log.

        Raises StorageError.
        """
        log = self._logs.pop(topic_partition, None)
        try:
            self.cancel_move(topic_partition, now_ms=now_ms)
        finally:  # whatever the disk of a copy does
            if log is not None:
                due_ms = now_ms + log.config.file_delete_delay_ms
                self.remove_later(self._rename(log, DirectoryKind.DELETE), due_ms)
                self.on_gone()
        return log is not None

    def mark_stray(self, topic_partition: TopicPartition) -> bool:
        """Rename a partition's directory to ``-stray``: the cluster knows no such topic. Nothing
        is removed. False when there is no log. Raises StorageError.
        """
        log = self._logs.pop(topic_partition, None)
        if log is None:
            return False
        self._stray.append(self._rename(log, DirectoryKind.STRAY))
        self.on_gone()
        return True

    def _rename(self, log: Log, kind: DirectoryKind) -> PartitionDirectory:
        """Rename the directory of a log that is used no more."""
        renamed = rename_log(self._environment, log, kind)
        log.abandon()
        return renamed

    def remove_later(self, partition_directory: PartitionDirectory, due_ms: int) -> None:
        """Remove at ``due_ms`` a directory that is renamed to ``-delete``."""

        def remove() -> None:
            self._environment.file_system.remove_tree(partition_directory.path)

        self._environment.removals.add(due_ms, partition_directory.parent, remove)

    @property
    def removals(self) -> PendingRemovals:
        """Deleted directories and files, which are removed after their delay."""
        return self._environment.removals

    # Upkeep

    def delete_old_segments(self, *, now_ms: int, busy: Collection[TopicPartition] = ()) -> int:
        """Apply retention to every log (call each ``log.retention.check.interval.ms``) but those
        that are ``busy`` replacing segments. Raises StorageError.
        """
        return sum(
            delete_old_segments(log, now_ms=now_ms)
            for topic_partition, log in list(self._logs.items())
            if topic_partition not in busy
        )

    @property
    def has_outdated_checkpoints(self) -> bool:
        """True when the checkpoints found at the start name logs that are gone."""
        return any(d.found_in_checkpoints() - self._logs.keys() for d in self._directories.values())

    def checkpoint_plan(self) -> Callable[[], None]:
        """Return a function, safe on another thread, that writes the recovery points, log starts
        and high watermarks of this moment. Raises StorageError.
        """
        jobs = [
            directory.checkpoint_plan(*checkpoints_of(self._logs_in(directory.path)))
            for directory in self._directories.values()
        ]

        def write() -> None:
            for job in jobs:
                job()

        return write

    def cleaner_checkpoint_plan(
        self, directory: str, dirty_offsets: Mapping[TopicPartition, Offset]
    ) -> Callable[[], None]:
        """Return the same for how far the logs of a directory that is online are compacted."""
        return self._directories[directory].cleaner_checkpoint_plan(dirty_offsets)

    def _logs_in(self, directory: str) -> list[Log]:
        """Return the logs in a directory; a partition's current and future log are in two."""
        logs = (*self._logs.values(), *self.future_logs)
        return [log for log in logs if log.log_directory == directory]

    def directory_failed(self, directory: str, *, lost_writes: bool = True) -> list[TopicPartition]:
        """Take a log directory offline (see ``LogDirectory.fail``); return the partitions lost."""
        failed = self._directories.pop(directory, None)
        if failed is None:
            return []
        self._offline.append(directory)
        self.has_lost_writes |= lost_writes
        self.future_logs.drop_directory(directory)
        gone = self._logs_in(directory)
        for log in gone:
            del self._logs[log.topic_partition]
            log.abandon()
        failed.fail(lost_writes=lost_writes)
        if lost_writes:
            # A disk that fails this write may come back; the markers of the other directories are
            # removed too.
            for each in self._directories:
                distrust(self._environment.file_system, each)
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
        directory.checkpoint_plan(*checkpoints_of(self._logs_in(directory.path)))()
        left_alone = chain.from_iterable(self._unreadable.values())
        if all(os.path.dirname(path) != directory.path for path in left_alone):
            directory.write_clean_marker()

    def give_back(self) -> None:
        """Close everything as it was found: the start has failed. What was closed cleanly stays
        so, and what has to be recovered is recovered at the next start.
        """
        for log in (*self._logs.values(), *self.future_logs):
            log.abandon()
        for directory in self._directories.values():
            try:
                directory.give_back()
            except StorageError:
                _log.exception("log directory %s will be recovered", directory.path)

    def _release(self) -> None:
        for directory in self._directories.values():
            directory.release()
