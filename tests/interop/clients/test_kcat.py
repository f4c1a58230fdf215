"""kcat does its ordinary work."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from tests.broker_process import BrokerProcess
from tests.interop.clients.carriers import run_kcat

from millstream.client import Admin
from millstream.client.core.admin.topics import NewTopic

pytestmark = pytest.mark.interop


@pytest.fixture
def topic(broker: BrokerProcess, new_topic: Callable[[], str]) -> str:
    name = new_topic()
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(name, 2)]).get_all()
    return name


def produce(broker: BrokerProcess, topic: str, text: bytes, *options: str) -> None:
    run_kcat("-P", "-b", broker.bootstrap, "-t", topic, "-p", "0", *options, stdin=text)


def consume(broker: BrokerProcess, topic: str, *options: str) -> bytes:
    return run_kcat("-C", "-q", "-b", broker.bootstrap, "-t", topic, "-e", *options)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codecs(broker: BrokerProcess, topic: str, codec: str) -> None:
    text = b"".join(b"%d some text\n" % number for number in range(500))
    produce(broker, topic, text, "-z", codec)
    assert consume(broker, topic, "-p", "0") == text


def test_keys_headers_and_nulls(broker: BrokerProcess, topic: str) -> None:
    produce(broker, topic, b"k:v\ntombstone:\n", "-K:", "-Z", "-H", "a=1", "-H", "b=")
    found = consume(broker, topic, "-p", "0", "-f", "%o %k %s %S %h\n")
    assert found == b"0 k v 1 a=1,b=\n1 tombstone  -1 a=1,b=\n"


def test_json(broker: BrokerProcess, topic: str) -> None:
    produce(broker, topic, b"k:v\n", "-K:")
    record = json.loads(consume(broker, topic, "-p", "0", "-J"))
    assert (record["topic"], record["offset"]) == (topic, 0)
    assert (record["key"], record["payload"]) == ("k", "v")


def test_offsets(broker: BrokerProcess, topic: str) -> None:
    produce(broker, topic, b"a\nb\nc\nd\n")
    assert consume(broker, topic, "-p", "0", "-o", "2") == b"c\nd\n"
    assert consume(broker, topic, "-p", "0", "-o", "-1") == b"d\n"
    assert consume(broker, topic, "-p", "0", "-o", "1", "-c", "2") == b"b\nc\n"
    assert consume(broker, topic, "-p", "0", "-o", "s@0") == b"a\nb\nc\nd\n"
    asked = run_kcat("-Q", "-b", broker.bootstrap, "-t", f"{topic}:0:0")
    assert asked.split() == [topic.encode(), b"[0]", b"offset", b"0"]


def test_an_idempotent_producer(broker: BrokerProcess, topic: str) -> None:
    text = b"".join(b"%d\n" % number for number in range(2_000))
    produce(broker, topic, text, "-X", "enable.idempotence=true")
    assert consume(broker, topic, "-p", "0") == text


def test_a_balanced_group(broker: BrokerProcess, topic: str) -> None:
    produce(broker, topic, b"a\nb\n")
    options = ("-b", broker.bootstrap, "-X", "auto.offset.reset=earliest", "-q")
    found = run_kcat(*options, "-c", "2", "-G", f"group-{topic}", topic)
    assert found == b"a\nb\n"
    produce(broker, topic, b"c\n")
    assert run_kcat(*options, "-c", "1", "-G", f"group-{topic}", topic) == b"c\n"


def test_metadata(broker: BrokerProcess, topic: str) -> None:
    metadata = json.loads(run_kcat("-L", "-J", "-b", broker.bootstrap))
    assert len(metadata["brokers"]) == 1
    (described,) = [each for each in metadata["topics"] if each["topic"] == topic]
    assert [partition["partition"] for partition in described["partitions"]] == [0, 1]
