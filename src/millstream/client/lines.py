"""Lines to record batches without a Python object per record beyond its bytes.

A record that is a value and nothing else is::

    length | 0 | 0 | offset delta | -1 | value length, value | 0 headers

so everything in front of the value depends on its length and its place alone. Both parts are
looked up in tables that fill as lengths turn up, and one ``join`` makes the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from millstream.records.builder import BatchOptions, seal
from millstream.records.compression import compress
from millstream.records.varint import encode_varint

_NULL_KEY: Final = encode_varint(-1)
_NO_HEADERS: Final = encode_varint(0)
_START: Final = b"\x00\x00"
"""Attributes and a timestamp delta of 0."""


class LineEncoder:
    """Turns lists of lines into batches; keeps its tables from one batch to the next."""

    def __init__(self) -> None:
        self._deltas: list[bytes] = []
        self._starts: dict[int, dict[int, bytes]] = {}
        self._middles: dict[int, bytes] = {}

    def encode(self, lines: Sequence[bytes], timestamp_ms: int, options: BatchOptions) -> bytes:
        """Return one batch with a record for each line; all have the same timestamp."""
        assert lines, "a batch holds at least one record"
        payload = self._payload(lines)
        return seal(
            compress(options.codec, payload, options.level),
            options,
            last_offset_delta=len(lines) - 1,
            base_timestamp=timestamp_ms,
            max_timestamp=timestamp_ms,
            count=len(lines),
        )

    def _payload(self, lines: Sequence[bytes]) -> bytes:
        self._extend_deltas(len(lines))
        pieces: list[bytes] = []
        first = 0
        while first < len(lines):
            # All deltas of a run take the same number of bytes, so a length decides the rest.
            delta_size = len(self._deltas[first])
            last = min(len(lines), 1 << (7 * delta_size - 1))
            pieces += self._run(lines[first:last], self._deltas[first:last], delta_size)
            first = last
        pieces.append(_NO_HEADERS)
        # The first piece begins with the end of a record before it, which there is not.
        return b"".join(pieces)[len(_NO_HEADERS) :]

    def _run(self, lines: Sequence[bytes], deltas: Sequence[bytes], delta_size: int) -> list[bytes]:
        starts = self._starts.setdefault(delta_size, {})
        middles = self._middles
        lengths = list(map(len, lines))
        for length in set(lengths).difference(starts):
            value_length = encode_varint(length)
            middles[length] = _NULL_KEY + value_length
            body = len(_START) + delta_size + len(middles[length]) + length + len(_NO_HEADERS)
            starts[length] = _NO_HEADERS + encode_varint(body) + _START
        return [
            piece
            for length, delta, line in zip(lengths, deltas, lines, strict=True)
            for piece in (starts[length], delta, middles[length], line)
        ]

    def _extend_deltas(self, count: int) -> None:
        self._deltas += [encode_varint(number) for number in range(len(self._deltas), count)]
