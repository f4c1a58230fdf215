"""Share groups (KIP-932), and the state of their share partitions."""

from __future__ import annotations

from millstream.config.definition import CLUSTER_WIDE, Config, boolean, int16, int32, string
from millstream.config.validators import at_least, between


class ShareSettings(Config):
    """Share groups and the topic `__share_group_state`."""

    share_coordinator_state_topic_num_partitions: int = int32(
        "share.coordinator.state.topic.num.partitions",
        50,
        at_least(1),
        "Partitions of `__share_group_state`; not to be changed once it exists.",
    )
    share_coordinator_state_topic_replication_factor: int = int16(
        "share.coordinator.state.topic.replication.factor",
        3,
        at_least(1),
        "Replicas of `__share_group_state`, at most the brokers there are when it is created.",
    )
    share_coordinator_state_topic_min_isr: int = int16(
        "share.coordinator.state.topic.min.isr",
        2,
        at_least(1),
        "`min.insync.replicas` of `__share_group_state`.",
    )
    share_coordinator_state_topic_segment_bytes: int = int32(
        "share.coordinator.state.topic.segment.bytes",
        104_857_600,
        at_least(1),
        "Segment size in bytes of `__share_group_state`.",
    )
    share_coordinator_state_topic_compression_codec: int = int32(
        "share.coordinator.state.topic.compression.codec",
        0,
        between(0, 4),
        "Codec of the records in `__share_group_state`: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = int32(
        "share.coordinator.snapshot.update.records.per.snapshot",
        500,
        between(0, 500),
        "Updates of a share partition's state that are written before the next snapshot of it.",
    )
    share_coordinator_write_timeout_ms: int = int32(
        "share.coordinator.write.timeout.ms",
        5_000,
        at_least(1),
        "Time in milliseconds that the write of a share partition's state may take.",
    )
    share_coordinator_state_topic_prune_interval_ms: int = int32(
        "share.coordinator.state.topic.prune.interval.ms",
        300_000,
        at_least(1),
        "Time in milliseconds between two deletions of records that snapshots have replaced.",
        internal=True,
    )
    share_coordinator_cold_partition_snapshot_interval_ms: int = int32(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        300_000,
        at_least(1),
        "Age in milliseconds at which the snapshot of a share partition is written again.",
        internal=True,
    )
    group_share_session_timeout_ms: int = int32(
        "group.share.session.timeout.ms",
        45_000,
        at_least(1),
        "Time in milliseconds without a heartbeat after which a share group removes a member.",
    )
    group_share_min_session_timeout_ms: int = int32(
        "group.share.min.session.timeout.ms",
        45_000,
        at_least(1),
        "Smallest `share.session.timeout.ms` of a group, in milliseconds.",
    )
    group_share_max_session_timeout_ms: int = int32(
        "group.share.max.session.timeout.ms",
        60_000,
        at_least(1),
        "Largest `share.session.timeout.ms` of a group, in milliseconds.",
    )
    group_share_heartbeat_interval_ms: int = int32(
        "group.share.heartbeat.interval.ms",
        5_000,
        at_least(1),
        "Time in milliseconds between two heartbeats of a member of a share group.",
    )
    group_share_min_heartbeat_interval_ms: int = int32(
        "group.share.min.heartbeat.interval.ms",
        5_000,
        at_least(1),
        "Smallest `share.heartbeat.interval.ms` of a group, in milliseconds.",
    )
    group_share_max_heartbeat_interval_ms: int = int32(
        "group.share.max.heartbeat.interval.ms",
        15_000,
        at_least(1),
        "Largest `share.heartbeat.interval.ms` of a group, in milliseconds.",
    )
    group_share_assignment_interval_ms: int = int32(
        "group.share.assignment.interval.ms",
        1_000,
        at_least(0),
        "Time in milliseconds between two target assignments of a share group.",
        mode=CLUSTER_WIDE,
    )
    group_share_min_assignment_interval_ms: int = int32(
        "group.share.min.assignment.interval.ms",
        0,
        at_least(0),
        "Smallest `share.assignment.interval.ms` of a group, in milliseconds.",
    )
    group_share_max_assignment_interval_ms: int = int32(
        "group.share.max.assignment.interval.ms",
        15_000,
        at_least(0),
        "Largest `share.assignment.interval.ms` of a group, in milliseconds.",
    )
    group_share_max_size: int = int32(
        "group.share.max.size",
        200,
        between(1, 1_000),
        "Members that a share group may have.",
    )
    group_share_initialize_retry_interval_ms: int = int32(
        "group.share.initialize.retry.interval.ms",
        30_000,
        at_least(1),
        "Time in milliseconds after which the state of share partitions is initialized again.",
        internal=True,
    )
    errors_deadletterqueue_topic_name_prefix: str = string(
        "errors.deadletterqueue.topic.name.prefix",
        "dlq.",
        None,
        "What the name of a dead-letter topic of a share group has to begin with; empty allows "
        "every name (KIP-1191).",
    )
    errors_deadletterqueue_auto_create_topics_enable: bool = boolean(
        "errors.deadletterqueue.auto.create.topics.enable",
        False,
        "Whether the dead-letter topic of a share group is created when it is first needed.",
    )
    group_share_delivery_count_limit: int = int32(
        "group.share.delivery.count.limit",
        5,
        between(2, 10),
        "Deliveries of a record to a share group before it is archived.",
    )
    group_share_min_delivery_count_limit: int = int32(
        "group.share.min.delivery.count.limit",
        2,
        between(2, 5),
        "Smallest delivery count limit of a group.",
    )
    group_share_max_delivery_count_limit: int = int32(
        "group.share.max.delivery.count.limit",
        10,
        between(5, 25),
        "Largest delivery count limit of a group.",
    )
    group_share_record_lock_duration_ms: int = int32(
        "group.share.record.lock.duration.ms",
        30_000,
        between(1_000, 3_600_000),
        "Time in milliseconds that a record is locked for the consumer that acquired it.",
    )
    group_share_min_record_lock_duration_ms: int = int32(
        "group.share.min.record.lock.duration.ms",
        15_000,
        between(1_000, 30_000),
        "Smallest `share.record.lock.duration.ms` of a group, in milliseconds.",
    )
    group_share_max_record_lock_duration_ms: int = int32(
        "group.share.max.record.lock.duration.ms",
        60_000,
        between(30_000, 3_600_000),
        "Largest `share.record.lock.duration.ms` of a group, in milliseconds.",
    )
    group_share_partition_max_record_locks: int = int32(
        "group.share.partition.max.record.locks",
        2_000,
        between(100, 10_000),
        "Records of a share partition that may be locked at once.",
    )
    group_share_min_partition_max_record_locks: int = int32(
        "group.share.min.partition.max.record.locks",
        100,
        between(100, 2_000),
        "Smallest record lock limit of a group.",
    )
    group_share_max_partition_max_record_locks: int = int32(
        "group.share.max.partition.max.record.locks",
        4_000,
        between(2_000, 10_000),
        "Largest record lock limit of a group.",
    )
    group_share_max_share_sessions: int = int32(
        "group.share.max.share.sessions",
        2_000,
        at_least(1),
        "Share sessions that a broker keeps.",
    )
