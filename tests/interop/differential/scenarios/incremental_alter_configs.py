"""IncrementalAlterConfigs: set, delete, append, subtract."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.scenario import scenario
from tests.interop.differential.scenarios.alter_configs import look
from tests.interop.differential.session import Answer, Session

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)

Changes = list[tuple[str, int, str | None]]


def alter(s: Session, version: int, kind: int, name: str, changes: Changes, **more: Any) -> Answer:
    configs = [
        {"name": key, "config_operation": operation, "value": value}
        for key, operation, value in changes
    ]
    entry = {"resource_type": kind, "resource_name": name, "configs": configs}
    return s.call("IncrementalAlterConfigs", version, resources=[entry], **more)


@scenario(versions="IncrementalAlterConfigs")
def set_keeps_the_others(s: Session, version: int) -> None:
    topic = s.topic(configs={"segment.bytes": "2000000"})
    alter(s, version, TOPIC, topic, [("retention.ms", SET, "1000")])
    look(s, topic, {"retention.ms": "1000"})


@scenario(versions="IncrementalAlterConfigs")
def delete(s: Session, version: int) -> None:
    topic = s.topic(configs={"retention.ms": "7", "segment.bytes": "2000000"})
    alter(s, version, TOPIC, topic, [("retention.ms", DELETE, None)])
    look(s, topic, {"retention.ms": "604800000"})


@scenario(versions="IncrementalAlterConfigs")
def append_and_subtract(s: Session, version: int) -> None:
    topic = s.topic()
    alter(s, version, TOPIC, topic, [("cleanup.policy", APPEND, "compact")])
    look(s, topic, {"cleanup.policy": "delete,compact"})
    alter(s, version, TOPIC, topic, [("cleanup.policy", SUBTRACT, "delete")])
    look(s, topic, {"cleanup.policy": "compact"})
    alter(s, version, TOPIC, topic, [("cleanup.policy", APPEND, "compact")])
    look(s, topic, {})


@scenario(versions="IncrementalAlterConfigs")
def validate_only(s: Session, version: int) -> None:
    topic = s.topic()
    alter(s, version, TOPIC, topic, [("retention.ms", SET, "1000")], validate_only=True)
    alter(s, version, TOPIC, topic, [("retention.ms", SET, "x")], validate_only=True)
    look(s, topic, {})


@scenario(versions="IncrementalAlterConfigs")
def unknown_topic(s: Session, version: int) -> None:
    alter(s, version, TOPIC, s.name("absent"), [("retention.ms", SET, "1")])


CHANGES: dict[str, Changes] = {
    "set_unknown": [("no.such.setting", SET, "1")],
    "delete_unknown": [("no.such.setting", DELETE, None)],
    "append_unknown": [("no.such.setting", APPEND, "1")],
    "subtract_unknown": [("no.such.setting", SUBTRACT, "1")],
    "set_null": [("retention.ms", SET, None)],
    "set_empty": [("retention.ms", SET, "")],
    "append_null": [("cleanup.policy", APPEND, None)],
    "subtract_null": [("cleanup.policy", SUBTRACT, None)],
    "delete_with_a_value": [("retention.ms", DELETE, "5")],
    "delete_what_was_never_set": [("segment.ms", DELETE, None)],
    "append_to_no_list": [("retention.ms", APPEND, "1")],
    "subtract_from_no_list": [("retention.ms", SUBTRACT, "7")],
    "append_what_is_there": [("cleanup.policy", APPEND, "delete")],
    "append_two": [("cleanup.policy", APPEND, "delete,compact")],
    "append_unknown_value": [("cleanup.policy", APPEND, "shred")],
    "subtract_what_is_not_there": [("cleanup.policy", SUBTRACT, "compact")],
    "subtract_all": [("cleanup.policy", SUBTRACT, "delete")],
    "append_to_an_empty_list": [("leader.replication.throttled.replicas", APPEND, "0:1")],
    "subtract_from_an_empty_list": [("leader.replication.throttled.replicas", SUBTRACT, "0:1")],
    "operation_4": [("retention.ms", 4, "1")],
    "operation_negative": [("retention.ms", -1, "1")],
    "no_number": [("retention.ms", SET, "soon")],
    "spaces": [("retention.ms", SET, " 5 ")],
    "twice": [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
    "set_and_delete": [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)],
    "good_and_bad": [("retention.ms", SET, "1"), ("segment.bytes", SET, "x")],
    "empty_name": [("", SET, "1")],
    "below_minimum": [("retention.ms", SET, "-2")],
    "broker_setting": [("log.retention.ms", SET, "1")],
    "several": [("retention.ms", SET, "9"), ("cleanup.policy", SET, "compact")],
    "none": [],
}


@scenario(cases=CHANGES, versions=[0, 1])
def change(s: Session, changes: Changes, version: int) -> None:
    topic = s.topic(configs={"retention.ms": "7"})
    alter(s, version, TOPIC, topic, changes)


@scenario(cases={"empty": "", "slash": "a/b", "dot": "."})
def illegal_topic_name(s: Session, name: str) -> None:
    alter(s, 1, TOPIC, name, [("retention.ms", SET, "1")])


@scenario(cases={"unknown": 1, "zero": 0, "max": 127, "negative": -1}, versions=[0, 1])
def resource_type(s: Session, kind: int, version: int) -> None:
    alter(s, version, kind, "1", [("x", SET, "1")], validate_only=True)


@scenario(versions=[0, 1])
def several_resources(s: Session, version: int) -> None:
    good, other = s.topic("good"), s.topic("other")
    table = [(good, "5"), (s.name("absent"), "5"), (other, "x")]
    resources = [
        {
            "resource_type": TOPIC,
            "resource_name": name,
            "configs": [{"name": "retention.ms", "config_operation": SET, "value": wanted}],
        }
        for name, wanted in table
    ]
    s.call("IncrementalAlterConfigs", version, resources=resources)
    look(s, good, {"retention.ms": "5"})
    look(s, other, {})


@scenario(versions=[0, 1])
def same_resource_twice(s: Session, version: int) -> None:
    topic = s.topic()
    entry = {"resource_type": TOPIC, "resource_name": topic, "configs": []}
    s.call("IncrementalAlterConfigs", version, resources=[entry, entry])


@scenario(versions=[0, 1])
def nothing(s: Session, version: int) -> None:
    s.call("IncrementalAlterConfigs", version, resources=[])


BROKER_CHANGES: dict[str, tuple[str, Changes]] = {
    "dynamic": ("1", [("log.retention.ms", SET, "1000")]),
    "dynamic_for_all": ("", [("log.retention.ms", SET, "1000")]),
    "read_only": ("1", [("num.partitions", SET, "3")]),
    "read_only_for_all": ("", [("auto.create.topics.enable", SET, "false")]),
    "delete_read_only": ("1", [("num.partitions", DELETE, None)]),
    "delete_never_set": ("1", [("log.retention.ms", DELETE, None)]),
    "unknown": ("1", [("no.such.setting", SET, "1")]),
    "delete_unknown": ("1", [("no.such.setting", DELETE, None)]),
    "bad_value": ("1", [("log.retention.ms", SET, "soon")]),
    "bad_value_for_all": ("", [("log.retention.ms", SET, "soon")]),
    "append": ("1", [("log.cleanup.policy", APPEND, "compact")]),
    "append_to_no_list": ("1", [("log.retention.ms", APPEND, "1")]),
    "other_broker": ("2", [("log.retention.ms", SET, "1000")]),
    "no_broker": ("one", [("log.retention.ms", SET, "1000")]),
    "nothing": ("1", []),
}


@scenario(cases=BROKER_CHANGES, versions=[0, 1])
def broker_validate_only(s: Session, wanted: tuple[str, Changes], version: int) -> None:
    name, changes = wanted
    alter(s, version, BROKER, name, changes, validate_only=True)


def broker_setting(s: Session, name: str, expected: str | None) -> None:
    """Record one setting of the broker once it is as told."""

    def settled(answer: Answer) -> bool:
        return bool(answer["results"][0]["configs"][0]["value"] == expected)

    asked = {"resource_type": BROKER, "resource_name": "1", "configuration_keys": [name]}
    fields: dict[str, Any] = {"resources": [asked], "include_synonyms": True}
    s.until(settled, "DescribeConfigs", 4, **fields)
    s.call("DescribeConfigs", 4, **fields)


@scenario
def broker_setting_of_one_and_of_all(s: Session) -> None:
    """Set for all, then for one, then taken back: the sources follow. Taken back at the end."""
    name = "log.cleaner.backoff.ms"
    try:
        alter(s, 1, BROKER, "", [(name, SET, "16000")])
        broker_setting(s, name, "16000")
        alter(s, 1, BROKER, "1", [(name, SET, "17000")])
        broker_setting(s, name, "17000")
        alter(s, 1, BROKER, "1", [(name, DELETE, None)])
        broker_setting(s, name, "16000")
    finally:
        for broker in ("", "1"):
            alter(s, 1, BROKER, broker, [(name, DELETE, None)])
        broker_setting(s, name, "15000")


@scenario
def broker_default_reaches_the_topics(s: Session) -> None:
    """A topic that does not set it shows the broker's value as its own default."""
    topic = s.topic()
    name = "log.cleaner.delete.retention.ms"
    asked = {
        "resource_type": TOPIC,
        "resource_name": topic,
        "configuration_keys": ["delete.retention.ms"],
    }
    try:
        alter(s, 1, BROKER, "", [(name, SET, "77000")])
        broker_setting(s, name, "77000")
        s.call("DescribeConfigs", 4, resources=[asked], include_synonyms=True)
    finally:
        alter(s, 1, BROKER, "", [(name, DELETE, None)])
        broker_setting(s, name, "86400000")


