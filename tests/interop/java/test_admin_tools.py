"""kafka-topics, kafka-configs and the tools that look at a broker do their ordinary work."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from tests.broker_process import BrokerProcess
from tests.interop.java.conftest import KafkaTools, create, produce, server

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

NewTopic = Callable[[], str]


def test_kafka_topics(tools: KafkaTools, broker: BrokerProcess, new_topic: NewTopic) -> None:
    topic = new_topic()
    command = ("kafka-topics", *server(broker))
    settings = ("--config", "retention.ms=100000", "--config", "cleanup.policy=compact")
    made = tools.run(*command, "--create", "--topic", topic, "--partitions", "3", *settings)
    assert f"Created topic {topic}." in made

    assert "already exists" in tools.refused(*command, "--create", "--topic", topic)
    tools.run(*command, "--create", "--topic", topic, "--if-not-exists")
    assert "is invalid" in tools.refused(*command, "--create", "--topic", "a/b")

    assert topic in tools.run(*command, "--list").split()
    assert "__consumer_offsets" not in tools.run(*command, "--list", "--exclude-internal")

    described = tools.run(*command, "--describe", "--topic", topic)
    assert re.search(r"PartitionCount: 3\s+ReplicationFactor: 1\s", described)
    assert "retention.ms=100000" in described
    assert "cleanup.policy=compact" in described
    assert len(re.findall(r"Leader: 1\s+Replicas: 1\s+Isr: 1\s", described)) == 3
    overridden = tools.run(*command, "--describe", "--topics-with-overrides")
    assert f"Topic: {topic}\t" in overridden
    for filter_option in ("--under-replicated-partitions", "--unavailable-partitions"):
        assert topic not in tools.run(*command, "--describe", filter_option)

    tools.run(*command, "--alter", "--topic", topic, "--partitions", "5")
    assert "PartitionCount: 5" in tools.run(*command, "--describe", "--topic", topic)
    fewer = tools.refused(*command, "--alter", "--topic", topic, "--partitions", "2")
    assert "5 partition" in fewer

    tools.run(*command, "--delete", "--topic", topic)
    assert topic not in tools.run(*command, "--list").split()
    assert "does not exist" in tools.refused(*command, "--describe", "--topic", topic)


def test_kafka_configs_of_a_topic(
    tools: KafkaTools, broker: BrokerProcess, new_topic: NewTopic
) -> None:
    topic = new_topic()
    create(broker, topic)
    command = ("kafka-configs", *server(broker), "--entity-type", "topics", "--entity-name", topic)
    tools.run(*command, "--alter", "--add-config", "retention.ms=5000,segment.bytes=2000000")
    described = tools.run(*command, "--describe")
    assert "retention.ms=5000 sensitive=false" in described
    assert "DYNAMIC_TOPIC_CONFIG:segment.bytes=2000000" in described
    assert "DEFAULT_CONFIG:log.segment.bytes=1073741824" in described

    tools.run(*command, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms" not in tools.run(*command, "--describe")
    everything = tools.run(*command, "--describe", "--all")
    assert "segment.ms=604800000 sensitive=false" in everything
    assert "retention.ms=-1 sensitive=false" in everything  # of the broker
    assert "cleanup.policy=delete sensitive=false" in everything

    tools.run(*command, "--alter", "--add-config", "cleanup.policy=[compact,delete]")
    assert "cleanup.policy=compact,delete" in tools.run(*command, "--describe")
    wrong = tools.refused(*command, "--alter", "--add-config", "retention.ms=soon")
    assert "InvalidConfigurationException" in wrong
    unknown = tools.refused(*command, "--alter", "--add-config", "no.such.setting=1")
    assert "InvalidConfigurationException" in unknown


def test_kafka_configs_of_the_broker(tools: KafkaTools, broker: BrokerProcess) -> None:
    one = ("kafka-configs", *server(broker), "--entity-type", "brokers", "--entity-name", "1")
    all_brokers = (*one[:-2], "--entity-default")
    tools.run(*one, "--alter", "--add-config", "log.cleaner.backoff.ms=16000")
    tools.run(*all_brokers, "--alter", "--add-config", "log.cleaner.backoff.ms=17000")
    described = tools.run(*one, "--describe")
    assert "log.cleaner.backoff.ms=16000 sensitive=false" in described
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.backoff.ms=17000" in described
    assert "log.cleaner.backoff.ms=17000" in tools.run(*all_brokers, "--describe")
    everything = tools.run(*one, "--describe", "--all")
    assert "num.partitions=1 sensitive=false" in everything
    assert "log.dirs=" in everything

    refused = tools.refused(*one, "--alter", "--add-config", "log.dirs=/elsewhere")
    assert "InvalidRequestException" in refused or "InvalidConfigurationException" in refused
    for command in (one, all_brokers):
        tools.run(*command, "--alter", "--delete-config", "log.cleaner.backoff.ms")
    assert "log.cleaner.backoff.ms" not in tools.run(*one, "--describe")


def test_kafka_get_offsets(tools: KafkaTools, broker: BrokerProcess, new_topic: NewTopic) -> None:
    topic = new_topic()
    create(broker, topic)
    produce(broker, topic, "a", "b", "c")
    command = ("kafka-get-offsets", *server(broker), "--topic", topic)
    expected = {"-1": 3, "latest": 3, "-2": 0, "earliest": 0, "max-timestamp": None, "0": 0}
    for time, offset in expected.items():
        printed = tools.run(*command, "--time", time).strip()
        name, partition, found = printed.rsplit(":", 2)
        assert (name, partition) == (topic, "0")
        assert offset is None or int(found) == offset
    assert tools.run(*command, "--time", "9999999999999").strip() == ""


def test_kafka_delete_records(
    tools: KafkaTools, broker: BrokerProcess, new_topic: NewTopic
) -> None:
    topic = new_topic()
    create(broker, topic)
    produce(broker, topic, "a", "b", "c")
    asked = {"partitions": [{"topic": topic, "partition": 0, "offset": 2}], "version": 1}
    plan = broker.directory / "delete-records.json"
    plan.write_text(json.dumps(asked))
    printed = tools.run("kafka-delete-records", *server(broker), "--offset-json-file", str(plan))
    assert f"partition: {topic}-0\tlow_watermark: 2" in printed


def test_kafka_log_dirs(tools: KafkaTools, broker: BrokerProcess, new_topic: NewTopic) -> None:
    topic = new_topic()
    create(broker, topic, 2)
    produce(broker, topic, "a", "b")
    printed = tools.run("kafka-log-dirs", *server(broker), "--describe", "--topic-list", topic)
    answer = json.loads(printed[printed.index("{") :])
    [node] = answer["brokers"]
    [directory] = node["logDirs"]
    assert node["broker"] == 1
    assert directory["error"] is None
    assert directory["logDir"] == str(broker.data_directory)
    sizes = {each["partition"]: each["size"] for each in directory["partitions"]}
    assert set(sizes) == {f"{topic}-0", f"{topic}-1"}
    assert sum(sizes.values()) > 0


def test_kafka_broker_api_versions(tools: KafkaTools, broker: BrokerProcess) -> None:
    printed = tools.run("kafka-broker-api-versions", *server(broker))
    assert f"{broker.bootstrap} (id: 1 rack: null" in printed
    for api in ("Produce(0): 0 to 13", "Fetch(1): 4 to 18", "Metadata(3): 0 to 13"):
        assert api in printed
    assert "[unusable" not in printed


def test_kafka_cluster(tools: KafkaTools, broker: BrokerProcess) -> None:
    assert re.search(r"Cluster ID: \S+", tools.run("kafka-cluster", "cluster-id", *server(broker)))
    endpoints = tools.run("kafka-cluster", "list-endpoints", *server(broker))
    assert str(broker.port) in endpoints


def test_kafka_transactions_describes_producers(
    tools: KafkaTools, broker: BrokerProcess, new_topic: NewTopic
) -> None:
    topic = new_topic()
    create(broker, topic)
    produce(broker, topic, "a")
    where = ("describe-producers", "--topic", topic, "--partition", "0")
    printed = tools.run("kafka-transactions", *server(broker), *where)
    header, row = printed.strip().splitlines()
    assert header.split()[:3] == ["ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch"]
    assert row.split()[1] == "0"
