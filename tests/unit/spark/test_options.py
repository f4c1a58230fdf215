"""Options of the stock connector, their meaning, and errors that name them."""

from __future__ import annotations

import json
import re

import pytest

from millstream.model.errors import ConfigError
from millstream.model.topic import TopicPartition
from millstream.spark.offsets import AtOffsets, AtTimestamp, AtTimestamps, Limit
from millstream.spark.options import (
    Assign,
    BoundOption,
    SourceOptions,
    Subscribe,
    SubscribePattern,
    check_no_end,
    parse_options,
)

BASE = {"kafka.bootstrap.servers": "h:1", "subscribe": "a"}


def parsed(**options: str) -> SourceOptions:
    return parse_options(BASE | options)


def test_defaults_are_those_of_the_stock_connector_in_a_batch_query() -> None:
    options = parse_options(BASE)
    assert options.subscription == Subscribe(("a",))
    assert options.starting == BoundOption("startingOffsets", Limit.EARLIEST)
    assert options.ending == BoundOption("endingOffsets", Limit.LATEST)
    assert options.fail_on_data_loss
    assert options.min_partitions is None
    assert options.columns == (
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
    )
    assert not options.kafka.read_committed


def test_the_three_subscriptions() -> None:
    assert parsed(subscribe=" a , b,a").subscription == Subscribe(("a", "b"))
    text = '{"a": [0, 1], "b": [2]}'
    assert parse_options({"kafka.bootstrap.servers": "h:1", "assign": text}).subscription == Assign(
        (TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 2))
    )
    pattern = {"kafka.bootstrap.servers": "h:1", "subscribePattern": "a.*"}
    assert parse_options(pattern).subscription == SubscribePattern("a.*")


def test_names_ignore_case_as_in_spark() -> None:
    lowered = {name.lower(): text for name, text in BASE.items()}
    assert parse_options({**lowered, "includeheaders": "TRUE"}).columns[-1] == "headers"


def test_offsets_and_timestamps() -> None:
    place = TopicPartition("a", 0)
    assert parsed(startingOffsets='{"a":{"0":23}}').starting.rule == AtOffsets({place: 23})
    assert parsed(startingOffsets='{"a":{"0":-2}}').starting.rule == AtOffsets({place: -2})
    assert parsed(endingOffsets='{"a":{"0":-1}}').ending.rule == AtOffsets({place: -1})
    assert parsed(endingOffsets="LATEST").ending.rule is Limit.LATEST
    assert parsed(startingTimestamp="5").starting.rule == AtTimestamp(5)
    assert parsed(endingOffsetsByTimestamp='{"a":{"0":7}}').ending.rule == AtTimestamps({place: 7})


def test_a_timestamp_for_all_counts_more_than_one_for_each_and_this_more_than_offsets() -> None:
    offsets = '{"a":{"0":1}}'
    both = parsed(startingOffsets=offsets, startingOffsetsByTimestamp=offsets)
    assert both.starting.option == "startingOffsetsByTimestamp"
    three = parsed(endingOffsets=offsets, endingOffsetsByTimestamp=offsets, endingTimestamp="9")
    assert three.ending == BoundOption("endingTimestamp", AtTimestamp(9))


def test_options_of_streaming_queries_and_sinks_are_accepted() -> None:
    parsed(
        maxOffsetsPerTrigger="1",
        minOffsetsPerTrigger="1",
        maxTriggerDelay="1m",
        groupIdPrefix="g",
        topic="t",
    )


def test_a_stream_has_no_end() -> None:
    check_no_end(parse_options(BASE, streaming=True))
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
        text = '{"a":{"0":1}}' if "Offsets" in name else "1"
        with pytest.raises(ConfigError, match=f"option {name} is of batch reads"):
            check_no_end(parse_options(BASE | {name: text}, streaming=True))


