"""Iterates over the bytes of a ``.log`` in any format: batches of magic 2, messages of magic 0 and
1.

A topic whose ``message.format.version`` was raised holds both, the older ones first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from millstream.records.batch import HEADER_SIZE, Batch, header_at
from millstream.records.crc32c import Buffer
from millstream.records.legacy import MAGIC_POSITION, LegacyMessage, legacy_size_at

LogEntry: TypeAlias = Batch | LegacyMessage


def iter_log_entries(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, LogEntry]]:
    """Yield the whole entries from ``position`` on, each with its position; one that is cut off
    ends the walk, so what is left after the last one is a torn tail.

    CRCs are not checked. Raises CorruptLogError at bytes that can begin neither kind.
    """
    view = memoryview(buffer)
    end = len(view)
    while end - position > MAGIC_POSITION:
        size = legacy_size_at(view, position)
        if size is not None:
            if position + size > end:
                return
            yield position, LegacyMessage(view[position : position + size])
            position += size
            continue
        if end - position < HEADER_SIZE:
            return
        batch = header_at(view, position)
        if position + batch.size > end:
            return
        yield position, batch
        position += batch.size
