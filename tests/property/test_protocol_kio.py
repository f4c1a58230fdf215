"""Our bytes read and written by kio, field by field: every API in every version."""

from __future__ import annotations

import dataclasses
import datetime
import io
from enum import Enum
from random import Random
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from tests.property.random_messages import kafkas_messages, random_struct

from millstream.protocol.message import Message, Request, Response
from millstream.protocol.schema import NO_UUID, Field, Struct

CASES = [
    (cls, v)
    for cls in kafkas_messages()
    if issubclass(cls, Request | Response)
    for v in cls.VERSIONS
]
NEWEST = dict(CASES)
_TIMES_OF_TOKENS = {
    f"{name}_timestamp{unit}" for name in ("issue", "expiry", "max") for unit in ("", "_ms")
}


def values_of_kio(field: Field, random: Random) -> Any:
    """Keep to what kio has values for: known error codes, and times as dates."""
    if field.kind == "int16" and field.name.endswith("error_code"):
        return random.choice((-1, 0, 3, 35, 100))
    if field.name == "transaction_start_time_ms" or field.name in _TIMES_OF_TOKENS:
        return random.choice((0, 1_700_000_000_123))
    if field.kind == "int64" and field.name.endswith(("_ms", "_timestamp")):
        return random.choice((-1, 0, 1_700_000_000_123))
    return NotImplemented


def same(ours: Any, theirs: Any, field: Field | None, version: int) -> bool:
    """Compare a value of ours with what kio makes of it."""
    if isinstance(ours, Struct):
        fields = [f for f in ours.FIELDS if f.in_version(version)]
        others = [getattr(theirs, f.name) for f in dataclasses.fields(theirs)]
        return len(fields) == len(others) and all(
            same(getattr(ours, f.name), other, f, version)
            for f, other in zip(fields, others, strict=True)
        )
    if isinstance(ours, list):
        element = field.element if field and isinstance(field.element, Field) else None
        return len(ours) == len(theirs) and all(
            same(our, their, element, version) for our, their in zip(ours, theirs, strict=True)
        )
    if theirs is None and field is not None:
        return ours is None or (field.kind == "uuid" and ours == NO_UUID) or ours == -1
    return bool(ours == plain(theirs))


def plain(value: Any) -> Any:
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, UUID):
        return value.bytes
    return value.value if isinstance(value, Enum) else value


def compare(cls: type[Message], version: int, seed: int) -> None:
    assert issubclass(cls, Request | Response)
    load: Any = load_request_schema if issubclass(cls, Request) else load_response_schema
    schema = load(cls.API_KEY, version)
    message = random_struct(cls, version, Random(seed), values_of_kio)
    body = message.encode_body(version)
    read, size = entity_reader(schema)(body, 0)
    assert size == len(body)
    assert same(message, read, None, version), f"v{version} {message}\n{read}"
    written = io.BytesIO()
    entity_writer(schema)(written, read)
    assert written.getvalue() == body


@pytest.mark.slow
def test_kio_reads_and_writes_the_newest_versions_as_we_do() -> None:
    for cls, version in NEWEST.items():
        compare(cls, version, 1)


@pytest.mark.slow
def test_kio_reads_and_writes_kafkas_messages_as_we_do() -> None:
    for cls, version in CASES:
        for seed in range(5):
            compare(cls, version, seed)
