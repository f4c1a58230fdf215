"""CreateTopics: sizes, names, assignments, settings, validation without creation."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session


def create(s: Session, version: int, *topics: dict[str, Any], **more: Any) -> None:
    """Ask for topics; one partition and one replica unless told."""
    full = [{"num_partitions": 1, "replication_factor": 1} | each for each in topics]
    s.call("CreateTopics", version, **({"topics": full, "timeout_ms": 30_000} | more))


def look(s: Session, *names: str) -> None:
    """Record what is there now. Waits for nothing."""
    s.call("Metadata", 9, **s.metadata_of(*names))


def settled(s: Session, name: str, partitions: int = 1) -> None:
    s.await_topic(name, partitions)
    look(s, name)


@scenario(versions="CreateTopics")
def one_topic(s: Session, version: int) -> None:
    name = s.name("t")
    create(s, version, {"name": name, "num_partitions": 3})
    settled(s, name, 3)


@scenario(versions="CreateTopics")
def with_settings(s: Session, version: int) -> None:
    configs = [
        {"name": "retention.ms", "value": "1000"},
        {"name": "cleanup.policy", "value": "compact"},
    ]
    create(s, version, {"name": s.name("t"), "configs": configs})


@scenario(versions="CreateTopics")
def existing(s: Session, version: int) -> None:
    create(s, version, {"name": s.topic()})


@scenario(versions="CreateTopics")
def validate_only(s: Session, version: int) -> None:
    name = s.name("t")
    create(s, version, {"name": name, "num_partitions": 2}, validate_only=True)
    look(s, name)


@scenario(versions="CreateTopics")
def default_sizes(s: Session, version: int) -> None:
    """−1 means the broker's default from version 4 on."""
    name = s.name("t")
    create(s, version, {"name": name, "num_partitions": -1, "replication_factor": -1})


@scenario(versions=[2, 4, 7], cases={"partitions": (-1, 1), "factor": (2, -1)})
def one_default_size(s: Session, sizes: tuple[int, int], version: int) -> None:
    topic = {"name": s.name("t"), "num_partitions": sizes[0], "replication_factor": sizes[1]}
    create(s, version, topic)


SIZES = {
    "no_partitions": (0, 1),
    "minus_two_partitions": (-2, 1),
    "no_replicas": (1, 0),
    "minus_two_replicas": (1, -2),
    "two_replicas": (1, 2),
    "max_replicas": (1, 32767),
    "both_wrong": (0, 0),
}


@scenario(cases=SIZES, versions=[2, 4, 7])
def wrong_sizes(s: Session, sizes: tuple[int, int], version: int) -> None:
    topic = {"name": s.name("t"), "num_partitions": sizes[0], "replication_factor": sizes[1]}
    create(s, version, topic)


NAMES = {
    "empty": "",
    "dot": ".",
    "dots": "..",
    "three_dots_are_fine": None,
    "slash": "a/b",
    "backslash": "a\\b",
    "space": "a b",
    "umlaut": "ä",
    "comma": "a,b",
    "colon": "a:b",
    "plus": "a+b",
    "newline": "a\nb",
    "null_byte": "a\0b",
    "too_long": "x" * 250,
    "far_too_long": "x" * 3000,
    "metadata_topic": "__cluster_metadata",
}


@scenario(cases=NAMES)
def name(s: Session, wanted: str | None) -> None:
    create(s, 7, {"name": s.name("...") if wanted is None else wanted})


@scenario(versions=[2, 7])
def longest_name(s: Session, version: int) -> None:
    base = s.name("n")
    full = base + "x" * (249 - len(base))
    s.normaliser.know_name(full, "longest")
    create(s, version, {"name": full})
    create(s, version, {"name": full + "x"})


@scenario(versions=[2, 5, 7])
def same_name_twice(s: Session, version: int) -> None:
    name, other = s.name("t"), s.name("other")
    create(s, version, {"name": name}, {"name": other}, {"name": name, "num_partitions": 2})
    s.await_topic(other)
    look(s, name, other)


