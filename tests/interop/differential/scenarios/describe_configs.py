"""DescribeConfigs: settings of topics and brokers with their sources and synonyms."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Answer, Session

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32

PLACES = frozenset(
    {
        "advertised.listeners",
        "controller.quorum.voters",
        "listeners",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
    }
)
"""Settings whose value is an address or a directory of this very broker."""


def resource(kind: int, name: str, keys: list[str] | None = None) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, "configuration_keys": keys}


def without_places(answer: Answer) -> Answer:
    """The answer without addresses and directories."""
    results = [
        each
        | {"configs": [setting for setting in each["configs"] if setting["name"] not in PLACES]}
        for each in answer["results"]
    ]
    return answer | {"results": results}


def ask(s: Session, version: int, *resources: dict[str, Any], **more: Any) -> None:
    s.call_for(without_places, "DescribeConfigs", version, resources=list(resources), **more)


SOME = ["retention.ms", "cleanup.policy", "segment.bytes", "compression.type"]


@scenario(versions="DescribeConfigs")
def all_of_a_topic(s: Session, version: int) -> None:
    ask(s, version, resource(TOPIC, s.topic()))


@scenario(versions="DescribeConfigs")
def all_of_a_topic_with_synonyms(s: Session, version: int) -> None:
    ask(s, version, resource(TOPIC, s.topic()), include_synonyms=True)


@scenario(versions=[3, 4])
def documentation(s: Session, version: int) -> None:
    ask(s, version, resource(TOPIC, s.topic(), SOME), include_documentation=True)


@scenario(versions="DescribeConfigs")
def settings_of_the_topic_itself(s: Session, version: int) -> None:
    configs = {"retention.ms": "5", "cleanup.policy": "compact,delete", "segment.bytes": "2000000"}
    topic = s.topic(configs=configs)
    ask(s, version, resource(TOPIC, topic, SOME), include_synonyms=True)


@scenario(versions=[1, 4])
def chosen_keys(s: Session, version: int) -> None:
    topic = s.topic()
    ask(s, version, resource(TOPIC, topic, ["retention.ms"]))
    ask(s, version, resource(TOPIC, topic, ["retention.ms", "no.such", "retention.ms", ""]))
    ask(s, version, resource(TOPIC, topic, []))


@scenario(versions="DescribeConfigs")
def unknown_topic(s: Session, version: int) -> None:
    ask(s, version, resource(TOPIC, s.name("absent"), SOME))


@scenario(cases={"empty": "", "slash": "a/b", "dot": ".", "too_long": "x" * 250}, versions=[1, 4])
def illegal_topic_name(s: Session, name: str, version: int) -> None:
    ask(s, version, resource(TOPIC, name, SOME))


@scenario(versions=[1, 4])
def several_resources(s: Session, version: int) -> None:
    keys = ["retention.ms", "log.retention.ms"]
    names = [s.topic("one"), s.name("absent"), s.topic("two")]
    resources = [resource(TOPIC, each, keys) for each in names]
    ask(s, version, *resources, resource(BROKER, "1", keys))


@scenario(versions=[1, 4])
def same_resource_twice(s: Session, version: int) -> None:
    topic = s.topic()
    one = resource(TOPIC, topic, ["retention.ms"])
    ask(s, version, one, resource(TOPIC, topic, ["segment.bytes"]))


@scenario(versions=[1, 4])
def nothing(s: Session, version: int) -> None:
    ask(s, version)


BROKER_KEYS = [
    "log.retention.ms",
    "log.retention.hours",
    "log.segment.bytes",
    "num.partitions",
    "message.max.bytes",
    "auto.create.topics.enable",
    "group.initial.rebalance.delay.ms",
    "offsets.topic.num.partitions",
    "log.cleanup.policy",
    "compression.type",
    "min.insync.replicas",
    "socket.request.max.bytes",
    "ssl.keystore.password",
    "log.roll.ms",
    "log.flush.interval.messages",
    "background.threads",
    "no.such.setting",
]


@scenario(versions="DescribeConfigs")
def some_of_the_broker(s: Session, version: int) -> None:
    ask(s, version, resource(BROKER, "1", BROKER_KEYS), include_synonyms=True)


@scenario(versions=[1, 4])
def broker_defaults(s: Session, version: int) -> None:
    """No name means the defaults of the cluster: what was set there dynamically."""
    ask(s, version, resource(BROKER, "", BROKER_KEYS), include_synonyms=True)
    ask(s, version, resource(BROKER, ""))


@scenario(
    cases={"other": "2", "negative": "-1", "text": "one", "spaces": " 1 ", "zeros": "01"},
    versions=[1, 4],
)
def wrong_broker(s: Session, name: str, version: int) -> None:
    ask(s, version, resource(BROKER, name, ["num.partitions"]))


@scenario
def all_of_the_broker(s: Session) -> None:
    ask(s, 4, resource(BROKER, "1"), include_synonyms=True)


@scenario(cases={"unknown": 1, "zero": 0, "negative": -1, "three": 3, "max": 127}, versions=[1, 4])
def resource_type(s: Session, kind: int, version: int) -> None:
    ask(s, version, resource(kind, "x"))


@scenario
def unknown_type_among_known_ones(s: Session) -> None:
    ask(s, 4, resource(99, "x"), resource(TOPIC, s.topic(), ["retention.ms"]))


@scenario(cases=["__consumer_offsets"])
def internal_topic(s: Session, name: str) -> None:
    ask(s, 4, resource(TOPIC, name, SOME), include_synonyms=True)
