"""The segments of one partition on disk: roll, read, truncate, delete.

A local log knows bytes and files; offsets, epochs and producers are parts of ``log.Log``. What has
to be flushed is noted in the log's ``Durability``. OSError is passed on, and becomes StorageError
above. Kafka: ``LocalLog``.
"""

from __future__ import annotations

from millstream.config.topic import TopicConfig
from millstream.model.errors import StorageError
from millstream.model.offsets import Offset
from millstream.storage.directory import DELETED, PartitionDirectory, SegmentLocation
from millstream.storage.durability import Durability
from millstream.storage.environment import LogEnvironment
from millstream.storage.file_slice import FileSlice
from millstream.storage.log_read import LogRead
from millstream.storage.segment import Segment
from millstream.storage.segments import Segments


class LocalLog:
    """The files of one log."""

    __slots__ = (
        "_durability",
        "active",
        "config",
        "directory",
        "environment",
        "segments",
    )

    def __init__(
        self,
        environment: LogEnvironment,
        directory: PartitionDirectory,
        config: TopicConfig,
        segments: Segments,
        durability: Durability,
    ) -> None:
        self.environment = environment
        self.directory = directory
        self.config = config
        self.segments = segments
        self.active = segments.active
        """The segment that appends go to."""
        self._durability = durability

    def update_config(self, config: TopicConfig) -> None:
        """Apply changed settings."""
        self.config = config
        for segment in self.segments:
            segment.update_config(config)

    # Segments

    def roll(self, base_offset: Offset, *, now_ms: int) -> bool:
        """Close the active segment and begin one at ``base_offset``; False when it is there."""
        closing = self.active
        if closing.base_offset == base_offset:
            return False
        closing.become_inactive()
        self._durability.note(*closing.names())
        self.begin_segment(base_offset, now_ms=now_ms)
        return True

    def begin_segment(self, base_offset: Offset, *, now_ms: int) -> None:
        """Make a new, empty active segment."""
        location = SegmentLocation(self.directory, base_offset)
        segment = Segment(self.environment, location, self.config, size=0, created_ms=now_ms)
        segment.create()
        self.segments.add(segment)
        self.active = segment
        self._durability.note_names()

    def bases_beyond(self, offset: Offset) -> list[Offset]:
        """Return the base offsets of the segments that begin beyond ``offset``, ascending."""
        return [each for each in self.segments.base_offsets if each > offset]

    def delete_beyond(self, offset: Offset, *, now_ms: int) -> None:
        """Delete the segments that begin beyond ``offset``. The one that holds it becomes the
        active one.

        The newest goes first, so that an interruption leaves a log without a hole.
        """
        for segment in reversed(list(self.segments)):
            if segment.base_offset > offset:
                self._delete(segment, now_ms)
        self.active = self.segments.active

    def restart_at(self, offset: Offset, *, now_ms: int) -> None:
        """Drop all segments and create an empty one at ``offset``."""
        for segment in reversed(list(self.segments)):
            self._delete(segment, now_ms)
        self.begin_segment(offset, now_ms=now_ms)

    def delete_first(self, count: int, *, now_ms: int) -> list[Offset]:
        """Delete the ``count`` oldest segments, never all of them; return their base offsets."""
        assert count < len(self.segments)
        removed = list(self.segments)[:count]
        for segment in removed:
            self._delete(segment, now_ms)
        return [segment.base_offset for segment in removed]

    def _delete(self, segment: Segment, now_ms: int) -> None:
        self.segments.remove(segment)
        self._durability.forget(segment.names())
        segment.change_suffix(DELETED)
        segment.close()
        due_ms = now_ms + self.config.file_delete_delay_ms
        self.environment.removals.add(due_ms, self.directory.parent, segment.remove)

    # Reading

    def read(
        self,
        fetch_offset: Offset,
        max_bytes: int,
        upper_bound_offset: Offset,
        log_end_offset: Offset,
        min_one_batch: bool,
        wait_for_disk: bool,
    ) -> LogRead:
        """Refer to the bytes from the batch that holds ``fetch_offset`` on, see ``LogReader.read``.

        Raises ColdReadError if the read would block on the disk.
        """
        segment = self.active
        if fetch_offset < segment.base_offset:
            return self._read_closed(
                fetch_offset,
                max_bytes,
                upper_bound_offset,
                log_end_offset,
                min_one_batch,
                wait_for_disk,
            )
        first_size = 0
        start = segment.hinted_position(fetch_offset)
        if start is None:
            # A reader without a hint is not at the end of the log, whose bytes are in the page
            # cache.
            found = segment.find(fetch_offset, None if wait_for_disk else max_bytes)
            if found is None:
                return LogRead(fetch_offset, None, segment.base_offset)
            start, first_size = found.position, found.size
        if upper_bound_offset == log_end_offset:
            end = segment.records.size
        else:
            end = self._end_position(segment, upper_bound_offset)
        size = end - start
        if size <= max_bytes:
            segment.hint(upper_bound_offset, end)
        elif 0 < first_size <= max_bytes:
            size = max_bytes
        else:
            first_size = first_size or segment.records.size_at(start)
            size = _allowed(max_bytes, first_size, min_one_batch)
        if size <= 0:
            return LogRead(fetch_offset, None, segment.base_offset)
        records = FileSlice(segment.records.file(), start, size)
        return LogRead(fetch_offset, records, segment.base_offset)

    def _read_closed(
        self,
        fetch_offset: Offset,
        max_bytes: int,
        upper_bound_offset: Offset,
        log_end_offset: Offset,
        min_one_batch: bool,
        wait_for_disk: bool,
    ) -> LogRead:
        segment = self.segments.floor(fetch_offset)
        found = None
        while segment is not None and segment is not self.active:
            found = segment.find(fetch_offset, None if wait_for_disk else max_bytes)
            if found is not None:
                break
            segment = self.segments.higher(segment.base_offset)
        if segment is None or segment is self.active or found is None:
            # Compaction left nothing between here and the active segment.
            beyond = max(fetch_offset, self.active.base_offset)
            return self.read(
                beyond, max_bytes, upper_bound_offset, log_end_offset, min_one_batch, wait_for_disk
            )
        higher = self.segments.higher(segment.base_offset)
        end = segment.records.size
        if higher is not None and upper_bound_offset < higher.base_offset:
            end = self._end_position(segment, upper_bound_offset)
        size = min(end - found.position, _allowed(max_bytes, found.size, min_one_batch))
        if size <= 0:
            return LogRead(fetch_offset, None, segment.base_offset)
        records = FileSlice(segment.records.file(), found.position, size)
        return LogRead(fetch_offset, records, segment.base_offset)

    def _end_position(self, segment: Segment, upper_bound_offset: Offset) -> int:
        """Return where the batch that holds ``upper_bound_offset`` begins."""
        if upper_bound_offset <= segment.base_offset:
            return 0
        position = segment.hinted_position(upper_bound_offset)
        if position is None:
            found = segment.find(upper_bound_offset)
            if found is None:
                return segment.records.size
            position = found.position
            if found.base_offset == upper_bound_offset:
                segment.hint(upper_bound_offset, position)
        return position

    # Closing and failing

    def finish(self) -> None:
        """Trim what was appended to; nothing more is appended."""
        if self.active.indexes.to_append:
            self.active.become_inactive()
            self._durability.note(*self.active.names())

    def abandon(self) -> None:
        """Close all files as they are."""
        for segment in self.segments:
            segment.close()

    def failure(self, error: OSError) -> StorageError:
        """Return what is raised in place of an OSError: the disk of this log has failed."""
        return StorageError(self.directory.parent, f"{self.directory.topic_partition}: {error}")


def _allowed(max_bytes: int, first_size: int, min_one_batch: bool) -> int:
    """Return how many bytes may be read: a first batch that would be cut is left out (Kafka:
    ``firstEntryIncomplete``).
    """
    if first_size <= max_bytes:
        return max_bytes
    return first_size if min_one_batch else 0