MIN_ISR = "min.insync.replicas"
THREADS: dict[str, tuple[str, Changes]] = {
    f"{label}_{'one' if broker else 'all'}": (broker, [(name, SET, text)])
    for broker in ("1", "")
    for label, name, text in (
        ("io_doubled", "num.io.threads", "16"),
        ("io_more_than_doubled", "num.io.threads", "17"),
        ("io_halved", "num.io.threads", "4"),
        ("io_less_than_half", "num.io.threads", "3"),
        ("io_none", "num.io.threads", "0"),
        ("network_odd_half", "num.network.threads", "1"),
        ("network_more", "num.network.threads", "7"),
        ("fetchers_more", "num.replica.fetchers", "3"),
        ("recovery_more", "num.recovery.threads.per.data.dir", "5"),
        ("background_less", "background.threads", "4"),
        ("background_more", "background.threads", "21"),
        ("cleaner_more", "log.cleaner.threads", "3"),
        ("cleaner_none", "log.cleaner.threads", "0"),
        ("remote_reader_more", "remote.log.reader.threads", "21"),
        ("remote_copier_more", "remote.log.manager.copier.thread.pool.size", "21"),
        ("remote_expiration_less", "remote.log.manager.expiration.thread.pool.size", "4"),
        ("remote_follower_more", "remote.log.manager.follower.thread.pool.size", "5"),
    )
}


