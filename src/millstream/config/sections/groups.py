"""Consumer groups and their committed offsets."""

from __future__ import annotations

from typing import Final

from millstream.config.definition import CLUSTER_WIDE, Config, int16, int32, int64, string, texts
from millstream.config.validators import at_least, between, each_of, one_of
from millstream.config.value import MAX_INT

PROTOCOLS: Final = ("classic", "consumer", "streams", "share")
ASSIGNORS: Final = ("uniform", "range")
MIGRATION_POLICIES: Final = ("bidirectional", "upgrade", "downgrade", "disabled")


class GroupsSettings(Config):
    """The group protocols and the topic `__consumer_offsets`."""

    offsets_topic_num_partitions: int = int32(
        "offsets.topic.num.partitions",
        50,
        at_least(1),
        "Partitions of `__consumer_offsets`; not to be changed once it exists.",
    )
    offsets_topic_replication_factor: int = int16(
        "offsets.topic.replication.factor",
        3,
        at_least(1),
        "Replicas of `__consumer_offsets`, at most the brokers there are when it is created.",
    )
    offsets_topic_segment_bytes: int = int32(
        "offsets.topic.segment.bytes",
        104_857_600,
        at_least(1),
        "Segment size in bytes of `__consumer_offsets`.",
    )
    offsets_topic_compression_codec: int = int32(
        "offsets.topic.compression.codec",
        0,
        between(0, 4),
        "Codec of the records in `__consumer_offsets`: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
    )
    offset_metadata_max_bytes: int = int32(
        "offset.metadata.max.bytes",
        4_096,
        None,
        "Largest text that may accompany a committed offset, in bytes.",
    )
    offsets_retention_minutes: int = int32(
        "offsets.retention.minutes",
        10_080,
        at_least(1),
        "Time in minutes that offsets of a group without members are kept.",
    )
    offsets_retention_check_interval_ms: int = int64(
        "offsets.retention.check.interval.ms",
        600_000,
        at_least(1),
        "Time in milliseconds between two checks for expired offsets.",
    )
    offsets_commit_timeout_ms: int = int32(
        "offsets.commit.timeout.ms",
        5_000,
        at_least(1),
        "Time in milliseconds that the write of a commit may take.",
    )
    group_min_session_timeout_ms: int = int32(
        "group.min.session.timeout.ms",
        6_000,
        None,
        "Smallest session timeout in milliseconds that a member may ask for.",
    )
    group_max_session_timeout_ms: int = int32(
        "group.max.session.timeout.ms",
        1_800_000,
        None,
        "Largest session timeout in milliseconds that a member may ask for.",
    )
    group_initial_rebalance_delay_ms: int = int32(
        "group.initial.rebalance.delay.ms",
        3_000,
        None,
        "Time in milliseconds that a new group waits for more members.",
    )
    group_max_size: int = int32(
        "group.max.size",
        MAX_INT,
        at_least(1),
        "Members that a group may have.",
    )
    group_coordinator_rebalance_protocols: tuple[str, ...] = texts(
        "group.coordinator.rebalance.protocols",
        ("classic", "consumer", "streams"),
        each_of(*PROTOCOLS),
        "Group protocols that are served, besides `classic`, which always is: `consumer` is that "
        "of KIP-848. There are no streams groups here.",
    )
    group_consumer_session_timeout_ms: int = int32(
        "group.consumer.session.timeout.ms",
        45_000,
        at_least(1),
        "Time in milliseconds without a heartbeat after which a member of a consumer group is "
        "removed.",
    )
    group_consumer_min_session_timeout_ms: int = int32(
        "group.consumer.min.session.timeout.ms",
        45_000,
        at_least(1),
        "Smallest `consumer.session.timeout.ms` in milliseconds that a group may set.",
    )
    group_consumer_max_session_timeout_ms: int = int32(
        "group.consumer.max.session.timeout.ms",
        60_000,
        at_least(1),
        "Largest `consumer.session.timeout.ms` in milliseconds that a group may set.",
    )
    group_consumer_heartbeat_interval_ms: int = int32(
        "group.consumer.heartbeat.interval.ms",
        5_000,
        at_least(1),
        "Time in milliseconds between two heartbeats of a member of a consumer group.",
    )
    group_consumer_min_heartbeat_interval_ms: int = int32(
        "group.consumer.min.heartbeat.interval.ms",
        5_000,
        at_least(1),
        "Smallest `consumer.heartbeat.interval.ms` in milliseconds that a group may set.",
    )
    group_consumer_max_heartbeat_interval_ms: int = int32(
        "group.consumer.max.heartbeat.interval.ms",
        15_000,
        at_least(1),
        "Largest `consumer.heartbeat.interval.ms` in milliseconds that a group may set.",
    )
    group_consumer_assignment_interval_ms: int = int32(
        "group.consumer.assignment.interval.ms",
        1_000,
        at_least(0),
        "Time in milliseconds between two target assignments of a consumer group.",
        mode=CLUSTER_WIDE,
    )
    group_consumer_min_assignment_interval_ms: int = int32(
        "group.consumer.min.assignment.interval.ms",
        0,
        at_least(0),
        "Smallest `consumer.assignment.interval.ms` in milliseconds that a group may set.",
    )
    group_consumer_max_assignment_interval_ms: int = int32(
        "group.consumer.max.assignment.interval.ms",
        15_000,
        at_least(0),
        "Largest `consumer.assignment.interval.ms` in milliseconds that a group may set.",
    )
    group_consumer_max_size: int = int32(
        "group.consumer.max.size",
        MAX_INT,
        at_least(1),
        "Members that a consumer group may have.",
    )
    group_consumer_assignors: tuple[str, ...] = texts(
        "group.consumer.assignors",
        ASSIGNORS,
        each_of(*ASSIGNORS),
        "Assignors of consumer groups; the first is used for members that name none.",
    )
    group_consumer_migration_policy: str = string(
        "group.consumer.migration.policy",
        "bidirectional",
        one_of(*MIGRATION_POLICIES),
        "Whether groups with members change between the classic and the consumer protocol: "
        "`upgrade`, `downgrade`, both (`bidirectional`) or neither (`disabled`).",
    )
    group_consumer_regex_refresh_interval_ms: int = int32(
        "group.consumer.regex.refresh.interval.ms",
        600_000,
        at_least(10_000),
        "Time in milliseconds after which the topics of a regular expression are looked up again "
        "even if no topic was created.",
        internal=True,
    )
