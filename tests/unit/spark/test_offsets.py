"""Rules for where a read starts and ends become offsets."""

from __future__ import annotations

import pytest

from millstream.model.errors import ConfigError
from millstream.model.topic import TopicPartition
from millstream.spark.offsets import (
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Limit,
    Lookup,
    format_partition_numbers,
    lookups,
    parse_partition_numbers,
    resolve,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_json_and_back() -> None:
    numbers = {B0: -1, A1: 5, A0: 0}
    text = format_partition_numbers(numbers)
    assert text == '{"a":{"0":0,"1":5},"b":{"0":-1}}'
    assert parse_partition_numbers("-", text) == numbers


def test_only_what_is_not_known_is_asked() -> None:
    places = [A0, A1]
    assert lookups(Limit.EARLIEST, places, option="-") == [Lookup(A0, -2), Lookup(A1, -2)]
    assert lookups(AtTimestamp(9), places, option="-") == [Lookup(A0, 9), Lookup(A1, 9)]
    assert lookups(AtTimestamps({A1: 8, A0: 7}), places, option="-") == [
        Lookup(A0, 7),
        Lookup(A1, 8),
    ]
    assert lookups(AtOffsets({A0: 5, A1: -1}), places, option="-") == [Lookup(A1, -1)]


def test_offsets_must_name_the_partitions_that_are_read() -> None:
    with pytest.raises(ConfigError, match=r"startingOffsets must name every .* lacks a-1"):
        lookups(AtOffsets({A0: 5}), [A0, A1], option="startingOffsets")
    with pytest.raises(ConfigError, match="not read: b-0"):
        lookups(AtOffsets({A0: 5, B0: 5}), [A0], option="startingOffsets")


def test_answers_become_offsets() -> None:
    rule = AtOffsets({A0: 5, A1: -1})
    assert resolve(rule, [A0, A1], {A1: 9}, when_nothing_matches=lambda place: -9) == {A0: 5, A1: 9}
    found = {A0: None, A1: 3}
    assert resolve(AtTimestamp(1), [A0, A1], found, when_nothing_matches=lambda place: 70) == {
        A0: 70,
        A1: 3,
    }
