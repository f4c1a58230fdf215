"""Reads what a client pushes: ``MetricsData`` of the OpenTelemetry protocol, in protobuf.

Only what Prometheus can show is taken: numbers of gauges and sums, and the count and sum of
histograms, each with the texts among its attributes. Everything else is passed over. Field numbers
are those of ``opentelemetry/proto/metrics/v1/metrics.proto``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from millstream.model.errors import MillstreamError

MAX_POINTS: Final = 5_000
"""Values of one push."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DOUBLE: Final = struct.Struct("<d")
_SIGNED: Final = struct.Struct("<q")
_UNSIGNED: Final = struct.Struct("<Q")


class OtlpError(MillstreamError):
    """The bytes are no metrics."""


@dataclass(frozen=True, slots=True)
class Point:
    """One value of one metric."""

    name: str
    value: float
    attributes: tuple[tuple[str, str], ...]


def read_metrics(data: bytes | memoryview) -> list[Point]:
    """Return the values of a push; OtlpError where it is damaged or has too many."""
    found: list[Point] = []
    try:
        for resource in _messages(memoryview(data), 1):
            for scope in _messages(resource, 2):
                for metric in _messages(scope, 2):
                    found.extend(_points(metric))
                    if len(found) > MAX_POINTS:
                        raise OtlpError(f"more than {MAX_POINTS} values")
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise OtlpError("the bytes are no metrics") from error
    return found


def _points(metric: memoryview) -> Iterator[Point]:
    name = ""
    for number, value in _fields(metric):
        if number == 1:
            name = _text(value)
    for number, value in _fields(metric):
        if number in (5, 7):  # gauge, sum
            for point in _messages(_as_bytes(value), 1):
                yield _number(name, point)
        elif number == 9:  # histogram
            for point in _messages(_as_bytes(value), 1):
                yield from _histogram(name, point)


def _number(name: str, point: memoryview) -> Point:
    value, attributes = 0.0, []
    for number, field in _fields(point):
        if number == 4:
            value = _DOUBLE.unpack(_as_bytes(field))[0]
        elif number == 6:
            value = float(_SIGNED.unpack(_as_bytes(field))[0])
        elif number == 7:
            attributes.append(_as_bytes(field))
    return Point(name, value, _attributes(attributes))


def _histogram(name: str, point: memoryview) -> Iterator[Point]:
    count, total, attributes = 0.0, 0.0, []
    for number, field in _fields(point):
        if number == 4:
            count = float(_UNSIGNED.unpack(_as_bytes(field))[0])
        elif number == 5:
            total = _DOUBLE.unpack(_as_bytes(field))[0]
        elif number == 9:
            attributes.append(_as_bytes(field))
    named = _attributes(attributes)
    yield Point(f"{name}.count", count, named)
    yield Point(f"{name}.sum", total, named)


def _attributes(pairs: list[memoryview]) -> tuple[tuple[str, str], ...]:
    found = []
    for pair in pairs:
        key = value = ""
        for number, field in _fields(pair):
            if number == 1:
                key = _text(field)
            elif number == 2:
                value = _any_value(_as_bytes(field))
        if key and value:
            found.append((key, value))
    return tuple(sorted(found))


def _any_value(value: memoryview) -> str:
    for number, field in _fields(value):
        if number == 1:
            return _text(field)
        if number in (2, 3):
            if not isinstance(field, int):
                raise OtlpError("bytes stand where a number belongs")
            return str(field - (1 << 64) if field >= 1 << 63 else field)
    return ""


def _messages(message: memoryview, wanted: int) -> Iterator[memoryview]:
    for number, value in _fields(message):
        if number == wanted:
            yield _as_bytes(value)


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """Yield the number and the value of each field: bytes, or the number of a varint."""
    position, end = 0, len(message)
    while position < end:
        tag, position = _varint(message, position)
        kind = tag & 7
        if kind == _VARINT:
            value, position = _varint(message, position)
            yield tag >> 3, value
            continue
        if kind == _BYTES:
            size, position = _varint(message, position)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise OtlpError(f"a field of kind {kind}")
        if size > end - position:
            raise OtlpError("a field ends beyond its message")
        yield tag >> 3, message[position : position + size]
        position += size


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise OtlpError("a number is too long")


def _as_bytes(value: memoryview | int) -> memoryview:
    if isinstance(value, int):
        raise OtlpError("a number stands where bytes belong")
    return value


def _text(value: memoryview | int) -> str:
    return str(_as_bytes(value), "utf-8")
