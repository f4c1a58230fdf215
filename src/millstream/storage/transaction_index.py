"""The ``.txnindex`` file: the transactions that were aborted in a segment, by their markers.

34-byte entries, big endian, made on first need; committed transactions leave none::

     0             2                10              18              26              34
     +-------------+----------------+---------------+---------------+---------------+
     | version i16 | producer id    | first offset  | last offset   | last stable   |
     |         = 0 |            i64 |           i64 | (marker)  i64 | offset    i64 |
     +-------------+----------------+---------------+---------------+---------------+

The last stable offset is the one right after the marker was written: no transaction that begins
below it is still open, so a search for a range may stop at the first entry whose last stable offset
reaches the range's end. Kafka: ``TransactionIndex``, ``AbortedTxn``.

The file has no checksum. One that is cut inside an entry, or whose entries are out of order, raises
CorruptIndexError; ``transaction_index_rebuild`` rebuilds its entries from the log.
"""

from __future__ import annotations

import logging
import struct
from abc import abstractmethod
from typing import ClassVar, Final, NamedTuple

from millstream.model.errors import CorruptIndexError
from millstream.model.offsets import Offset
from millstream.storage.directory import TRANSACTION_INDEX, SegmentLocation
from millstream.storage.environment import LogEnvironment
from millstream.storage.files import read_file
from millstream.storage.read_ahead import Preparation

VERSION: Final = 0

_log = logging.getLogger(__name__)


class AbortedEntry(NamedTuple):
    """One aborted transaction; ``last_offset`` is its marker's."""

    version: int
    producer_id: int
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset


class IndexRebuild(Preparation):
    """Work that rebuilds the entries of a damaged index (``transaction_index_rebuild``)."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[AbortedEntry] = []
        """What the segment held when this was made, once ``is_done`` without a ``failure``."""

    @property
    @abstractmethod
    def is_current(self) -> bool:
        """False once something was cut off the segment, or where its files were renamed."""


class TransactionIndex:
    """The aborted transactions of one segment. Read whole on first need: there are few."""

    extension: ClassVar[str] = TRANSACTION_INDEX
    entry: ClassVar[struct.Struct] = struct.Struct(">hqqqq")

    __slots__ = ("_entries", "_environment", "_location", "_unwritten", "rebuild")

    def __init__(self, environment: LogEnvironment, location: SegmentLocation) -> None:
        self._environment = environment
        self._location = location
        self._entries: list[AbortedEntry] | None = None
        self._unwritten: list[AbortedEntry] = []
        """Added since the file was found damaged, and kept for :meth:`replace`."""
        self.rebuild: IndexRebuild | None = None
        """The work that rebuilds the index; set once a damaged file has been used."""

    @property
    def path(self) -> str:
        """Path of the file, which may not be there."""
        return self._location.path(TRANSACTION_INDEX)

    @property
    def entries(self) -> list[AbortedEntry]:
        """All entries, in order of their markers. Raises CorruptIndexError."""
        if self._entries is None:
            self._entries = self._read()
        return self._entries

    def check(self) -> None:
        """Read the file. Raises CorruptIndexError."""
        self._entries = self._read()

    def append(self, aborted: AbortedEntry) -> None:
        """Add a transaction whose marker follows those of all others here. A file that is damaged
        is left as it is, until :meth:`replace`.
        """
        try:
            entries = self.entries
        except CorruptIndexError:
            self._unwritten.append(aborted)
            return
        assert not entries or entries[-1].last_offset < aborted.last_offset
        file = self._environment.file_system.open(self.path, create=True)
        file.write_at(len(entries) * self.entry.size, self.entry.pack(*aborted))
        entries.append(aborted)

    def collect(
        self, fetch_offset: Offset, upper_bound_offset: Offset
    ) -> tuple[list[AbortedEntry], bool]:
        """Return the transactions that touch a range, and whether later segments have no more."""
        found = []
        for aborted in self.entries:
            if aborted.last_offset >= fetch_offset and aborted.first_offset < upper_bound_offset:
                found.append(aborted)
            if aborted.last_stable_offset >= upper_bound_offset:
                return found, True
        return found, False

    def replace(self, entries: list[AbortedEntry]) -> None:
        """Use ``entries`` as the segment's entries, and write them over a damaged file.

        A failed write does not change the answers; the next start finds the file as it is now.
        """
        last = entries[-1].last_offset if entries else self._location.base_offset - 1
        entries = entries + [each for each in self._unwritten if each.last_offset > last]
        self._unwritten = []
        self.rebuild = None
        self._entries = entries
        data = b"".join(self.entry.pack(*each) for each in entries)
        try:
            file = self._environment.file_system.open(self.path, create=True)
            file.write_at(0, data)
            file.truncate(len(data))
        except OSError as error:
            _log.warning("%s could not be written: %s", self.path, error)

    def truncate_to(self, offset: Offset) -> None:
        """Drop the transactions whose marker lies at ``offset`` or beyond."""
        self.rebuild = None
        try:
            kept = [aborted for aborted in self.entries if aborted.last_offset < offset]
        except CorruptIndexError:
            self._unwritten = [each for each in self._unwritten if each.last_offset < offset]
            return
        if len(kept) < len(self.entries):
            file = self._environment.file_system.open(self.path)
            file.truncate(len(kept) * self.entry.size)
        self._entries = kept

    def reset(self) -> None:
        """Drop all."""
        if self._environment.file_system.exists(self.path):
            self._environment.file_system.open(self.path).truncate(0)
        self._entries = []
        self._unwritten = []
        self.rebuild = None

    def _read(self) -> list[AbortedEntry]:
        try:
            data = read_file(self._environment.file_system, self.path)
        except FileNotFoundError:
            return []
        if len(data) % self.entry.size:
            raise CorruptIndexError(f"{self.path}: {len(data)} bytes are no whole entries")
        entries = [AbortedEntry(*fields) for fields in self.entry.iter_unpack(data)]
        last = self._location.base_offset - 1
        for aborted in entries:
            if aborted.version != VERSION or aborted.last_offset <= last:
                raise CorruptIndexError(f"{self.path}: {aborted} is out of order")
            last = aborted.last_offset
        return entries
