"""Consumer groups and their committed offsets."""

from __future__ import annotations

from millstream.config.definition import Config, int16, int32, int64
from millstream.config.validators import at_least, between
from millstream.config.value import MAX_INT


class GroupsSettings(Config):
    """The classic group protocol and the topic `__consumer_offsets`."""

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
        "Time in milliseconds between two looks for expired offsets.",
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
