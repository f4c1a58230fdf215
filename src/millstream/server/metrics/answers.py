"""What answers say: which errors, and how many bytes of which topic."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from millstream.protocol.schema import Struct
from millstream.storage.file_slice import FileSlice

_ERROR_FIELDS: Final = frozenset({"error_code", "partition_error_code"})


def count_fetched(answer: Any, totals: dict[str, int]) -> bool:
    """Add the bytes of a FetchResponse to the totals of its topics; tell whether it has any
    error, or tells to wait.
    """
    has_error = bool(answer.error_code or answer.throttle_time_ms)
    for topic in answer.responses:
        size = 0
        for partition in topic.partitions:
            if partition.error_code:
                has_error = True
            records = partition.records
            if records is not None:
                size += records.size if records.__class__ is FileSlice else len(records)
        if size:
            totals[topic.topic] = totals.get(topic.topic, 0) + size
    return has_error


def errors_of(answer: Struct) -> Iterator[int]:
    """Yield the code of each error in an answer, wherever its message has one."""
    codes, nested = _plan(type(answer))
    for name in codes:
        code = getattr(answer, name)
        if code:
            yield code
    for name in nested:
        value = getattr(answer, name)
        if isinstance(value, list):
            for each in value:
                yield from errors_of(each)
        elif value is not None:
            yield from errors_of(value)


@cache
def _plan(struct: type[Struct]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the fields of a struct that hold an error, and those that hold structs with some."""
    codes, nested = [], []
    for field in struct.FIELDS:
        if field.name in _ERROR_FIELDS:
            codes.append(field.name)
        element = field.element
        if isinstance(element, type) and any(_plan(element)):
            nested.append(field.name)
    return tuple(codes), tuple(nested)
