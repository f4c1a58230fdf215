"""Settings: Java's names, types, and what is said about a wrong one."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, cast

import pytest

from millstream.client.core.consumer.settings import ConsumerSettings
from millstream.client.core.settings import AdminSettings, ProducerSettings, read_settings
from millstream.client.settings import Address
from millstream.model.errors import ConfigError
from millstream.records.compression import Codec

SERVERS = {"bootstrap.servers": "a:1,b:2"}


def test_dots_and_underscores_are_the_same() -> None:
    read = read_settings(
        ProducerSettings, SERVERS, {"linger_ms": 7, "compression_type": "zstd", "acks": "1"}
    )
    assert read.bootstrap_servers == (Address("a", 1), Address("b", 2))
    assert (read.linger_ms, read.compression_type, read.acks) == (7, Codec.ZSTD, 1)
    assert read_settings(ProducerSettings, SERVERS | {"linger.ms": "7"}).linger_ms == 7


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"linger.mss": 5}, r"there is no setting 'linger.mss'; the nearest is 'linger.ms'"),
        ({"batchsize": 5}, r"the nearest is 'batch.size'"),
        ({"qqqqqqqqqqqq": 5}, r"there is no setting 'qqqqqqqqqqqq'$"),
        ({"batch.size": "many"}, r"batch.size = 'many': it takes a whole number"),
        ({"linger.ms": "soon"}, r"linger.ms = 'soon': it takes a number of milliseconds"),
        ({"batch.size": 1.5}, r"batch.size = 1.5: it takes a whole number"),
        ({"batch.size": True}, r"batch.size = True: it takes a whole number"),
        ({"enable.idempotence": "maybe"}, r"enable.idempotence = 'maybe': it takes true or false"),
        ({"request.timeout.ms": 2**31}, r"request.timeout.ms = 2147483648: it takes 0 to 214748"),
        ({"acks": 2}, r"acks = 2: it takes 0, 1 or all"),
        ({"compression.type": "rar"}, r"compression.type = 'rar'"),
        ({"security.protocol": "TLS"}, r"PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
    ],
)
def test_a_wrong_setting_is_an_error_that_helps(given: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_settings(ProducerSettings, SERVERS | given)


def test_the_keyword_is_named_as_it_is_spelt() -> None:
    with pytest.raises(ConfigError, match="the nearest is 'linger_ms'"):
        read_settings(ProducerSettings, SERVERS, {"linger_mss": 1})


def test_missing_and_twice() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers is missing"):
        read_settings(AdminSettings, {})
    with pytest.raises(ConfigError, match="given twice"):
        read_settings(AdminSettings, SERVERS, {"bootstrap_servers": "c:3"})


def upper(data: bytes) -> bytes:
    return data.upper()


def with_topic(topic: str, data: bytes) -> bytes:
    return topic.encode() + data


def any_number(*given: object) -> object:
    return given


@pytest.mark.parametrize(
    ("convert", "given", "found"),
    [
        (upper, b"a", b"A"),
        (with_topic, b"a", b"ta"),
        (lambda data, encoding="utf-8": data.decode(encoding), b"a", "a"),
        (json.loads, b"[1]", [1]),
        (json.dumps, [1], "[1]"),
        (bytes.decode, b"a", "a"),
        (str, 5, "5"),
        (int, b"5", 5),
        (any_number, 5, ("t", 5)),
        (partial(with_topic, "u"), b"a", b"ua"),
    ],
)
def test_a_serializer_has_the_topic_or_not(convert: Any, given: Any, found: object) -> None:
    read = read_settings(ProducerSettings, {**SERVERS, "value.serializer": convert})
    assert cast("Any", read.value_serializer)("t", given) == found
    reading = read_settings(ConsumerSettings, {**SERVERS, "key.deserializer": convert})
    assert cast("Any", reading.key_deserializer)("t", given) == found