def test_settings_of_the_java_consumer() -> None:
    options = parse_options(
        BASE
        | {
            "kafka.isolation.level": "read_committed",
            "kafka.client.id": "me",
            "kafka.max.partition.fetch.bytes": "1000",
            "kafka.check.crcs": "false",
            "kafka.session.timeout.ms": "10000",
            "kafka.group.id": "g",
            "kafka.security.protocol": "PLAINTEXT",
        }
    )
    assert options.kafka.read_committed
    assert options.kafka.client_id == "me"
    assert options.kafka.fetch_max_bytes == 1000
    assert not options.kafka.check_crcs


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"assign": '{"a":[0]}'}, "assign and subscribe"),
        ({"startingOffsets": "latest"}, "startingOffsets"),
        ({"startingOffsets": '{"a":{"0":-1}}'}, "startingOffsets"),
        ({"startingOffsets": '{"a":{"0":-3}}'}, "startingOffsets"),
        ({"startingOffsets": "5"}, "startingOffsets"),
        ({"startingOffsets": "{"}, "startingOffsets"),
        ({"startingOffsets": '{"a":[0]}'}, "startingOffsets"),
        ({"startingOffsets": '{"a":{"x":1}}'}, "startingOffsets"),
        ({"startingOffsets": '{"a":{"0":true}}'}, "startingOffsets"),
        ({"endingOffsets": "earliest"}, "endingOffsets"),
        ({"endingOffsets": '{"a":{"0":-2}}'}, "endingOffsets"),
        ({"startingOffsetsByTimestamp": '{"a":{"0":-1}}'}, "startingOffsetsByTimestamp"),
        ({"startingTimestamp": "now"}, "startingTimestamp"),
        ({"startingOffsetsByTimestampStrategy": "x"}, "startingOffsetsByTimestampStrategy"),
        ({"minPartitions": "0"}, "minPartitions"),
        ({"maxRecordsPerPartition": "x"}, "maxRecordsPerPartition"),
        ({"includeHeaders": "yes"}, "includeHeaders"),
        ({"failOnDataLoss": ""}, "failOnDataLoss"),
        ({"columns": "value,nope"}, "columns"),
        ({"columns": "headers"}, "columns"),
        ({"subscribe": " , "}, "subscribe"),
        ({"kafka.bootstrap.servers": " "}, "kafka.bootstrap.servers"),
        ({"kafka.isolation.level": "x"}, "kafka.isolation.level"),
        ({"kafka.auto.offset.reset": "latest"}, "startingOffsets"),
        ({"kafka.key.deserializer": "x"}, "kafka.key.deserializer"),
        ({"kafka.security.protocol": "TLS"}, "kafka.security.protocol"),
        ({"kafka.sasl.mechanism": "PLAIN"}, "kafka.sasl.mechanism"),
        ({"kafka.request.timeout.ms": "-1"}, "kafka.request.timeout.ms"),
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"bootstrap.servers": "h:1"}, r"did you mean kafka\.bootstrap\.servers"),
    ],
)
def test_an_error_names_the_option(options: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        parse_options(BASE | options)


def test_nothing_to_read_from() -> None:
    with pytest.raises(ConfigError, match="subscribePattern is needed: none"):
        parse_options({"kafka.bootstrap.servers": "h:1"})
    with pytest.raises(ConfigError, match="subscribePattern"):
        parse_options({"kafka.bootstrap.servers": "h:1", "subscribePattern": "("})
    with pytest.raises(ConfigError, match="assign"):
        parse_options({"kafka.bootstrap.servers": "h:1", "assign": json.dumps({"a": ["0"]})})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("maxOffsetsPerTrigger", "9" * 30),
        ("maxTriggerDelay", "9" * 30),
        ("startingTimestamp", "9" * 30),
        ("startingOffsets", '{"t":{"0":' + "9" * 30 + "}}"),
        ("startingOffsetsByTimestamp", '{"t":{"0":' + "9" * 30 + "}}"),
        ("kafkaConsumer.pollTimeoutMs", "9" * 5000),
        ("kafka.fetch.max.bytes", "9" * 12),
        ("kafka.request.timeout.ms", "9" * 5000),
    ],
)
def test_numbers_that_no_request_can_bear(name: str, text: str) -> None:
    """They ended in an error of the encoder's, on an executor, which names nothing."""
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", name: text}
    with pytest.raises(ConfigError, match=re.escape(f"option {name}")):
        parse_options(given, streaming=True)