@scenario(cases=THREADS)
def size_of_a_thread_pool(s: Session, wanted: tuple[str, Changes]) -> None:
    name, changes = wanted
    alter(s, 1, BROKER, name, changes, validate_only=True)


@scenario
def sizes_of_thread_pools_go_up_step_by_step(s: Session) -> None:
    name = "num.io.threads"
    try:
        alter(s, 1, BROKER, "1", [(name, SET, "16")])
        broker_setting(s, name, "16")
        alter(s, 1, BROKER, "1", [(name, SET, "33")])
        alter(s, 1, BROKER, "1", [(name, SET, "32")])
        broker_setting(s, name, "32")
        alter(s, 1, BROKER, "1", [(name, DELETE, None)])
        alter(s, 1, BROKER, "1", [(name, SET, "16")])
        broker_setting(s, name, "16")
    finally:
        alter(s, 1, BROKER, "1", [(name, DELETE, None)])
        broker_setting(s, name, "8")


NOT_SIZES: dict[str, tuple[str, Changes]] = {
    "min_isr_of_one": ("1", [(MIN_ISR, SET, "2")]),
    "min_isr_of_all": ("", [(MIN_ISR, SET, "2")]),
    "delete_min_isr_of_one": ("1", [(MIN_ISR, DELETE, None)]),
    "delete_min_isr_of_all": ("", [(MIN_ISR, DELETE, None)]),
    "min_isr_of_all_too_small": ("", [(MIN_ISR, SET, "0")]),
    "partitions_of_all": ("", [("num.partitions", SET, "3")]),
    "throttle_of_one": ("1", [("leader.replication.throttled.rate", SET, "1000000")]),
    "throttle_of_all": ("", [("follower.replication.throttled.rate", SET, "1000000")]),
    "throttle_below_zero": ("1", [("leader.replication.throttled.rate", SET, "-1")]),
    "throttle_no_number": ("1", [("leader.replication.throttled.rate", SET, "fast")]),
    "throttle_of_moves": ("1", [("replica.alter.log.dirs.io.max.bytes.per.second", SET, "-1")]),
}


