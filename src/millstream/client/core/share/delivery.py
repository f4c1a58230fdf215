"""Hands acquired records out to the user, and keeps what the user has said of them.

Used by one thread at a time: the user's. It shares with the client's loop only the buffer.

A delivered record is *held* until it is acknowledged and the acknowledgement has been taken away to
be sent: by the next poll, commit or close. Renewed records come back once the broker has renewed
them, and until then no others are delivered (Kafka: ``ShareFetch``, ``ShareInFlightBatch``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from millstream.client.core.consumer.errors import RecordError
from millstream.client.core.consumer.record_reader import RecordReader
from millstream.client.core.share.acknowledgements import (
    Acknowledged,
    AcknowledgeType,
    Source,
    Types,
)
from millstream.client.core.share.errors import NotAcquiredError, UnacknowledgedError
from millstream.client.core.share.fetched import ShareBuffer, ShareFetched
from millstream.client.core.share.opened import OpenedFetch, Portion
from millstream.client.core.share.record import ShareRecord
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition

K = TypeVar("K")
V = TypeVar("V")


class _Held(Generic[K, V]):
    """The delivered records of one source."""

    def __init__(self, fetched: ShareFetched) -> None:
        self.source = fetched.source
        self.fetched = fetched
        """The latest fetch of the source."""
        self.records: dict[Offset, ShareRecord[K, V]] = {}
        """Delivered, and not taken away acknowledged."""
        self.types: Types = {}
        """What is to be sent: of records, of gaps, and of records that cannot be read."""
        self.failed: set[Offset] = set()
        """Offsets that an error was raised for; what is said of them may be changed."""
        self.renewing: dict[Offset, ShareRecord[K, V]] = {}
        self.renewed: dict[Offset, ShareRecord[K, V]] = {}
        """Renewed, to be delivered by the next poll."""

    @property
    def is_empty(self) -> bool:
        return not (self.records or self.types or self.renewing or self.renewed)


class _Ready(Generic[K, V]):
    """Decoded records of one fetch that are still to be delivered.

    ``portion`` ends with the error to be raised after them; it and ``opened`` are None for records
    that were given back.
    """

    def __init__(
        self,
        fetched: ShareFetched,
        portion: Portion[K, V] | None = None,
        opened: OpenedFetch[K, V] | None = None,
    ) -> None:
        self.fetched = fetched
        self.records: deque[ShareRecord[K, V]] = deque(() if portion is None else portion.records)
        self.portion = portion
        self.opened = opened

    @property
    def error(self) -> RecordError | None:
        return None if self.portion is None else self.portion.error


class ShareDelivery(Generic[K, V]):
    """The user's end of the buffer of one share consumer."""

    def __init__(
        self,
        buffer: ShareBuffer,
        reader: RecordReader[K, V],
        now_ms: Callable[[], float],
        *,
        explicit: bool,
    ) -> None:
        self._buffer = buffer
        self._reader = reader
        self._now_ms = now_ms
        self._explicit = explicit
        self._held: dict[Source, _Held[K, V]] = {}
        self._ready: deque[_Ready[K, V]] = deque()

    def clear(self) -> None:
        """Forget everything: the acquisitions have been given up."""
        self._held.clear()
        self._ready.clear()

    # --- acknowledging ---------------------------------------------------------------------------

    def acknowledge(self, record: ShareRecord[K, V] | RecordError, kind: AcknowledgeType) -> None:
        """Note what becomes of a delivered record, or of one that an error was raised for.

        It may be changed until the next poll, commit or close. NotAcquiredError for another record.
        """
        offset = record.offset
        for held in self._of(record.topic_partition):
            failed = isinstance(record, RecordError)
            if offset in (held.failed if failed else held.records):
                held.types[offset] = int(kind)
                return
        raise NotAcquiredError(
            f"the record at offset {offset} of {record.topic_partition} is not acquired"
        )

    def accept_held(self, record: ShareRecord[K, V]) -> None:
        """Accept a record if it is still held."""
        for held in self._of(record.topic_partition):
            if record.offset in held.records:
                held.types.setdefault(record.offset, int(AcknowledgeType.ACCEPT))
                return

    def check_acknowledged(self) -> None:
        """Raise UnacknowledgedError unless the user has acknowledged every record, or needs not."""
        if not self._explicit:
            return
        missing = sum(len(each.records.keys() - each.types.keys()) for each in self._held.values())
        if missing:
            raise UnacknowledgedError(
                f"{missing} records of the last poll are not acknowledged "
                "(share.acknowledgement.mode=explicit)"
            )

    def take_acknowledged(self, *, accept_rest: bool = True) -> list[Acknowledged]:
        """Take away what was acknowledged, to be sent.

        In the implicit mode, with ``accept_rest``, every record that was delivered is accepted.
        """
        taken: list[Acknowledged] = []
        for source, held in list(self._held.items()):
            if not self._explicit and accept_rest:
                accept = int(AcknowledgeType.ACCEPT)
                held.types = dict.fromkeys(held.records, accept) | held.types
            if held.types:
                taken.append(Acknowledged(source, held.types))
                for offset, kind in held.types.items():
                    record = held.records.pop(offset, None)
                    if kind == AcknowledgeType.RENEW and record is not None:
                        held.renewing[offset] = record
                held.types = {}
                held.failed.clear()
            if held.is_empty:
                del self._held[source]
        return taken

    def settled(self, acknowledged: Acknowledged, error: Exception | None) -> None:
        """Handle the broker's answer: renewed records are delivered again by the next poll."""
        held = self._held.get(acknowledged.source)
        if held is None:
            return
        for offset, kind in acknowledged.types.items():
            if kind == AcknowledgeType.RENEW:
                record = held.renewing.pop(offset, None)
                if record is not None and error is None:
                    held.renewed[offset] = record
        if held.is_empty:
            del self._held[acknowledged.source]

    def _of(self, topic_partition: TopicPartition) -> list[_Held[K, V]]:
        """Return what is held of a partition, the latest session first."""
        return [
            each
            for source, each in reversed(self._held.items())
            if source.topic_partition == topic_partition
        ]

    # --- records ---------------------------------------------------------------------------------

    def take(self, max_records: int) -> list[ShareRecord[K, V]]:
        """Return the next acquired records, empty if there are none.

        Raises the RecordError of the next record if that cannot be read: it is released or
        rejected, unless the user acknowledges the error otherwise before the next poll.
        """
        if any(each.renewing or each.renewed for each in self._held.values()):
            return self._take_renewed()
        taken: list[ShareRecord[K, V]] = []
        while len(taken) < max_records:
            ready = self._next_ready()
            if ready is None:
                break
            if ready.records:
                count = min(max_records - len(taken), len(ready.records))
                piece = [ready.records.popleft() for _ in range(count)]
                self._hold(ready.fetched).records |= {record.offset: record for record in piece}
                taken = taken + piece if taken else piece
            elif ready.error is None:
                self._ready.popleft()
            elif taken:
                break
            else:
                self._ready.popleft()
                self._raise(ready)
        return taken

    def _raise(self, ready: _Ready[K, V]) -> None:
        """Raise the error that ends a portion; what it concerns is held as failed."""
        portion, opened = ready.portion, ready.opened
        assert portion is not None
        assert portion.error is not None
        assert opened is not None
        if portion.unread:
            held = self._hold(ready.fetched)
            held.types |= portion.unread
            held.failed |= portion.unread.keys()
        self._read_on(opened)
        raise portion.error

    def give_back(self, records: Sequence[ShareRecord[K, V]]) -> None:
        """Take back delivered records that the user has not seen: the next poll returns them."""
        for record in reversed(records):
            for held in self._of(record.topic_partition):
                if held.records.pop(record.offset, None) is not None:
                    held.types.pop(record.offset, None)
                    self._put_back(held.fetched, record)
                    break

    def _put_back(self, fetched: ShareFetched, record: ShareRecord[K, V]) -> None:
        if not self._ready or self._ready[0].fetched is not fetched:
            self._ready.appendleft(_Ready(fetched))
        self._ready[0].records.appendleft(record)

    def _hold(self, fetched: ShareFetched) -> _Held[K, V]:
        held = self._held.get(fetched.source)
        if held is None:
            held = self._held[fetched.source] = _Held(fetched)
        held.fetched = fetched
        return held

    def _take_renewed(self) -> list[ShareRecord[K, V]]:
        taken: list[ShareRecord[K, V]] = []
        for held in self._held.values():
            if not held.renewing:
                taken += held.renewed.values()
                held.records |= held.renewed
                held.renewed = {}
        return taken

    def _next_ready(self) -> _Ready[K, V] | None:
        """Return the next decoded records whose acquisition has not ended."""
        while True:
            if self._ready:
                if self._ready[0].fetched.is_acquired(self._now_ms()):
                    return self._ready[0]
                self._ready.popleft()
                continue
            fetched = self._buffer.take()
            if fetched is None:
                return None
            self._read_on(OpenedFetch(fetched, self._reader))

    def _read_on(self, opened: OpenedFetch[K, V]) -> None:
        """Decode a fetch up to its next error, unless all of it was."""
        if opened.is_done or not opened.fetched.is_acquired(self._now_ms()):
            return
        portion = opened.read()
        if portion.gaps:
            self._hold(opened.fetched).types |= portion.gaps
        self._ready.appendleft(_Ready(opened.fetched, portion, opened))
