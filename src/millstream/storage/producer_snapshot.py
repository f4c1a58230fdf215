"""The ``<offset>.snapshot`` file: the producers as they were before ``offset``.

Big endian; the CRC-32C covers everything after itself::

     0             2              6             10
     +-------------+--------------+-------------+
     | version i16 | CRC-32C      | count       |   then ``count`` entries of 46 bytes:
     |         = 1 |          u32 |         i32 |
     +-------------+--------------+-------------+
     0             8          10          14           22          26           34
     +-------------+-----------+-----------+------------+-----------+------------+
     | producer id | epoch i16 | last      | last       | offset    | timestamp  |
     |         i64 |           | sequence  | offset i64 | delta i32 |        i64 |
     |             |           |       i32 |            |           |            |
     +-------------+-----------+-----------+------------+-----------+------------+
     34                  38                               46
     +-------------------+--------------------------------+
     | coordinator epoch | first offset of the open       |
     |               i32 | transaction, -1 if none    i64 |
     +-------------------+--------------------------------+

Only the last batch of a producer's window is kept; an entry that holds a marker alone has last
offset -1. A snapshot is a hint: one that is damaged is dropped and the log is read instead.
Kafka: ``ProducerStateManager.writeSnapshot``.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from typing import Final

from millstream.model.errors import CorruptIndexError
from millstream.model.offsets import NO_OFFSET, Offset
from millstream.records.crc32c import checksum
from millstream.storage.directory import PRODUCER_SNAPSHOT, PartitionDirectory, file_name
from millstream.storage.environment import LogEnvironment
from millstream.storage.files import read_file, replace_file
from millstream.storage.producer_state import BatchMetadata, ProducerEntry

VERSION: Final = 1
HEADER: Final = struct.Struct(">hIi")
ENTRY: Final = struct.Struct(">qhiqiqiq")
_CRC_END: Final = 6
_COUNT: Final = struct.Struct(">i")


def encode_snapshot(producers: Collection[ProducerEntry]) -> bytes:
    """Return the file's bytes."""
    body = bytearray(_COUNT.pack(len(producers)))
    for entry in producers:
        last = entry.batches[-1] if entry.batches else None
        body += ENTRY.pack(
            entry.producer_id,
            entry.producer_epoch,
            entry.last_sequence,
            last.last_offset if last else NO_OFFSET,
            last.offset_delta if last else 0,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.current_txn_first_offset,
        )
    return struct.pack(">hI", VERSION, checksum(body)) + body


def decode_snapshot(data: bytes, path: str) -> list[ProducerEntry]:
    """Return the producers. Raises CorruptIndexError, naming ``path``."""
    if len(data) < HEADER.size:
        raise CorruptIndexError(f"{path}: {len(data)} bytes are no producer snapshot")
    version, crc, count = HEADER.unpack_from(data)
    if version != VERSION:
        raise CorruptIndexError(f"{path}: version {version}")
    if checksum(memoryview(data)[_CRC_END:]) != crc:
        raise CorruptIndexError(f"{path}: its CRC-32C is wrong")
    if len(data) != HEADER.size + count * ENTRY.size:
        raise CorruptIndexError(f"{path}: {len(data)} bytes for {count} producers")
    return [_entry(*fields) for fields in ENTRY.iter_unpack(data[HEADER.size :])]


def _entry(
    producer_id: int,
    producer_epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    current_txn_first_offset: int,
) -> ProducerEntry:
    entry = ProducerEntry(producer_id, producer_epoch)
    if last_offset >= 0:
        entry.add(
            producer_epoch, BatchMetadata(last_sequence, last_offset, offset_delta, timestamp)
        )
    entry.last_timestamp = timestamp
    entry.coordinator_epoch = coordinator_epoch
    entry.current_txn_first_offset = current_txn_first_offset
    return entry


class ProducerSnapshots:
    """The snapshot files of one partition, by offset."""

    __slots__ = ("_directory", "_environment", "_unverified", "offsets")

    def __init__(
        self,
        environment: LogEnvironment,
        directory: PartitionDirectory,
        offsets: Iterable[Offset] = (),
    ) -> None:
        self._environment = environment
        self._directory = directory
        self.offsets = sorted(offsets)
        """Offsets for which there is a file, ascending."""
        self._unverified: set[Offset] = set()

    @property
    def latest(self) -> Offset:
        """The largest offset with a snapshot, -1 if there is none."""
        return self.offsets[-1] if self.offsets else NO_OFFSET

    def path(self, offset: Offset) -> str:
        """Return the path of a snapshot."""
        return self._directory.file(file_name(offset, PRODUCER_SNAPSHOT))

    def write(self, offset: Offset, producers: Collection[ProducerEntry]) -> str | None:
        """Write a snapshot that holds up to ``offset``, exclusive; return its path, None when
        there is one for this or a later offset. It is not flushed.
        """
        if offset <= self.latest or offset == 0:
            return None
        path, data = self.path(offset), encode_snapshot(producers)
        if not self._holds(offset, data):
            replace_file(self._environment.file_system, path, data, durable=False)
        self._unverified.discard(offset)
        self.offsets.append(offset)
        return path

    def mark_unverified(self, *, above: Offset) -> None:
        """Mark the snapshots above an offset as unverified: one is trusted again when its content
        equals what would be written.
        """
        self._unverified.update(offset for offset in self.offsets if offset > above)
        self.offsets = [offset for offset in self.offsets if offset <= above]

    def remove_unverified(self) -> None:
        """Remove the snapshots that are still unverified."""
        for offset in sorted(self._unverified):
            self._environment.file_system.remove(self.path(offset))
        self._unverified.clear()

    def _holds(self, offset: Offset, data: bytes) -> bool:
        if offset not in self._unverified:
            return False
        try:
            return read_file(self._environment.file_system, self.path(offset)) == data
        except FileNotFoundError:
            return False

    def read(self, offset: Offset) -> list[ProducerEntry]:
        """Return the producers in a snapshot. Raises CorruptIndexError and FileNotFoundError."""
        path = self.path(offset)
        return decode_snapshot(read_file(self._environment.file_system, path), path)

    def remove(self, offset: Offset) -> None:
        """Remove a snapshot; one that is not there is fine."""
        if offset in self.offsets:
            self.offsets.remove(offset)
            self._environment.file_system.remove(self.path(offset))

    def keep(self, *, above: Offset, up_to: Offset) -> None:
        """Remove the snapshots outside of (``above``, ``up_to``]."""
        for offset in list(self.offsets):
            if not above < offset <= up_to:
                self.remove(offset)

    def keep_segments(self, base_offsets: Iterable[Offset]) -> None:
        """Remove the snapshots that belong to no segment, all but the latest."""
        wanted = {self.latest, *base_offsets}
        for offset in list(self.offsets):
            if offset not in wanted:
                self.remove(offset)