@scenario(cases=NOT_SIZES)
def broker_setting_validate_only(s: Session, wanted: tuple[str, Changes]) -> None:
    name, changes = wanted
    alter(s, 1, BROKER, name, changes, validate_only=True)


@scenario(
    cases=[
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    ]
)
def replication_throttle(s: Session, name: str) -> None:
    asked = [
        {"resource_type": BROKER, "resource_name": broker, "configuration_keys": [name]}
        for broker in ("1", "")
    ]
    s.call("DescribeConfigs", 4, resources=asked, include_synonyms=True)

    def settled(answer: Answer) -> bool:
        return any(each["value"] == "1000000" for each in answer["results"][0]["configs"])

    def gone(answer: Answer) -> bool:
        return all(each["value"] != "1000000" for each in answer["results"][0]["configs"])

    try:
        alter(s, 1, BROKER, "1", [(name, SET, "1000000")])
        s.until(settled, "DescribeConfigs", 4, resources=asked)
        s.call("DescribeConfigs", 4, resources=asked, include_synonyms=True)
        s.call("DescribeConfigs", 4, resources=asked, include_documentation=True)
    finally:
        alter(s, 1, BROKER, "1", [(name, DELETE, None)])
        s.until(gone, "DescribeConfigs", 4, resources=asked)
    try:
        alter(s, 1, BROKER, "", [(name, SET, "1000000")])
        asked.reverse()
        s.until(settled, "DescribeConfigs", 4, resources=asked)
        s.call("DescribeConfigs", 4, resources=asked, include_synonyms=True)
    finally:
        alter(s, 1, BROKER, "", [(name, DELETE, None)])
        s.until(gone, "DescribeConfigs", 4, resources=asked)


@scenario
def min_insync_replicas_of_all(s: Session) -> None:
    asked = [
        {"resource_type": BROKER, "resource_name": broker, "configuration_keys": [MIN_ISR]}
        for broker in ("1", "")
    ]
    topic = {"resource_type": TOPIC, "resource_name": s.topic(), "configuration_keys": [MIN_ISR]}
    s.call("DescribeConfigs", 4, resources=[*asked, topic], include_synonyms=True)
    try:
        alter(s, 1, BROKER, "", [(MIN_ISR, SET, "2")])
        broker_setting(s, MIN_ISR, "2")
        s.call("DescribeConfigs", 4, resources=[*asked, topic], include_synonyms=True)
    finally:
        alter(s, 1, BROKER, "", [(MIN_ISR, SET, "1")])
        broker_setting(s, MIN_ISR, "1")
