"""Returns records from the fetch buffer, up to a limit, and advances the positions.

Used by one thread at a time: the user's. It shares only the fetch buffer and the positions with the
client's loop (see ``subscription``).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from millstream.client.core.consumer.errors import RecordError
from millstream.client.core.consumer.fetched import FetchBuffer, Fetched
from millstream.client.core.consumer.record import ConsumerRecord
from millstream.client.core.consumer.record_reader import RecordReader
from millstream.model.offsets import LeaderEpoch, Offset

K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True, eq=False)
class _Open(Generic[K, V]):
    """Records of one fetch; those before ``index`` were returned."""

    fetched: Fetched
    records: list[ConsumerRecord[K, V]]
    error: RecordError | None = None
    index: int = 0

    @property
    def is_current(self) -> bool:
        return self.fetched.is_current

    def advance(self, offset: Offset, epoch: LeaderEpoch) -> None:
        self.fetched.state.advanced = (self.fetched.fence, offset, epoch)


@dataclass(slots=True, eq=False)
class _Piece(Generic[K, V]):
    """Records [start, stop) of an open fetch that were returned last."""

    opened: _Open[K, V]
    start: int
    stop: int
    position_epoch: LeaderEpoch


class Delivery(Generic[K, V]):
    """The user's end of the fetch buffer."""

    def __init__(self, buffer: FetchBuffer, reader: RecordReader[K, V]) -> None:
        self._buffer = buffer
        self._reader = reader
        self._open: deque[_Open[K, V]] = deque()
        self._parked: list[_Open[K, V]] = []
        self._parked_raw: list[Fetched] = []
        self._last: list[_Piece[K, V]] = []

    @property
    def is_idle(self) -> bool:
        """True if nothing can be returned without new responses or a resume."""
        return not self._open and not self._buffer and not self._parked and not self._parked_raw

    def take(self, max_records: int) -> list[ConsumerRecord[K, V]]:
        """Return the next records and advance the positions past them; empty if none are buffered.

        Raises the RecordError of the next record if that cannot be read.
        """
        self._last = []
        taken: list[ConsumerRecord[K, V]] = []
        while len(taken) < max_records:
            opened = self._next_open()
            if opened is None:
                break
            if opened.index == len(opened.records) and opened.error is not None:
                if taken:
                    break
                opened.advance(opened.error.offset, opened.fetched.state.position_epoch)
                raise opened.error
            piece = self._hand_out(opened, max_records - len(taken))
            taken = piece if not taken else taken + piece
        return taken

    def take_fetched(self) -> Fetched | None:
        """Return the next fetched bytes and advance the position past them; None when none are.

        For readers of tables, which leave out records before its ``fetch_offset``. If :meth:`take`
        has returned the first records of a fetch, the rest is returned.
        """
        self._last = []
        self._settle_open()
        if self._open:
            opened = self._open.popleft()
            fetched: Fetched | None = replace(
                opened.fetched, fetch_offset=opened.fetched.state.position
            )
        else:
            fetched = self._take_raw()
        if fetched is not None:
            fetched.state.advanced = (fetched.fence, fetched.next_offset, fetched.last_epoch)
        return fetched

    def give_back_rest(self, fetched: Fetched, offset: Offset, epoch: LeaderEpoch) -> None:
        """Take back the records from ``offset`` on of the last :meth:`take_fetched`.

        The position goes back to it; ``epoch`` is the leader epoch of the record before.
        """
        if fetched.is_current:
            fetched.state.advanced = (fetched.fence, offset, epoch)
            self._parked_raw.insert(0, replace(fetched, fetch_offset=offset))

    def give_back(self, count: int) -> None:
        """Take back the last ``count`` records of the last :meth:`take`, which were not processed.

        The positions go back to the first of them.
        """
        while count > 0 and self._last:
            piece = self._last.pop()
            opened = piece.opened
            returned = min(count, piece.stop - piece.start)
            count -= returned
            if not opened.is_current:
                continue
            opened.index = piece.stop - returned
            epoch = piece.position_epoch
            if opened.index > piece.start:
                epoch = opened.records[opened.index - 1].leader_epoch
            opened.advance(opened.records[opened.index].offset, epoch)
            if not self._open or self._open[0] is not opened:
                self._open.appendleft(opened)
        self._last = []

    def _hand_out(self, opened: _Open[K, V], room: int) -> list[ConsumerRecord[K, V]]:
        start = opened.index
        stop = min(start + room, len(opened.records))
        piece = (
            opened.records if stop - start == len(opened.records) else opened.records[start:stop]
        )
        opened.index = stop
        epoch_before = opened.fetched.state.position_epoch
        epoch = piece[-1].leader_epoch if piece else epoch_before
        if stop < len(opened.records):
            position = piece[-1].offset + 1
        elif opened.error is None:
            # After the last record if the log has gaps or markers.
            position = opened.fetched.next_offset
            self._open.popleft()
        else:
            position = opened.error.offset
        opened.advance(position, epoch)
        if piece:
            self._last.append(_Piece(opened, start, stop, epoch_before))
        return piece

    def _next_open(self) -> _Open[K, V] | None:
        self._settle_open()
        while not self._open:
            fetched = self._take_raw()
            if fetched is None:
                return None
            read = self._reader.read(fetched)
            self._open.append(_Open(fetched, read.records, read.error))
        return self._open[0]

    def _settle_open(self) -> None:
        """Make the first open fetch one that may be returned, or have none."""
        self._unpark()
        while self._open:
            opened = self._open[0]
            if not opened.is_current:
                self._open.popleft()
            elif not opened.fetched.state.is_deliverable:
                self._parked.append(self._open.popleft())
            else:
                return

    def _take_raw(self) -> Fetched | None:
        while True:
            if self._parked_raw and self._parked_raw[0].state.is_deliverable:
                fetched: Fetched | None = self._parked_raw.pop(0)
            else:
                fetched = self._buffer.take()
            if fetched is None or fetched.is_current:
                if fetched is None or fetched.state.is_deliverable:
                    return fetched
                self._parked_raw.append(fetched)

    def _unpark(self) -> None:
        """Put back, in order, the fetches of resumed partitions."""
        if not self._parked and not self._parked_raw:
            return
        self._parked_raw = [each for each in self._parked_raw if each.is_current]
        self._parked_raw.sort(key=lambda each: not each.state.is_deliverable)
        self._parked = [each for each in self._parked if each.is_current]
        ready = [each for each in self._parked if each.fetched.state.is_deliverable]
        if ready:
            self._parked = [each for each in self._parked if not each.fetched.state.is_deliverable]
            self._open.extendleft(reversed(ready))
