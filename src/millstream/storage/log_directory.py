"""One entry of ``log.dirs``: lock, checkpoints, clean-shutdown marker, partitions."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from typing import Final

from millstream.model.errors import StorageError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.storage.checkpoint import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    CorruptCheckpointError,
    parse_offsets,
)
from millstream.storage.directory import (
    CLUSTER_METADATA_TOPIC,
    DirectoryKind,
    PartitionDirectory,
    parse_directory_name,
)
from millstream.storage.environment import LogEnvironment
from millstream.storage.files import Lock, read_file, replace_file
from millstream.storage.meta_properties import (
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from millstream.storage.trust import distrust

CLEAN_SHUTDOWN_MARKER: Final = ".kafka_cleanshutdown"
LOCK_FILE: Final = ".lock"

_log = logging.getLogger(__name__)


class LogDirectory:
    """A log directory that this process has locked. Methods raise StorageError unless they say
    otherwise.
    """

    def __init__(self, environment: LogEnvironment, path: str) -> None:
        self._file_system = environment.file_system
        self._claims = environment.checkpoint_claims(path)
        self.path = path
        self._lock: Lock | None = None
        self.had_clean_shutdown = False
        """True if the last process that wrote here closed every log cleanly."""
        self.recovery_points: dict[TopicPartition, Offset] = {}
        self.log_start_offsets: dict[TopicPartition, Offset] = {}
        self.high_watermarks: dict[TopicPartition, Offset] = {}
        self.cleaned_up_to: dict[TopicPartition, Offset] = {}
        self.meta: MetaProperties | None = None
        self.left_alone: set[TopicPartition] = set()
        """Logs here that cannot be read: their entries in the checkpoints are kept."""

    def open(self) -> None:
        """Make the directory if need be, lock it, read its checkpoints, take its marker away.

        Further calls do nothing. Raises ConfigError when ``meta.properties`` cannot
        be read.
        """
        if self._lock is not None:
            return
        try:
            if not self._file_system.exists(self.path):
                self._file_system.make_directory(self.path)
                self._file_system.sync_directory(os.path.dirname(self.path))
            self._lock = self._file_system.lock(self._file(LOCK_FILE))
            self.meta = read_meta_properties(self._file_system, self.path)
            self.recovery_points = self._read_offsets(RECOVERY_POINTS)
            self._claims.recovery_points.found(self.recovery_points)
            self.log_start_offsets = self._read_offsets(LOG_START_OFFSETS)
            self._claims.log_starts.found(self.log_start_offsets)
            self.high_watermarks = self._read_offsets(HIGH_WATERMARKS)
            self._claims.high_watermarks.found(self.high_watermarks)
            self.cleaned_up_to = self._read_offsets(CLEANER_OFFSETS)
            self._claims.dirty_offsets.found(self.cleaned_up_to)
            self._take_marker()
        except BlockingIOError as error:
            raise StorageError(self.path, "another process is using this directory") from error
        except OSError as error:
            raise StorageError(self.path, error.strerror or str(error)) from error

    def _take_marker(self) -> None:
        marker = self._file(CLEAN_SHUTDOWN_MARKER)
        self.had_clean_shutdown = self._file_system.exists(marker)
        if self.had_clean_shutdown:
            self._file_system.remove(marker)
            # If it reappeared after a power loss, damage would go unnoticed.
            self._file_system.sync_directory(self.path)

    def partitions(self) -> list[tuple[PartitionDirectory, DirectoryKind]]:
        """Return the partition directories; what belongs to Kafka's own controllers, and whatever
        has no partition's name, is left alone.
        """
        found = []
        try:
            entries = self._file_system.scan(self.path)
        except OSError as error:
            raise StorageError(self.path, str(error)) from error
        for entry in entries:
            parsed = parse_directory_name(entry.name) if entry.is_directory else None
            if parsed is not None and parsed[0].topic != CLUSTER_METADATA_TOPIC:
                found.append((PartitionDirectory(self.path, entry.name, parsed[0]), parsed[1]))
        return found

    def write_meta(self, meta: MetaProperties) -> None:
        """Write ``meta.properties``."""
        try:
            write_meta_properties(self._file_system, self.path, meta)
        except OSError as error:
            raise StorageError(self.path, str(error)) from error
        self.meta = meta

    def found_in_checkpoints(self) -> set[TopicPartition]:
        """Return the logs that the checkpoints named when the directory was opened, without those
        that are left alone.
        """
        named = {*self.recovery_points, *self.log_start_offsets, *self.high_watermarks}
        return named - self.left_alone

    def checkpoint_plan(
        self,
        recovery_points: Mapping[TopicPartition, Offset],
        log_start_offsets: Mapping[TopicPartition, Offset],
        high_watermarks: Mapping[TopicPartition, Offset],
    ) -> Callable[[], None]:
        """Return a function, safe on another thread, that writes the checkpoints that differ from
        those written last. The function raises StorageError; one runs at a time.
        """
        claims = self._claims
        write_points = claims.recovery_points.plan(
            self._with_left_alone(recovery_points, self.recovery_points)
        )
        write_starts = claims.log_starts.plan(
            self._with_left_alone(log_start_offsets, self.log_start_offsets)
        )
        write_watermarks = claims.high_watermarks.plan(
            self._with_left_alone(high_watermarks, self.high_watermarks)
        )

        def write() -> None:
            try:
                write_points()
                write_starts()
                write_watermarks()
            except OSError as error:
                raise StorageError(self.path, f"checkpoint failed: {error}") from error

        return write

    def cleaner_checkpoint_plan(
        self, dirty_offsets: Mapping[TopicPartition, Offset]
    ) -> Callable[[], None]:
        """Return a function, safe on another thread, that writes how far each log is compacted. The
        function raises StorageError.
        """
        write_dirty_offsets = self._claims.dirty_offsets.plan(
            self._with_left_alone(dirty_offsets, self.cleaned_up_to)
        )

        def write() -> None:
            try:
                write_dirty_offsets()
            except OSError as error:
                raise StorageError(self.path, f"checkpoint failed: {error}") from error

        return write

    def _with_left_alone(
        self, offsets: Mapping[TopicPartition, Offset], found: Mapping[TopicPartition, Offset]
    ) -> dict[TopicPartition, Offset]:
        kept = {each: found[each] for each in self.left_alone if each in found}
        return {**kept, **offsets}

    def write_clean_marker(self) -> None:
        """Write the clean-shutdown marker: every log here is closed and flushed."""
        content = json.dumps({"version": 0, "brokerEpoch": -1}, separators=(",", ":"))
        try:
            replace_file(
                self._file_system, self._file(CLEAN_SHUTDOWN_MARKER), content.encode("ascii")
            )
        except OSError as error:
            raise StorageError(self.path, str(error)) from error

    def give_back(self) -> None:
        """Restore the clean-shutdown marker if it was there, and release the lock: nothing was
        written here. Does nothing if the lock is not held.
        """
        if self._lock is not None and self.had_clean_shutdown:
            self.write_clean_marker()
        self.release()

    def fail(self, *, lost_writes: bool) -> None:
        """Release a directory whose disk has failed.

        With ``lost_writes`` something that was written may never reach the disk, so the trust
        marker is removed. A full disk has kept everything it accepted.
        """
        if lost_writes:
            distrust(self._file_system, self.path)
        self.release()

    def release(self) -> None:
        """Release the lock on the directory."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _file(self, name: str) -> str:
        return f"{self.path}/{name}"

    def _read_offsets(self, name: str) -> dict[TopicPartition, Offset]:
        try:
            text = read_file(self._file_system, self._file(name)).decode("utf-8", "replace")
        except FileNotFoundError:
            return {}
        try:
            return parse_offsets(text)
        except CorruptCheckpointError as error:
            # Recovery then begins at the start of every log, which is slower and equally safe.
            _log.warning("%s is not used: %s", self._file(name), error)
            return {}
