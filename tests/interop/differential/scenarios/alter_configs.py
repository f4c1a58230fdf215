"""AlterConfigs: replaces all settings of a resource."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Answer, Session

TOPIC, BROKER = 2, 4
WATCHED = [
    "retention.ms",
    "cleanup.policy",
    "segment.bytes",
    "max.message.bytes",
    "min.cleanable.dirty.ratio",
]

Pairs = list[tuple[str, str | None]]


def alter(s: Session, version: int, kind: int, name: str, pairs: Pairs, **more: Any) -> Answer:
    configs = [{"name": key, "value": value} for key, value in pairs]
    entry = {"resource_type": kind, "resource_name": name, "configs": configs}
    return s.call("AlterConfigs", version, resources=[entry], **more)


def look(s: Session, topic: str, expected: dict[str, str]) -> None:
    """Record the topic's own settings once they are as told, or as they are in the end."""

    def settled(answer: Answer) -> bool:
        own = {each["name"]: each["value"] for each in answer["results"][0]["configs"]}
        return all(own[name] == value for name, value in expected.items())

    asked = {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": WATCHED}
    s.until(settled, "DescribeConfigs", 1, resources=[asked])
    s.call("DescribeConfigs", 1, resources=[asked])


@scenario(versions="AlterConfigs")
def replaces_all(s: Session, version: int) -> None:
    topic = s.topic(configs={"segment.bytes": "2000000", "retention.ms": "7"})
    alter(s, version, TOPIC, topic, [("retention.ms", "1000")])
    look(s, topic, {"retention.ms": "1000", "segment.bytes": "1073741824"})


@scenario(versions="AlterConfigs")
def nothing_set_resets_all(s: Session, version: int) -> None:
    topic = s.topic(configs={"retention.ms": "7"})
    alter(s, version, TOPIC, topic, [])
    look(s, topic, {"retention.ms": "604800000"})


@scenario(versions="AlterConfigs")
def validate_only(s: Session, version: int) -> None:
    topic = s.topic()
    alter(s, version, TOPIC, topic, [("retention.ms", "1000")], validate_only=True)
    alter(s, version, TOPIC, topic, [("retention.ms", "soon")], validate_only=True)
    look(s, topic, {})


@scenario(versions="AlterConfigs")
def unknown_topic(s: Session, version: int) -> None:
    alter(s, version, TOPIC, s.name("absent"), [("retention.ms", "1000")])


VALUES: dict[str, Pairs] = {
    "unknown": [("no.such.setting", "1")],
    "empty_name": [("", "1")],
    "null_value": [("retention.ms", None)],
    "empty_value": [("retention.ms", "")],
    "no_number": [("retention.ms", "soon")],
    "spaces": [("retention.ms", " 1000 ")],
    "twice": [("retention.ms", "1"), ("retention.ms", "2")],
    "below_minimum": [("retention.ms", "-2")],
    "broker_setting": [("log.retention.ms", "1")],
    "policy": [("cleanup.policy", "shred")],
    "good_and_bad": [("retention.ms", "1"), ("segment.bytes", "x")],
    "several": [("retention.ms", "1"), ("cleanup.policy", "compact"), ("max.message.bytes", "99")],
}


@scenario(cases=VALUES, versions=[0, 2])
def value(s: Session, pairs: Pairs, version: int) -> None:
    topic = s.topic(configs={"retention.ms": "7"})
    alter(s, version, TOPIC, topic, pairs)


@scenario(cases={"empty": "", "slash": "a/b", "dot": "."})
def illegal_topic_name(s: Session, name: str) -> None:
    alter(s, 2, TOPIC, name, [("retention.ms", "1")])


@scenario(cases={"unknown": 1, "zero": 0, "logger": 8, "max": 127, "negative": -1}, versions=[0, 2])
def resource_type(s: Session, kind: int, version: int) -> None:
    alter(s, version, kind, "1", [("x", "1")], validate_only=True)


@scenario(versions=[0, 2])
def several_resources(s: Session, version: int) -> None:
    good, other = s.topic("good"), s.topic("other")
    table = [(good, "5"), (s.name("absent"), "5"), (other, "x")]
    resources = [
        {
            "resource_type": TOPIC,
            "resource_name": name,
            "configs": [{"name": "retention.ms", "value": wanted}],
        }
        for name, wanted in table
    ]
    s.call("AlterConfigs", version, resources=resources)
    look(s, good, {"retention.ms": "5"})
    look(s, other, {})


@scenario(versions=[0, 2])
def nothing(s: Session, version: int) -> None:
    s.call("AlterConfigs", version, resources=[])


BROKER_VALUES: dict[str, tuple[str, Pairs]] = {
    "dynamic": ("1", [("log.retention.ms", "1000")]),
    "dynamic_for_all": ("", [("log.retention.ms", "1000")]),
    "read_only": ("1", [("num.partitions", "3")]),
    "read_only_for_all": ("", [("auto.create.topics.enable", "false")]),
    "unknown": ("1", [("no.such.setting", "1")]),
    "bad_value": ("1", [("log.retention.ms", "soon")]),
    "bad_value_for_all": ("", [("log.retention.ms", "soon")]),
    "other_broker": ("2", [("log.retention.ms", "1000")]),
    "no_broker": ("one", [("log.retention.ms", "1000")]),
    "nothing": ("1", []),
}


@scenario(cases=BROKER_VALUES)
def broker_validate_only(s: Session, wanted: tuple[str, Pairs]) -> None:
    name, pairs = wanted
    alter(s, 2, BROKER, name, pairs, validate_only=True)