@scenario(versions=[2, 7], cases={"dot": "a.b-{}", "underscore": "a_b-{}"})
def colliding_name(s: Session, pattern: str, version: int) -> None:
    suffix = s.name("x").removeprefix("x-")
    first = pattern.format(suffix)
    second = first.replace(".", "#").replace("_", ".").replace("#", "_")
    s.normaliser.know_name(first, "first")
    s.normaliser.know_name(second, "second")
    create(s, version, {"name": first})
    create(s, version, {"name": second})


@scenario
def colliding_names_in_one_request(s: Session) -> None:
    suffix = s.name("x").removeprefix("x-")
    names = [f"a.b-{suffix}", f"a_b-{suffix}"]
    for index, each in enumerate(names):
        s.normaliser.know_name(each, f"name{index}")
    create(s, 7, *[{"name": each} for each in names])


@scenario
def internal_topic(s: Session) -> None:
    """It exists since the run was prepared."""
    create(s, 7, {"name": "__consumer_offsets"})


ASSIGNMENTS: dict[str, list[tuple[int, list[int]]]] = {
    "one": [(0, [1])],
    "three": [(0, [1]), (1, [1]), (2, [1])],
    "out_of_order": [(1, [1]), (0, [1])],
    "starts_at_one": [(1, [1])],
    "gap": [(0, [1]), (2, [1])],
    "twice": [(0, [1]), (0, [1])],
    "negative_partition": [(-1, [1])],
    "no_replicas": [(0, [])],
    "unknown_broker": [(0, [7])],
    "same_broker_twice": [(0, [1, 1])],
    "negative_broker": [(0, [-1])],
    "unequal_lengths": [(0, [1]), (1, [1, 2])],
}


def assigned(table: list[tuple[int, list[int]]]) -> dict[str, Any]:
    assignments = [{"partition_index": index, "broker_ids": ids} for index, ids in table]
    return {"num_partitions": -1, "replication_factor": -1, "assignments": assignments}


@scenario(cases=ASSIGNMENTS, versions=[2, 7])
def assignment(s: Session, table: list[tuple[int, list[int]]], version: int) -> None:
    create(s, version, {"name": s.name("t")} | assigned(table))


@scenario(versions=[2, 7], cases={"partitions": (1, -1), "factor": (-1, 1), "both": (1, 1)})
def assignment_and_sizes(s: Session, sizes: tuple[int, int], version: int) -> None:
    topic = {"name": s.name("t")} | assigned([(0, [1])])
    create(s, version, topic | {"num_partitions": sizes[0], "replication_factor": sizes[1]})


