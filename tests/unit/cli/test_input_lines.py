"""How a line of standard input becomes a record, and what is answered to one that is none."""

from __future__ import annotations

import json

import pytest

from millstream.cli.input_lines import LineError, LineRules, parse_line
from millstream.cli.record_text import as_json
from millstream.model.topic import TopicPartition
from millstream.records.record import Record

TOPIC_PARTITION = TopicPartition("t", 3)
PLAIN = LineRules(False, None, None, (), None, False)
JSON = PLAIN._replace(is_json=True)
KCAT = (
    b'{"topic":"t","partition":3,"offset":7,"tstype":"create","ts":1000,"broker":1,'
    b'"headers":["h","1","n",null],"key":"k","payload":"v"}'
)


@pytest.mark.parametrize(
    "record",
    [
        Record(7, 1000, b"k", b"value", (("h", b"1"), ("n", None))),
        Record(0, 5, None, None),
        Record(1, 5, b"\xff\x00", "ü\n".encode()),
        Record(2, 5, b"", b"", (("b", b"\xfe"),)),
    ],
)
def test_what_consume_prints_is_read_back(record: Record) -> None:
    line = as_json(TOPIC_PARTITION, record)
    assert line.count(b"\n") == 1
    assert json.loads(line)["offset"] == record.offset
    again = parse_line(line, JSON)
    assert (again.key, again.value, again.headers) == (record.key, record.value, record.headers)
    assert again.timestamp_ms == record.timestamp


def test_a_record_without_a_timestamp_is_given_one_later() -> None:
    assert parse_line(as_json(TOPIC_PARTITION, Record(0, -1, None, b"v")), JSON)[4] is None


def test_lines_of_text() -> None:
    keyed = PLAIN._replace(key_separator=b"::")
    assert parse_line(b"a::b::c", keyed)[:2] == (b"a", b"b::c")
    assert parse_line(b"no separator", keyed)[:2] == (None, b"no separator")
    assert parse_line(b"", PLAIN)[:2] == (None, b"")
    assert parse_line(b"k::", keyed._replace(empty_is_null=True))[:2] == (b"k", None)
    assert parse_line(b"v", PLAIN._replace(key=b"fixed"))[:2] == (b"fixed", b"v")


def test_a_tombstone_says_that_it_is_one() -> None:
    assert parse_line(b'{"key": "k", "value": null}', JSON)[:2] == (b"k", None)
    assert parse_line(b'{"key": "k", "payload": null}', JSON)[:2] == (b"k", None)


def test_json_values_that_are_no_text_are_kept_as_json() -> None:
    assert parse_line(b'{"value": {"a": 1}}', JSON).value == b'{"a": 1}'


def test_options_hold_where_an_object_says_nothing() -> None:
    rules = JSON._replace(key=b"fixed", headers=(("h", b"1"),))
    assert parse_line(b'{"value": "v"}', rules)[:3] == (b"fixed", b"v", (("h", b"1"),))
    said = parse_line(b'{"key": null, "value": "v", "headers": []}', rules)
    assert said[:3] == (None, b"v", ())


def test_what_kcat_prints_is_read() -> None:
    line = parse_line(KCAT, JSON)
    assert line == (b"k", b"v", (("h", b"1"), ("n", None)), None, 1000)
    without_time = b'{"topic":"t","partition":0,"offset":0,"broker":1,"key":null,"payload":""}'
    assert parse_line(without_time, JSON) == (None, b"", (), None, None)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"user": "ann", "amount": 3}', "'user' is not a field of a record"),
        (b'{"key": "k", "vlaue": "v"}', "'vlaue' is not a field of a record"),
        (b'{"key": "k"}', "it has no value"),
        (b"{}", "it has no value"),
        (b'{"value": "v", "payload": "p"}', "'payload' is not a field"),
        (b'{"payload": "p", "timestamp": 5}', "'timestamp' is not a field"),
        (b'{"value": "v", "value_base64": "dg=="}', "both value and value_base64"),
        (b'{"value": "v", "value": null}', "'value' appears in it twice"),
        (b"", "it is empty"),
        (b"{", "it is not JSON"),
        (b"[1, 2, 3]", "it is not a JSON object"),
        (b"7", "it is not a JSON object"),
        (b'[["value", "v"]]', "it is not a JSON object"),
        (b"[" * 100_000, "it is not JSON"),
        (b'{"value": NaN}', "NaN is not JSON"),
        (b'{"value": "\xff"}', "it is not UTF-8"),
        (b'{"value": "\\ud800"}', "value is not Unicode text"),
        (b'{"value_base64": "?"}', "value_base64 is not base64"),
        (b'{"value_base64": 7}', "value_base64 is not base64"),
        (b'{"value": "v", "timestamp": Infinity}', "Infinity is not JSON"),
        (b'{"value": "v", "timestamp": 1.5}', "timestamp is not a number of milliseconds"),
        (b'{"value": "v", "timestamp": true}', "timestamp is not a number of milliseconds"),
        (b'{"value": "v", "timestamp": -2}', "timestamp is not a number of milliseconds"),
        (b'{"payload": "v", "ts": 9223372036854775808}', "ts is not a number of milliseconds"),
        (b'{"value": "v", "headers": {"h": "1"}}', "headers is not a list"),
        (b'{"value": "v", "headers": ["h", "1"]}', "a header is not a JSON object"),
        (b'{"value": "v", "headers": [{"value": "x"}]}', "a header has no key"),
        (b'{"value": "v", "headers": [{"key": "x"}]}', "header 'x' has no value"),
        (b'{"value": "v", "headers": [{"key": "x", "val": "1"}]}', "'val' is not a field"),
        (
            b'{"payload": "v", "headers": ["h"]}',
            "headers is not a list of alternating names and values",
        ),
        (b'{"payload": "v", "headers": [1, "h"]}', "a header has no key"),
    ],
)
def test_a_line_that_is_no_record_says_why(line: bytes, reason: str) -> None:
    with pytest.raises(LineError) as caught:
        parse_line(line, JSON)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
