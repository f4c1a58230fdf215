"""From a key to the last offset that holds it, in memory of a fixed size.

Keys are not kept: 16 bytes of a keyed hash stand for each. The seed is drawn anew for every map, so
a client cannot choose keys that collide. Slots of 24 bytes, open addressing::

     0                                 16                    24
     +---------------------------------+---------------------+
     | digest of the key               | offset + 1, 0 where |
     |                                 | the slot is free    |
     +---------------------------------+---------------------+

A search looks at the slots that successive four bytes of the digest name, then goes on one by one.
Kafka: ``SkimpyOffsetMap``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, Protocol

from millstream.model.errors import ConfigError
from millstream.model.offsets import NO_OFFSET, Offset
from millstream.records.compaction import NOTHING_RETAINED, RetainedRecords, record_spans
from millstream.records.record import wrap64

SLOT_BYTES: Final = 24
DIGEST_BYTES: Final = 16
WINDOWS: Final = 13
"""How many slots a digest names by itself: one for every four bytes in a row."""

_FREE: Final = bytes(DIGEST_BYTES)
_OFFSET: Final = struct.Struct("<q")


class OffsetMap(Protocol):
    """The map of a cleaning, used batch by batch and, with the kernel, for many batches per
    call.
    """

    latest_offset: Offset
    """The map has the keys of the log up to this offset."""

    @property
    def in_kernel(self) -> bool:
        """True where the GIL is released meanwhile."""

    @property
    def count(self) -> int:
        """Keys in the map."""

    def put_records(
        self, data: bytes, count: int, base_offset: Offset, start_offset: Offset
    ) -> bool:
        """Take in the keys of a batch's records from ``start_offset`` on; False where they did not
        all fit. Raises CorruptLogError.
        """

    def filter_records(
        self, data: bytes, count: int, base_offset: Offset, *, retain_tombstones: bool
    ) -> RetainedRecords:
        """Return the records that have no later record of the same key. Tombstones go
        unless they are to be retained; records after ``latest_offset`` stay. Raises
        CorruptLogError.
        """

    def put_batches(
        self, data: memoryview, position: int, start_offset: Offset
    ) -> tuple[int, bool]:
        """Take in plain batches from ``position`` on, as :meth:`put_records` does; return how far
        it came, and False where the map was full. It may stop before any batch.
        """

    def filter_batches(
        self, data: memoryview, position: int, keep_last_offsets: Sequence[Offset]
    ) -> tuple[int, bytes]:
        """Filter plain batches from ``position`` on; return how far it came, and the batches that
        stay. Batches that end with one of ``keep_last_offsets`` stop it, as any other that is not
        plain. It may stop before any batch.
        """


class PythonOffsetMap:
    """The map where there is no kernel. ``size_bytes`` bounds its memory, ``load_factor`` says how
    many of its slots are used.
    """

    def __init__(self, size_bytes: int, load_factor: float, seed: bytes) -> None:
        self.in_kernel: Final = False
        self._slots = slot_count(size_bytes, load_factor)
        self._capacity = min(int(self._slots * load_factor), self._slots - 1)
        self._table = bytearray(self._slots * SLOT_BYTES)
        self._seed = seed
        self.count = 0
        self.latest_offset: Offset = NO_OFFSET

    def put(self, key: bytes, offset: Offset) -> bool:
        """Note that ``offset`` is the last one of ``key``; False where there is no room."""
        if self.count >= self._capacity:
            return False
        digest = blake2b(key, digest_size=DIGEST_BYTES, key=self._seed).digest()
        at = self._slot(digest)
        if self._table[at : at + DIGEST_BYTES] == _FREE:
            self._table[at : at + DIGEST_BYTES] = digest
            self.count += 1
        _OFFSET.pack_into(self._table, at + DIGEST_BYTES, wrap64(offset + 1))
        return True

    def get(self, key: bytes) -> Offset:
        """Return the last offset of ``key``, -1 if it is not in the map."""
        at = self._slot(blake2b(key, digest_size=DIGEST_BYTES, key=self._seed).digest())
        return wrap64(_OFFSET.unpack_from(self._table, at + DIGEST_BYTES)[0] - 1)

    def _slot(self, digest: bytes) -> int:
        """Return where the slot of a digest begins: its own, or the free one that it would get."""
        table, slots = self._table, self._slots
        number = 0
        for window in range(WINDOWS):
            number = int.from_bytes(digest[window : window + 4], "little") % slots
            at = number * SLOT_BYTES
            found = table[at : at + DIGEST_BYTES]
            if found in (digest, _FREE):
                return at
        while True:
            number = (number + 1) % slots
            at = number * SLOT_BYTES
            found = table[at : at + DIGEST_BYTES]
            if found in (digest, _FREE):
                return at

    def put_records(
        self, data: bytes, count: int, base_offset: Offset, start_offset: Offset
    ) -> bool:
        """See :class:`OffsetMap`."""
        for span in record_spans(data, count):
            offset = wrap64(base_offset + span.offset_delta)
            if span.key is not None and offset >= start_offset and not self.put(span.key, offset):
                return False
        return True

    def filter_records(
        self, data: bytes, count: int, base_offset: Offset, *, retain_tombstones: bool
    ) -> RetainedRecords:
        """See :class:`OffsetMap`."""
        parts: list[bytes] = []
        largest = -(2**63)
        has_tombstones = False
        latest_offset = self.latest_offset
        for span in record_spans(data, count):
            offset = wrap64(base_offset + span.offset_delta)
            if offset <= latest_offset and (
                span.key is None
                or offset < self.get(span.key)
                or not (span.has_value or retain_tombstones)
            ):
                continue
            parts.append(data[span.start : span.end])
            largest = max(largest, span.timestamp_delta)
            has_tombstones |= not span.has_value
        if not parts:
            return NOTHING_RETAINED
        return RetainedRecords(b"".join(parts), len(parts), largest, has_tombstones)

    def put_batches(
        self, data: memoryview, position: int, start_offset: Offset
    ) -> tuple[int, bool]:
        """Leave all to :meth:`put_records`."""
        return position, True

    def filter_batches(
        self, data: memoryview, position: int, keep_last_offsets: Sequence[Offset]
    ) -> tuple[int, bytes]:
        """Leave all to :meth:`filter_records`."""
        return position, b""


def slot_count(size_bytes: int, load_factor: float) -> int:
    """Return how many slots fit; ConfigError where not even two keys would."""
    slots = size_bytes // SLOT_BYTES
    if slots * load_factor <= 1:
        raise ConfigError(
            f"log.cleaner.dedupe.buffer.size leaves {size_bytes} bytes for a map of keys: too few"
        )
    return slots
