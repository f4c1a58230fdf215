"""What the doctor says of settings, finding by finding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest
from tests.unit.inspection.sayings import the_one

from millstream.client.core.admin.configs import Setting, Source
from millstream.client.doctor import Severity
from millstream.inspection.broker_settings_health import judge_settings
from millstream.inspection.settings_health import SettingsSight, TopicSettings

TOPIC: Final = TopicSettings(
    partitions=3,
    replicas=3,
    values={
        "min.insync.replicas": "2",
        "unclean.leader.election.enable": "false",
        "flush.policy": "ack",
        "max.message.bytes": "1048588",
        "retention.ms": "604800000",
        "segment.ms": "604800000",
        "segment.bytes": str(1 << 30),
        "message.timestamp.after.max.ms": "3600000",
        "cleanup.policy": "delete",
    },
)
BROKER: Final = {
    "auto.create.topics.enable": "false",
    "replica.lag.time.max.ms": "30000",
    "replica.fetch.wait.max.ms": "500",
    "replica.fetch.max.bytes": "1048576",
    "socket.request.max.bytes": "104857600",
    "zookeeper.session.timeout.ms": "18000",
    "offsets.topic.replication.factor": "3",
    "transaction.max.timeout.ms": "900000",
    "listeners": "PLAINTEXT://10.0.0.1:9092",
    "authorizer.class.name": "standard",
    "allow.everyone.if.no.acl.found": "false",
    "log.dirs": "/var/lib/millstream",
}
_LATER: Final = frozenset({"listeners", "log.dirs", "zookeeper.session.timeout.ms"})


def settings(**changed: str) -> dict[str, Setting]:
    values = BROKER | {name.replace("_", "."): value for name, value in changed.items()}
    return {
        name: Setting(
            name=name,
            value=value,
            source=Source.STATIC_BROKER,
            is_read_only=name in _LATER,
            is_sensitive=False,
        )
        for name, value in values.items()
    }


WELL: Final = SettingsSight(topics={"t": TOPIC}, brokers={each: settings() for each in (1, 2, 3)})


def topic(replicas: int = 3, **changed: str) -> dict[str, Any]:
    names = {name.replace("_", "."): value for name, value in changed.items()}
    return {"topics": {"t": replace(TOPIC, replicas=replicas, values={**TOPIC.values, **names})}}


def brokers(**changed: str) -> dict[str, Any]:
    return {"brokers": {each: settings(**changed) for each in (1, 2, 3)}}


def test_settings_that_are_wise() -> None:
    assert judge_settings(WELL) == []


@pytest.mark.parametrize(
    ("changed", "severity", "says", "mends"),
    [
        (topic(1), Severity.RISK, "t: with one replica", "alter t --replication-factor 3"),
        (
            {**topic(1, min_insync_replicas="1"), "brokers": {1: settings()}},
            Severity.NOTE,
            "There is one broker",
            "serve --brokers 3",
        ),
        (
            topic(min_insync_replicas="4"),
            Severity.RISK,
            "t: it is above the number of replicas",
            "min.insync.replicas=2",
        ),
        (
            topic(min_insync_replicas="3"),
            Severity.RISK,
            "every restart of a broker stops writes",
            "min.insync.replicas=2",
        ),
        (
            topic(min_insync_replicas="1"),
            Severity.RISK,
            "satisfied by the leader alone",
            "min.insync.replicas=2",
        ),
        (
            topic(unclean_leader_election_enable="true"),
            Severity.RISK,
            "one that lacks acknowledged records becomes the leader",
            "unclean.leader.election.enable=false",
        ),
        (
            topic(1, flush_policy="os", min_insync_replicas="1"),
            Severity.RISK,
            "a power cut loses them",
            "flush.policy=ack",
        ),
        (
            topic(flush_policy="interval", flush_messages="10"),
            Severity.NOTE,
            "flushed every few records",
            "--delete-config flush.messages",
        ),
        (
            topic(max_message_bytes="200000000"),
            Severity.BROKEN,
            "above socket.request.max.bytes (104.9 MB)",
            "max.message.bytes=52428800",
        ),
        (
            topic(max_message_bytes="50000000"),
            Severity.RISK,
            "batches up to 50.0 MB are allowed",
            "max.message.bytes=16777216",
        ),
        (topic(segment_bytes="1000"), Severity.RISK, "very many files", "segment.bytes=67108864"),
        (
            topic(retention_ms="3600000"),
            Severity.NOTE,
            "much shorter than segment.ms",
            "segment.ms=900000",
        ),
        (
            topic(message_timestamp_after_max_ms=str((1 << 63) - 1)),
            Severity.NOTE,
            "time stamps of the far future",
            "message.timestamp.after.max.ms=3600000",
        ),
        (
            brokers(auto_create_topics_enable="true"),
            Severity.NOTE,
            "Broker 1, 2, 3: a misspelt name makes a topic",
            "config alter auto.create.topics.enable=false --broker-defaults",
        ),
        (
            {"brokers": {1: settings(replica_lag_time_max_ms="700"), 2: settings()}},
            Severity.RISK,
            "replicas fall out of sync on idle topics",
            "replica.lag.time.max.ms=30000",
        ),
        (
            brokers(replica_lag_time_max_ms="600000"),
            Severity.RISK,
            "wait up to 10 m for a follower that is gone",
            "replica.lag.time.max.ms=30000",
        ),
        (
            brokers(zookeeper_session_timeout_ms="2000"),
            Severity.RISK,
            "2000 ms is shorter than a pause of a busy machine",
            "serve --override zookeeper.session.timeout.ms=9000",
        ),
        (
            brokers(offsets_topic_replication_factor="1"),
            Severity.RISK,
            "it is 1 on a cluster of 3 brokers",
            "offsets.topic.replication.factor=3",
        ),
        (
            brokers(transaction_max_timeout_ms="86400000"),
            Severity.NOTE,
            "may hold readers of committed records for 1 d",
            "transaction.max.timeout.ms=900000",
        ),
        (
            brokers(listeners="PLAINTEXT://8.8.8.8:9092"),
            Severity.RISK,
            "PLAINTEXT at the public address 8.8.8.8:9092 is PLAINTEXT: clients are not",
            "listeners=SASL_SSL://:9092",
        ),
        (
            brokers(
                listeners="OUT://8.8.8.8:9092",
                listener_security_protocol_map="OUT:SASL_PLAINTEXT",
            ),
            Severity.RISK,
            "OUT at the public address 8.8.8.8:9092 is SASL_PLAINTEXT: passwords",
            "listeners=SASL_SSL://:9092",
        ),
        (
            brokers(authorizer_class_name=""),
            Severity.NOTE,
            "without rules every client",
            "authorizer.class.name=",
        ),
        (
            brokers(allow_everyone_if_no_acl_found="true"),
            Severity.RISK,
            "open to everybody",
            "allow.everyone.if.no.acl.found=false",
        ),
        (
            brokers(log_dirs="/tmp/kafka-logs"),
            Severity.RISK,
            "/tmp/kafka-logs is emptied",
            "serve --data-dir",
        ),
        (
            {"brokers": {1: settings(), 2: settings(auto_create_topics_enable="true")}},
            Severity.RISK,
            "different values (false on broker 1, true on broker 2)",
            "auto.create.topics.enable=false",
        ),
        (
            {"untold": {"settings of broker 2": "gone"}},
            Severity.NOTE,
            "settings of broker 2 could not be found out",
            "cluster api-versions",
        ),
    ],
)
def test_each_finding(changed: dict[str, Any], severity: Severity, says: str, mends: str) -> None:
    the_one(judge_settings(replace(WELL, **changed)), severity, says, mends)


@pytest.mark.parametrize(
    "listeners", ["SASL_SSL://8.8.8.8:9092", "PLAINTEXT://192.168.1.5:9092", "PLAINTEXT://h:9092"]
)
def test_listeners_that_are_not_open_to_the_world(listeners: str) -> None:
    assert judge_settings(replace(WELL, **brokers(listeners=listeners))) == []


@pytest.mark.parametrize("name", ["__transaction_state", "__share_group_state"])
def test_the_internal_topics_of_one_broker_have_what_they_can_have(name: str) -> None:
    made = topic(1, min_insync_replicas="2")["topics"]["t"]
    alone = replace(WELL, topics={name: made}, brokers={1: settings()})
    assert [each.severity for each in judge_settings(alone)] == [Severity.NOTE]
    says = f"{name}: it is above the number of replicas"
    three = replace(WELL, topics={name: made})
    the_one(judge_settings(three), Severity.RISK, says, f"alter {name} -c")
    own = replace(WELL, topics={"t": made}, brokers={1: settings()})
    the_one(judge_settings(own), Severity.RISK, "t: it is above", "alter t -c")
