"""Kafka's command-line tools by the names of their scripts, run against a broker of ours."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker_process import BrokerProcess
from tests.interop.kafka_cluster import JavaTool, KafkaUnavailableError, kafka_jars

MAIN_CLASSES: Final = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
}
TIMEOUT_S: Final = 90.0


@dataclass(frozen=True)
class KafkaTools:
    """Every call is one JVM that runs to its end."""

    java: JavaTool

    def attempt(
        self, script: str, *arguments: str, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a tool and return its exit code and output, whatever they are."""
        return self.java.run(MAIN_CLASSES[script], *arguments, stdin=stdin, timeout_s=TIMEOUT_S)

    def run(self, script: str, *arguments: str, stdin: str = "") -> str:
        """Run a tool that must succeed and complain about nothing; return its output."""
        done = self.attempt(script, *arguments, stdin=stdin)
        complaints = [
            line
            for line in done.stderr.splitlines()
            if line.strip() and not line.startswith(("SLF4J:", "WARNING:"))
        ]
        assert done.returncode == 0, f"{script} {arguments}\n{done.stdout}\n{done.stderr}"
        assert not complaints, f"{script} {arguments}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def refused(self, script: str, *arguments: str) -> str:
        """Run a tool that must report a refusal; return all it printed."""
        done = self.attempt(script, *arguments)
        output = done.stdout + done.stderr
        assert done.returncode != 0 or "Error" in output or "Exception" in output, output
        return output


def server(broker: BrokerProcess) -> tuple[str, str]:
    """Return the arguments that tell a tool where the broker is."""
    return ("--bootstrap-server", broker.bootstrap)


def create(broker: BrokerProcess, topic: str, partitions: int = 1) -> None:
    """Create a topic without a JVM."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


def produce(broker: BrokerProcess, topic: str, *lines: str) -> None:
    """Produce text without a JVM."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for line in lines:
        producer.produce(topic, line)
    assert producer.flush(30) == 0


@pytest.fixture(scope="session")
def tools() -> KafkaTools:
    """Kafka's tools; skips where there is no Kafka."""
    try:
        return KafkaTools(JavaTool(kafka_jars()))
    except KafkaUnavailableError as error:
        pytest.skip(str(error))
