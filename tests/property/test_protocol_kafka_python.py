"""Our bytes read by kafka-python and its bytes read by us: every API and version that it has."""

from __future__ import annotations

import warnings
from importlib import import_module
from random import Random
from typing import Any
from uuid import UUID

import pytest
from tests.property.random_messages import every_version, random_struct

from millstream.protocol.message import Message, Request, Response
from millstream.protocol.schema import NO_UUID, Field, Struct

with warnings.catch_warnings():
    # It reads its tables with a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    MODULES = [
        import_module(f"kafka.protocol.{name}")
        for name in ("admin", "consumer", "metadata", "producer", "sasl")
    ]


def their_class(cls: type[Message], version: int) -> Any:
    """Return kafka-python's class of the same name, or None where it ends at an older version."""
    if not issubclass(cls, Request | Response):
        return None
    for module in MODULES:
        theirs = getattr(module, cls.__name__, None)
        if theirs is not None and version <= theirs.max_version:
            return theirs
    return None


CASES = [(cls, version) for cls, version in every_version() if their_class(cls, version)]
NEWEST = dict(CASES)


def values_of_kafka_python(field: Field, random: Random) -> Any:
    """Keep to what it can hold: operations are a set of bits there, and error answers are v0."""
    if field.kind == "int32" and field.name.endswith("authorized_operations"):
        return random.choice((0, 0b110111111000))
    if field.kind == "int16" and field.name == "error_code":
        return 0
    return NotImplemented


def same(ours: Any, theirs: Any, field: Field | None, version: int) -> bool:
    """Compare a value of ours with what kafka-python makes of it."""
    if isinstance(theirs, set):
        return True  # it gives the bits of a number; the bytes that it writes are compared
    if isinstance(ours, Struct):
        if theirs is None:
            return field is not None and field.tag is not None and ours == field.default_value()
        return all(
            same(getattr(ours, f.name), their_field(theirs, f.name), f, version)
            for f in ours.FIELDS
            if f.in_version(version)
        )
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(
            same(our, their, None, version) for our, their in zip(ours, theirs, strict=True)
        )
    if isinstance(theirs, UUID):
        return bool(ours == theirs.bytes)
    if theirs is None:
        return ours is None or ours == NO_UUID
    return bool(ours == theirs)


def their_field(theirs: Any, name: str) -> Any:
    if name.endswith("_authorized_operations") and not hasattr(theirs, name):
        name = "authorized_operations"
    return getattr(theirs, name)


def compare(cls: type[Message], version: int, seed: int) -> None:
    theirs = their_class(cls, version)
    message = random_struct(cls, version, Random(seed), values_of_kafka_python)
    read = theirs.decode(message.encode_body(version), version=version)
    assert same(message, read, None, version), f"v{version} {message}\n{read}"
    read._header = None  # decoding leaves it unset, encoding asks for it
    assert cls.decode_body(version, read.encode(version=version)) == message


def test_kafka_python_covers_most_classes() -> None:
    assert len(NEWEST) > 100


@pytest.mark.slow
def test_kafka_python_reads_and_writes_the_newest_versions_as_we_do() -> None:
    for cls, version in NEWEST.items():
        compare(cls, version, 1)


@pytest.mark.slow
def test_kafka_python_reads_and_writes_every_version_as_we_do() -> None:
    for cls, version in CASES:
        for seed in range(5):
            compare(cls, version, seed)
