"""The options that protect connections of the source and the sink."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.types import StructType

from millstream.client.core.security import PLAINTEXT
from millstream.model.errors import ConfigError
from millstream.spark.options import parse_options
from millstream.spark.security_options import open_settings, security_settings
from millstream.spark.sink_options import parse_sink_options

SECURE = {
    "kafka.bootstrap.servers": "h:1",
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="ann" password="hush";'
    ),
}
VALUE = StructType().add("value", "string")


def test_the_source_takes_them_and_shows_no_secret() -> None:
    options = parse_options({**SECURE, "subscribe": "t"})
    sasl = open_settings(options.kafka.security).sasl
    assert sasl is not None
    assert sasl.client().evaluate(None) == b"\0ann\0hush"
    assert "hush" not in repr(options)
    assert pickle.loads(pickle.dumps(options)) == options


def test_the_sink_takes_them_and_shows_no_secret() -> None:
    options = parse_sink_options({**SECURE, "topic": "t"}, VALUE, streaming=False)
    assert options.producer["sasl.mechanism"] == "PLAIN"
    assert set(options.security) == {"security.protocol", "sasl.mechanism", "sasl.jaas.config"}
    assert "hush" not in repr(options)
    assert pickle.loads(pickle.dumps(options)) == options


def test_what_is_the_same_is_opened_once() -> None:
    assert open_settings({}) is PLAINTEXT
    plain = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "a",
        "sasl.password": "b",
    }
    assert open_settings(plain) is open_settings(dict(plain))


def test_secrets_may_stand_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD_OF_ANN", "hush")
    given = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ann",
        "sasl.password": "${env:PASSWORD_OF_ANN}",
    }
    assert security_settings(given)["sasl.password"] == "hush"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("ssl.trustore.location", "x", "this client has it not"),
        ("sasl.oauth.token", "x", "it takes no text"),
        ("ssl.context", "x", "it takes no text"),
        ("ssl.truststore.location", "/nowhere", "has no effect with"),
        ("sasl.password", "${env:NOBODY}", "there is no environment variable NOBODY"),
        ("security.protocol", "TLS", "it takes PLAINTEXT, SSL"),
        ("security.protocol", "SASL_SSL", "sasl.mechanism is missing"),
    ],
)
def test_a_wrong_option_is_named(name: str, text: str, words: str) -> None:
    options = {"kafka.bootstrap.servers": "h:1", f"kafka.{name}": text}
    with pytest.raises(ConfigError, match=r"^option kafka\.") as of_source:
        parse_options({**options, "subscribe": "t"})
    assert words in str(of_source.value)
    with pytest.raises(ConfigError, match=r"^option kafka\.") as of_sink:
        parse_sink_options({**options, "topic": "t"}, VALUE, streaming=False)
    assert words in str(of_sink.value)
