"""Records as text."""

from __future__ import annotations

import pytest

from millstream.cli.record_text import compile_format
from millstream.model.topic import TopicPartition
from millstream.records.record import Record

TOPIC_PARTITION = TopicPartition("t", 3)
RECORD = Record(7, 1000, b"k", b"value", (("h", b"1"), ("n", None)))


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (r"%s\n", b"value\n"),
        (r"%t-%p@%o %k=%s %T", b"t-3@7 k=value 1000"),
        (r"%K %S %h%%\t\\", b"1 5 h=1,n=NULL%\t\\"),
        (r"\x41\0", b"A\0"),
    ],
)
def test_formats(layout: str, expected: bytes) -> None:
    assert compile_format(layout)(TOPIC_PARTITION, RECORD) == expected


def test_nulls_in_a_format() -> None:
    assert (
        compile_format("[%k][%s] %K %S")(TOPIC_PARTITION, Record(0, 0, None, None)) == b"[][] -1 -1"
    )


def test_an_unknown_letter() -> None:
    with pytest.raises(ValueError, match="%x"):
        compile_format("%x")
