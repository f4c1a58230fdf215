"""Options of the sink; no broker, no JVM."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from millstream.model.errors import ConfigError
from millstream.spark.sink_options import SinkOptions, parse_sink_options

SCHEMA = StructType([StructField("value", StringType())])


def parse(more: dict[str, str], *, streaming: bool = True) -> SinkOptions:
    given = {"kafka.bootstrap.servers": "h:1", "topic": "t", "checkpointLocation": "/c", **more}
    return parse_sink_options(given, SCHEMA, streaming=streaming)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("kafka.linger.ms", "soon"),
        ("kafka.acks", "2"),
        ("kafka.max.request.size", "9" * 30),
        ("kafka.max.in.flight.requests.per.connection", "9"),
        ("kafka.retries", "0"),
        ("kafka.security.protocol", "TLS"),
        ("kafka.sasl.jaas.config", "x"),
        ("kafka.ssl.truststore.location", "/x"),
        ("kafka.transactional.id", "x"),
        ("kafka.interceptor.classes", "x"),
    ],
)
def test_what_a_producer_would_not_take_is_named_on_the_driver(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=r"option kafka\..*" + name.removeprefix("kafka.")):
        parse({name: text})


def test_settings_that_only_the_java_client_has_are_passed_over() -> None:
    options = parse({"kafka.metric.reporters": "x", "kafka.linger.ms": "5"})
    assert options.producer == {"bootstrap.servers": "h:1", "linger.ms": "5"}


def test_a_batch_write_may_give_up_idempotence() -> None:
    assert parse({"kafka.retries": "0", "kafka.acks": "1"}, streaming=False).producer


@pytest.mark.parametrize("text", ["c d", "file:///c d"])
def test_a_checkpoint_is_the_same_place_for_every_executor(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = parse({"checkpointLocation": text}).state_directory
    assert found == (tmp_path if text == "c d" else Path("/")) / "c d" / "millstream-sink"
