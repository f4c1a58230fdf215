"""A line that is too long is named, with its size and what lifts the limit."""

from __future__ import annotations

import pytest

from millstream.cli.line_limits import BadLineError, LineGate, LineLimits, OnError
from millstream.records.builder import BatchOptions, encode_batch
from millstream.records.compression import Codec
from millstream.records.record import Record


def limits(
    *, request: int = 1_048_576, topic: int | None = 1_048_588, codec: Codec = Codec.NONE
) -> LineLimits:
    return LineLimits("t", request_bytes=request, topic_bytes=topic, codec=codec)


def test_the_setting_that_is_named_lifts_the_limit() -> None:
    line = b"x" * 2_000_000
    told = limits().refusal(line)
    assert told is not None
    assert told.startswith("2,000,000 bytes are too long for a record: ")
    assert "(-X max.request.size=" in told
    assert "(millstream topic alter t --config max.message.bytes=" in told
    request = int(told.partition("max.request.size=")[2].partition(")")[0])
    topic = int(told.partition("max.message.bytes=")[2].partition(")")[0])
    assert limits(request=request, topic=topic).refusal(line) is None
    assert topic == len(encode_batch([Record(0, 0, None, line)], BatchOptions()))
    only_topic = limits(request=request).refusal(line)
    assert only_topic is not None
    assert "max.request.size" not in only_topic


@pytest.mark.parametrize("size", [0, 5, 1_048_400, 1_048_500, 1_048_576, 1_048_600, 3_000_000])
def test_a_broker_would_say_the_same(size: int) -> None:
    line = b"x" * size
    fits = len(encode_batch([Record(0, 0, None, line)])) <= 1_048_588
    assert (limits(request=10_000_000).refusal(line) is None) == fits


def test_what_counts_for_the_topic_is_compressed() -> None:
    line = b"x" * 2_000_000
    assert limits(request=10_000_000, codec=Codec.ZSTD).refusal(line) is None
    assert limits(codec=Codec.ZSTD).refusal(line) is not None


def test_headers_and_keys_count() -> None:
    headers = (("h", b"x" * 2_000_000),)
    assert limits().refusal(b"v", None, headers) is not None
    assert limits().refusal(b"v", b"x" * 2_000_000) is not None
    assert limits(request=10_000_000, topic=None).refusal(b"x" * 2_000_000) is None


def test_a_gate_stops_before_a_long_line() -> None:
    gate = LineGate(limits(topic=1000), OnError.STOP)
    passed, error = gate.passed([b"a", b"b", b"x" * 1000, b"c"], "a.log", 11)
    assert passed == [b"a", b"b"]
    assert isinstance(error, BadLineError)
    assert str(error).startswith("line 13 of a.log: 1,000 bytes are too long")
    assert gate.skipped == 0


def test_a_gate_that_skips_tells_of_each_line(capfd: pytest.CaptureFixture[str]) -> None:
    gate = LineGate(limits(topic=1000), OnError.SKIP)
    assert gate.passed([b"a", b"x" * 1000, b"c"], "a.log", 1) == ([b"a", b"c"], None)
    assert capfd.readouterr().err.startswith("millstream: line 2 of a.log is skipped: 1,000 bytes")
    gate.passed([b"x" * 1000] * 100, "a.log", 4)
    assert gate.skipped == 101
    assert capfd.readouterr().err.count("\n") == 20
