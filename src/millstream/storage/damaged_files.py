"""Keeps what recovery cuts off a log although valid records follow the damage.

A log ends at its first bad batch. When the machine stopped in the middle of a write, nothing valid
follows, and what is cut off is worth nothing. When valid batches follow, records are cut off that
were acknowledged: their bytes stay beside the segment, as ``.log`` files of another name, so that a
person can get at them (``millstream log dump`` reads them)::

    <base offset>.log.damaged-<position>    the bytes of the segment's ``.log`` from ``position``
                                            on, where the first bad batch lies; 0 for a segment that
                                            went whole, because it followed a damaged one

No broker, Kafka's included, takes such a file for a segment. It goes with the directory: when the
topic is deleted, and when the replica moves to another log directory.

They are bounded: what a recovery cuts off is kept whole, and of what earlier ones kept the oldest
files go until all of them together have at most 1 GiB, or as much as this recovery cuts off, if
that is more. A segment that goes whole is renamed and takes no room. What has to be copied is
copied only if the volume keeps 256 MiB free. A recovery never fails for this: what cannot be kept
is cut off all the same, and a log line says so.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from millstream.model.offsets import Offset
from millstream.storage.directory import LOG, PartitionDirectory, file_name
from millstream.storage.files import DirectoryEntry, FileSystem
from millstream.storage.segment import Segment

MAX_KEPT_BYTES: Final = 1 << 30
"""What earlier recoveries may have kept; see above."""

ROOM_LEFT_BYTES: Final = 256 << 20
"""What a copy leaves free on the volume."""

_COPY_BYTES: Final = 4 << 20
_NAME: Final = re.compile(r"(\d{1,20})\.log\.damaged-(\d{1,19})\Z", re.ASCII)

_log = logging.getLogger(__name__)


class DamagedName(NamedTuple):
    """What the name of a kept file says."""

    base_offset: Offset
    position: int


def damaged_name(base_offset: Offset, position: int) -> str:
    """Return the name of the file that keeps a segment's bytes from ``position`` on."""
    return f"{file_name(base_offset, LOG)}.damaged-{position}"


def parse_damaged_name(name: str) -> DamagedName | None:
    """Return what such a name says; None for any other file."""
    match = _NAME.match(name)
    return DamagedName(int(match[1]), int(match[2])) if match else None


class DamagedFiles:
    """The kept files of one partition. ``found`` is what lies in its directory."""

    def __init__(
        self,
        file_system: FileSystem,
        directory: PartitionDirectory,
        found: Iterable[DirectoryEntry],
    ) -> None:
        self._file_system = file_system
        self._directory = directory
        kept = [entry for entry in found if parse_damaged_name(entry.name)]
        self._earlier = sorted(kept, key=lambda entry: (entry.modified_ms, entry.name))

    def make_room(self, new_bytes: int) -> None:
        """Remove the oldest files of earlier recoveries, as far as the bound asks for it before
        ``new_bytes`` are kept.
        """
        earlier_bytes = sum(entry.size for entry in self._earlier)
        while self._earlier and earlier_bytes + new_bytes > max(new_bytes, MAX_KEPT_BYTES):
            oldest = self._earlier.pop(0)
            earlier_bytes -= oldest.size
            path = self._directory.file(oldest.name)
            try:
                self._file_system.remove(path)
            except OSError as error:
                _log.warning("%s could not be removed: %s", path, error)
            else:
                _log.warning("%s is removed to keep newer ones", path)

    def keep_tail(self, segment: Segment, position: int) -> None:
        """Copy what a segment's ``.log`` holds from ``position`` on, before it is cut there."""
        size = segment.size - position
        path = self._directory.file(damaged_name(segment.base_offset, position))
        try:
            # A recovery that was interrupted has made the copy, and the log has not been cut yet.
            if not self._holds(path, segment, position):
                self._copy(segment, position, path)
            self._file_system.open(path).sync()
            # Before the segment is cut: a machine that stops now must leave one of the two.
            self._file_system.sync_directory(self._directory.path)
        except OSError as error:
            _log.warning(
                "%s: %d bytes from position %d on could not be kept aside, with the valid records "
                "in them: %s",
                segment.records.path,
                size,
                position,
                error,
            )
            return
        _log.warning(
            "%s: %d bytes from position %d on are kept aside as %s, with the valid records in them",
            segment.records.path,
            size,
            position,
            path,
        )

    def keep_segment(self, segment: Segment) -> None:
        """Rename the ``.log`` of a segment that goes whole."""
        path = self._directory.file(damaged_name(segment.base_offset, 0))
        old_path = segment.records.path
        try:
            self._file_system.rename(old_path, path)
        except OSError as error:
            _log.warning("%s could not be kept aside: %s", old_path, error)
            return
        _log.warning("%s, which follows damage, is kept aside as %s", old_path, path)

    def _copy(self, segment: Segment, position: int, path: str) -> None:
        file_system = self._file_system
        end = segment.size
        free_bytes = file_system.space(self._directory.path).usable_bytes
        if free_bytes < end - position + ROOM_LEFT_BYTES:
            raise OSError(f"the volume has {free_bytes} bytes left")
        source = segment.records.file()
        temporary = f"{path}.tmp"
        copied = 0
        try:
            copy = file_system.open(temporary, create=True)
            copy.truncate(0)
            while position + copied < end:
                data = source.read_at(position + copied, min(_COPY_BYTES, end - position - copied))
                if not data:
                    break
                copy.write_at(copied, data)
                copied += len(data)
            copy.sync()
            file_system.rename(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                file_system.remove(temporary)
            raise

    def _holds(self, path: str, segment: Segment, position: int) -> bool:
        """Tell whether a file is there and holds what the ``.log`` does from ``position`` on."""
        if not self._file_system.exists(path):
            return False
        size = segment.size - position
        copy, source = self._file_system.open(path), segment.records.file()
        return copy.size() == size and all(
            copy.read_at(at, _COPY_BYTES)
            == source.read_at(position + at, min(_COPY_BYTES, size - at))
            for at in range(0, size, _COPY_BYTES)
        )