CONFIGS: dict[str, list[tuple[str, str | None]]] = {
    "unknown": [("no.such.setting", "1")],
    "empty_name": [("", "1")],
    "broker_setting": [("log.retention.ms", "1")],
    "null_value": [("retention.ms", None)],
    "empty_value": [("retention.ms", "")],
    "no_number": [("retention.ms", "soon")],
    "spaces_around": [("retention.ms", " 1000 ")],
    "twice": [("retention.ms", "1"), ("retention.ms", "2")],
    "below_minimum": [("retention.ms", "-2")],
    "largest": [("retention.ms", "9223372036854775807")],
    "too_large": [("retention.ms", "9223372036854775808")],
    "too_large_int": [("max.message.bytes", "2147483648")],
    "negative_size": [("max.message.bytes", "-1")],
    "segment_too_small": [("segment.bytes", "13")],
    "segment_below_a_mebibyte": [("segment.bytes", "1000")],
    "ratio": [("min.cleanable.dirty.ratio", "0.25")],
    "ratio_too_large": [("min.cleanable.dirty.ratio", "1.5")],
    "bool": [("preallocate", "TRUE")],
    "no_bool": [("preallocate", "yes")],
    "policy_delete": [("cleanup.policy", "delete")],
    "policy_both": [("cleanup.policy", "compact,delete")],
    "policy_spaces": [("cleanup.policy", "compact, delete")],
    "policy_upper_case": [("cleanup.policy", "DELETE")],
    "policy_unknown": [("cleanup.policy", "shred")],
    "policy_empty": [("cleanup.policy", "")],
    "policy_twice": [("cleanup.policy", "delete,delete")],
    "compression": [("compression.type", "zstd")],
    "compression_unknown": [("compression.type", "brotli")],
    "compression_level": [("compression.type", "gzip"), ("compression.gzip.level", "12")],
    "timestamp_type_unknown": [("message.timestamp.type", "SomeTime")],
    "min_isr": [("min.insync.replicas", "0")],
    "format_version": [("message.format.version", "3.0")],
    "down_conversion": [("message.downconversion.enable", "false")],
    "timestamp_difference": [("message.timestamp.difference.max.ms", "1")],
    "throttled_replicas": [("leader.replication.throttled.replicas", "0:1,1:1")],
    "throttled_replicas_wrong": [("leader.replication.throttled.replicas", "zero:one")],
    "local_retention_above_retention": [("retention.ms", "10"), ("local.retention.ms", "20")],
    "remote_storage": [("remote.storage.enable", "true")],
    "compaction_lags": [("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5")],
    "one_good_one_bad": [("retention.ms", "5"), ("segment.ms", "x")],
    "hexadecimal": [("retention.ms", "0x10")],
    "plus_sign": [("retention.ms", "+5")],
    "index_interval": [("index.interval.bytes", "-1")],
    "retention_bytes": [("retention.bytes", "-1"), ("retention.ms", "-1")],
    "errors_deadletter": [("errors.deadletterqueue.group.enable", "true")],
    "unclean": [("unclean.leader.election.enable", "true")],
    "flush": [("flush.messages", "0"), ("flush.ms", "0")],
    "file_delete_delay": [("file.delete.delay.ms", "-1")],
    "segment_jitter": [("segment.jitter.ms", "-1")],
    "delete_retention": [("delete.retention.ms", "-1")],
}


@scenario(cases=CONFIGS)
def setting(s: Session, table: list[tuple[str, str | None]]) -> None:
    """One record of the topic's error; the answer's list of settings is compared elsewhere."""
    configs = [{"name": name, "value": value} for name, value in table]
    create(s, 4, {"name": s.name("t"), "configs": configs})


@scenario(versions="CreateTopics", cases=["unknown", "null_value", "no_number"])
def wrong_setting(s: Session, kind: str, version: int) -> None:
    configs = [{"name": name, "value": value} for name, value in CONFIGS[kind]]
    create(s, version, {"name": s.name("t"), "configs": configs})


@scenario(versions=[2, 5, 7])
def good_and_bad_together(s: Session, version: int) -> None:
    good = s.name("good")
    create(
        s, version, {"name": good}, {"name": "a/b"}, {"name": s.name("none"), "num_partitions": 0}
    )
    settled(s, good)


@scenario(versions=[2, 7], cases={"zero": 0, "negative": -1})
def odd_timeout(s: Session, timeout_ms: int, version: int) -> None:
    create(s, version, {"name": s.name("t")}, timeout_ms=timeout_ms)


@scenario(versions=[2, 7])
def nothing(s: Session, version: int) -> None:
    create(s, version)
    create(s, version, validate_only=True)


@scenario(versions=[4, 7])
def validate_only_with_errors(s: Session, version: int) -> None:
    create(
        s,
        version,
        {"name": s.topic("there")},
        {"name": s.name("a"), "num_partitions": 0},
        {"name": s.name("b"), "configs": [{"name": "retention.ms", "value": "x"}]},
        {"name": s.name("c")},
        validate_only=True,
    )


@scenario
def many_partitions(s: Session) -> None:
    name = s.name("t")
    create(s, 4, {"name": name, "num_partitions": 50})
    s.await_topic(name, 50)
