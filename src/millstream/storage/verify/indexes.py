"""Checks the offset index and the time index of a segment against its batches."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from millstream.model.offsets import NO_TIMESTAMP, Offset
from millstream.records.batch import Batch
from millstream.storage.offset_index import OffsetIndex
from millstream.storage.time_index import TimeIndex
from millstream.storage.verify.problem import Problem

_REBUILT: Final = "a broker notices when it first uses the index and rebuilds it from the log"
_MISLEADS: Final = (
    "a broker checks the last entry alone: a look-up that meets this one may miss records; remove "
    "the file while the broker is stopped and it is rebuilt"
)


class IndexEntries:
    """The entries of an index file up to the zeros of preallocation, and what is wrong with the
    file by itself.
    """

    def __init__(
        self, path: str, data: bytes, entry: struct.Struct, *, may_have_zeros: bool
    ) -> None:
        self.path = path
        self.entry = entry
        self.problems: list[Problem] = []
        self.entries: list[tuple[int, ...]] = []
        whole = len(data) - len(data) % entry.size
        if whole < len(data):
            what = f"{len(data) - whole} bytes after the last whole entry"
            self.problems.append(Problem(path, whole, what, _REBUILT))
        end = len(data.rstrip(b"\0"))
        for number, fields in enumerate(entry.iter_unpack(data[:whole])):
            if number * entry.size >= end:
                break
            self.entries.append(fields)
        rest = whole - len(self.entries) * entry.size
        if rest and not may_have_zeros:
            what = f"{rest} zero bytes after the entries: the file was not cut to them"
            self.problems.append(Problem(path, whole - rest, what, _REBUILT))

    def wrong(self, number: int, what: str) -> Problem:
        """Return a problem with one entry."""
        last = number == len(self.entries) - 1
        return Problem(self.path, number * self.entry.size, what, _REBUILT if last else _MISLEADS)


class OffsetIndexCheck:
    """Every entry leads to the start of a batch at or before the one that ends with its offset."""

    def __init__(
        self, path: str, data: bytes, base_offset: Offset, *, may_have_zeros: bool
    ) -> None:
        self._base_offset = base_offset
        self._index = IndexEntries(path, data, OffsetIndex.entry, may_have_zeros=may_have_zeros)
        self._next = 0
        self._waiting: list[int] = []

    def batch(self, position: int, batch: Batch) -> Iterator[Problem]:
        """Take the next batch of the log."""
        entries = self._index.entries
        while self._next < len(entries) and entries[self._next][1] <= position:
            number = self._next
            relative, entry_position = entries[number]
            self._next += 1
            if number and (
                relative <= entries[number - 1][0] or entry_position <= entries[number - 1][1]
            ):
                yield self._index.wrong(
                    number, f"{self._text(number)} does not follow the entry before"
                )
            elif entry_position < position or position == 0:
                yield self._index.wrong(
                    number, f"{self._text(number)} leads to where no batch begins"
                )
            elif self._base_offset + relative < batch.last_offset:
                yield self._index.wrong(
                    number,
                    f"{self._text(number)} leads to a batch that ends at {batch.last_offset}",
                )

    def finish(self) -> Iterator[Problem]:
        """Return what is wrong once the log has ended."""
        yield from self._index.problems
        for number in range(self._next, len(self._index.entries)):
            yield self._index.wrong(
                number, f"{self._text(number)} leads beyond the log's last batch"
            )

    def _text(self, number: int) -> str:
        relative, position = self._index.entries[number]
        return f"the entry (offset {self._base_offset + relative}, position {position})"


class TimeIndexCheck:
    """Every entry names the largest timestamp up to a batch, and the batch that holds it; the last
    one of a closed segment the largest of all.
    """

    def __init__(
        self, path: str, data: bytes, base_offset: Offset, *, is_active: bool, may_have_zeros: bool
    ) -> None:
        self._base_offset = base_offset
        self._is_active = is_active
        self._index = IndexEntries(path, data, TimeIndex.entry, may_have_zeros=may_have_zeros)
        self._next = 0
        self._largest = NO_TIMESTAMP

    def batch(self, position: int, batch: Batch) -> Iterator[Problem]:
        """Take the next batch of the log."""
        self._largest = max(self._largest, batch.max_timestamp)
        entries = self._index.entries
        while self._next < len(entries):
            number = self._next
            timestamp, relative = entries[number]
            offset = self._base_offset + relative
            if offset > batch.last_offset:
                return
            self._next += 1
            if number and timestamp <= entries[number - 1][0]:
                yield self._index.wrong(
                    number, f"{self._text(number)} does not follow the entry before"
                )
            elif relative < 0:
                yield self._index.wrong(number, f"{self._text(number)} lies before the segment")
            elif timestamp != self._largest:
                yield self._index.wrong(
                    number,
                    f"{self._text(number)}, where the largest timestamp so far is {self._largest}",
                )

    def finish(self) -> Iterator[Problem]:
        """Return what is wrong once the log has ended."""
        yield from self._index.problems
        entries = self._index.entries
        for number in range(self._next, len(entries)):
            yield self._index.wrong(
                number, f"{self._text(number)} leads beyond the log's last batch"
            )
        newest = entries[-1][0] if entries else NO_TIMESTAMP
        if not self._is_active and self._largest > newest and self._next == len(entries):
            what = f"the largest timestamp of the segment, {self._largest}, has no entry"
            end = len(entries) * self._index.entry.size
            yield Problem(self._index.path, end, what, _REBUILT)

    def _text(self, number: int) -> str:
        timestamp, relative = self._index.entries[number]
        return f"the entry (timestamp {timestamp}, offset {self._base_offset + relative})"
