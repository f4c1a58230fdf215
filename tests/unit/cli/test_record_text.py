"""Records as text and back."""

from __future__ import annotations

import json

import pytest

from millstream.cli.failures import CommandFailedError
from millstream.cli.produce import LineRules, parse_line
from millstream.cli.record_text import as_json, compile_format
from millstream.model.topic import TopicPartition
from millstream.records.record import Record

PLACE = TopicPartition("t", 3)
RECORD = Record(7, 1000, b"k", b"value", (("h", b"1"), ("n", None)))
PLAIN = LineRules(False, None, None, (), None, False)
JSON = PLAIN._replace(is_json=True)


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
    assert compile_format(layout)(PLACE, RECORD) == expected


def test_nulls_in_a_format() -> None:
    assert compile_format("[%k][%s] %K %S")(PLACE, Record(0, 0, None, None)) == b"[][] -1 -1"


def test_an_unknown_letter() -> None:
    with pytest.raises(ValueError, match="%x"):
        compile_format("%x")


@pytest.mark.parametrize(
    "record",
    [
        RECORD,
        Record(0, 5, None, None),
        Record(1, 5, b"\xff\x00", "ü\n".encode()),
        Record(2, 5, b"", b"", (("b", b"\xfe"),)),
    ],
)
def test_json_and_back(record: Record) -> None:
    line = as_json(PLACE, record)
    assert line.count(b"\n") == 1
    assert json.loads(line)["offset"] == record.offset
    again = parse_line(line, JSON)
    assert (again.key, again.value, again.headers) == (record.key, record.value, record.headers)
    assert again.timestamp_ms == record.timestamp


def test_lines_of_text() -> None:
    keyed = PLAIN._replace(key_separator=b"::")
    assert parse_line(b"a::b::c", keyed)[:2] == (b"a", b"b::c")
    assert parse_line(b"no separator", keyed)[:2] == (None, b"no separator")
    assert parse_line(b"", PLAIN)[:2] == (None, b"")
    assert parse_line(b"k::", keyed._replace(empty_is_null=True))[:2] == (b"k", None)
    assert parse_line(b"v", PLAIN._replace(key=b"fixed"))[:2] == (b"fixed", b"v")


@pytest.mark.parametrize(
    "line", [b"{", b"[1, 2, 3]", b'{"value_base64": "?"}', b'{"headers": [{"value": "x"}]}', b"7"]
)
def test_lines_that_are_no_records(line: bytes) -> None:
    with pytest.raises(CommandFailedError, match="no record in JSON"):
        parse_line(line, JSON)


def test_json_values_that_are_no_text_are_kept_as_json() -> None:
    assert parse_line(b'{"value": {"a": 1}}', JSON).value == b'{"a": 1}'


def test_a_moment_that_never_comes_is_no_record() -> None:
    with pytest.raises(CommandFailedError, match="no record in JSON"):
        parse_line(b'{"value": "v", "timestamp": Infinity}', JSON)
