"""Where logs lie, when they roll, and what is kept."""

from __future__ import annotations

from millstream.config.definition import (
    CLUSTER_WIDE,
    PER_BROKER,
    Config,
    boolean,
    double,
    int32,
    int64,
    string,
    texts,
)
from millstream.config.validators import at_least, between, each_of, gzip_level, not_empty, one_of
from millstream.config.value import MAX_DOUBLE, MAX_LONG


class LogsSettings(Config):
    """Directories, segments, retention, flushing and cleaning. Most are defaults of the topic
    settings of the same meaning.
    """

    log_dir: tuple[str, ...] = texts(
        "log.dir",
        ("/tmp/kafka-logs",),
        not_empty,
        "The directory of the logs if `log.dirs` is not set.",
    )
    log_dirs: tuple[str, ...] | None = texts(
        "log.dirs",
        None,
        not_empty,
        "The directories of the logs, separated by commas.",
    )
    metadata_log_dir: str | None = string(
        "metadata.log.dir",
        None,
        None,
        "The directory of Apache Kafka's metadata log, if it is not one of the log directories; "
        "it contains the settings of topics that are taken over.",
    )
    log_segment_bytes: int = int32(
        "log.segment.bytes",
        1_073_741_824,
        at_least(1_048_576),
        "Default of `segment.bytes`.",
        mode=CLUSTER_WIDE,
    )
    log_roll_ms: int | None = int64(
        "log.roll.ms",
        None,
        None,
        "Default of `segment.ms`; where not set, `log.roll.hours` holds.",
        mode=CLUSTER_WIDE,
    )
    log_roll_hours: int = int32(
        "log.roll.hours",
        168,
        at_least(1),
        "Default of `segment.ms`, in hours.",
    )
    log_roll_jitter_ms: int | None = int64(
        "log.roll.jitter.ms",
        None,
        None,
        "Default of `segment.jitter.ms`; where not set, `log.roll.jitter.hours` holds.",
        mode=CLUSTER_WIDE,
    )
    log_roll_jitter_hours: int = int32(
        "log.roll.jitter.hours",
        0,
        at_least(0),
        "Default of `segment.jitter.ms`, in hours.",
    )
    log_retention_ms: int | None = int64(
        "log.retention.ms",
        None,
        None,
        "Default of `retention.ms`; where not set, `log.retention.minutes` holds.",
        mode=CLUSTER_WIDE,
    )
    log_retention_minutes: int | None = int32(
        "log.retention.minutes",
        None,
        None,
        "Default of `retention.ms`, in minutes; where not set, `log.retention.hours` holds.",
    )
    log_retention_hours: int = int32(
        "log.retention.hours",
        168,
        None,
        "Default of `retention.ms`, in hours.",
    )
    log_retention_bytes: int = int64(
        "log.retention.bytes",
        -1,
        None,
        "Default of `retention.bytes`.",
        mode=CLUSTER_WIDE,
    )
    log_retention_check_interval_ms: int = int64(
        "log.retention.check.interval.ms",
        300_000,
        at_least(1),
        "Time in milliseconds between two checks for segments to delete.",
    )
    log_cleanup_policy: tuple[str, ...] = texts(
        "log.cleanup.policy",
        ("delete",),
        each_of("compact", "delete"),
        "Default of `cleanup.policy`.",
        mode=CLUSTER_WIDE,
    )
    log_index_size_max_bytes: int = int32(
        "log.index.size.max.bytes",
        10_485_760,
        at_least(4),
        "Default of `segment.index.bytes`.",
        mode=CLUSTER_WIDE,
    )
    log_index_interval_bytes: int = int32(
        "log.index.interval.bytes",
        4_096,
        at_least(0),
        "Default of `index.interval.bytes`.",
        mode=CLUSTER_WIDE,
    )
    log_flush_interval_messages: int = int64(
        "log.flush.interval.messages",
        MAX_LONG,
        at_least(1),
        "Default of `flush.messages`.",
        mode=CLUSTER_WIDE,
    )
    log_flush_interval_ms: int | None = int64(
        "log.flush.interval.ms",
        None,
        None,
        "Default of `flush.ms`; where not set, `log.flush.scheduler.interval.ms` holds.",
        mode=CLUSTER_WIDE,
    )
    log_flush_scheduler_interval_ms: int = int64(
        "log.flush.scheduler.interval.ms",
        MAX_LONG,
        None,
        "Time in milliseconds between two checks for logs to flush.",
    )
    log_flush_offset_checkpoint_interval_ms: int = int32(
        "log.flush.offset.checkpoint.interval.ms",
        60_000,
        at_least(0),
        "Time in milliseconds between two writes of the recovery points.",
    )
    log_flush_start_offset_checkpoint_interval_ms: int = int32(
        "log.flush.start.offset.checkpoint.interval.ms",
        60_000,
        at_least(0),
        "Time in milliseconds between two writes of the log start offsets.",
    )
    log_segment_delete_delay_ms: int = int64(
        "log.segment.delete.delay.ms",
        60_000,
        at_least(0),
        "Default of `file.delete.delay.ms`.",
        mode=CLUSTER_WIDE,
    )
    log_preallocate: bool = boolean(
        "log.preallocate",
        False,
        "Default of `preallocate`.",
        mode=CLUSTER_WIDE,
    )
    log_message_timestamp_type: str = string(
        "log.message.timestamp.type",
        "CreateTime",
        one_of("CreateTime", "LogAppendTime"),
        "Default of `message.timestamp.type`.",
        mode=CLUSTER_WIDE,
    )
    log_message_timestamp_before_max_ms: int = int64(
        "log.message.timestamp.before.max.ms",
        MAX_LONG,
        at_least(0),
        "Default of `message.timestamp.before.max.ms`.",
        mode=CLUSTER_WIDE,
    )
    log_message_timestamp_after_max_ms: int = int64(
        "log.message.timestamp.after.max.ms",
        3_600_000,
        at_least(0),
        "Default of `message.timestamp.after.max.ms`.",
        mode=CLUSTER_WIDE,
    )
    log_local_retention_ms: int = int64(
        "log.local.retention.ms",
        -2,
        at_least(-2),
        "Default of `local.retention.ms`.",
        mode=CLUSTER_WIDE,
    )
    log_local_retention_bytes: int = int64(
        "log.local.retention.bytes",
        -2,
        at_least(-2),
        "Default of `local.retention.bytes`.",
        mode=CLUSTER_WIDE,
    )
    message_max_bytes: int = int32(
        "message.max.bytes",
        1_048_588,
        at_least(0),
        "Default of `max.message.bytes`.",
        mode=CLUSTER_WIDE,
    )
    compression_type: str = string(
        "compression.type",
        "producer",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        "Default of `compression.type`.",
        mode=CLUSTER_WIDE,
    )
    compression_gzip_level: int = int32(
        "compression.gzip.level",
        -1,
        gzip_level,
        "Default of `compression.gzip.level`.",
        mode=CLUSTER_WIDE,
    )
    compression_lz4_level: int = int32(
        "compression.lz4.level",
        9,
        between(1, 17),
        "Default of `compression.lz4.level`.",
        mode=CLUSTER_WIDE,
    )
    compression_zstd_level: int = int32(
        "compression.zstd.level",
        3,
        between(-131_072, 22),
        "Default of `compression.zstd.level`.",
        mode=CLUSTER_WIDE,
    )
    cordoned_log_dirs: tuple[str, ...] = texts(
        "cordoned.log.dirs",
        (),
        None,
        "Directories of `log.dirs` that take no new replicas, separated by commas; `*` for all.",
        mode=PER_BROKER,
    )
    num_recovery_threads_per_data_dir: int = int32(
        "num.recovery.threads.per.data.dir",
        2,
        at_least(1),
        "Threads per log directory that recover logs at the start.",
        mode=CLUSTER_WIDE,
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = int64(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        MAX_LONG,
        at_least(0),
        "Largest rate, in bytes per second, at which replicas are copied to another log directory.",
        mode=CLUSTER_WIDE,
        internal=True,
    )
    log_cleaner_enable: bool = boolean(
        "log.cleaner.enable",
        True,
        "Whether logs are compacted.",
    )
    log_cleaner_threads: int = int32(
        "log.cleaner.threads",
        1,
        at_least(0),
        "Threads that compact logs, each one log at a time.",
        mode=CLUSTER_WIDE,
    )
    log_cleaner_backoff_ms: int = int64(
        "log.cleaner.backoff.ms",
        15_000,
        at_least(0),
        "Time in milliseconds that the cleaner waits when there was nothing to clean.",
        mode=CLUSTER_WIDE,
    )
    log_cleaner_dedupe_buffer_size: int = int64(
        "log.cleaner.dedupe.buffer.size",
        134_217_728,
        None,
        "Memory in bytes for the keys of the logs that are being compacted, 24 for each key, "
        "shared by the threads.",
        mode=CLUSTER_WIDE,
    )
    log_cleaner_io_buffer_size: int = int32(
        "log.cleaner.io.buffer.size",
        524_288,
        at_least(0),
        "Bytes that the cleaner reads or writes at a time, shared by the threads; a larger batch "
        "gets what it needs.",
        mode=CLUSTER_WIDE,
    )
    log_cleaner_io_buffer_load_factor: float = double(
        "log.cleaner.io.buffer.load.factor",
        0.9,
        None,
        "How full, as a share, the memory for keys may get: more keys for each run, but more hash "
        "collisions.",
        mode=CLUSTER_WIDE,
    )
    log_cleaner_io_max_bytes_per_second: float = double(
        "log.cleaner.io.max.bytes.per.second",
        MAX_DOUBLE,
        None,
        "Largest number of bytes that the cleaner reads and writes per second.",
        mode=CLUSTER_WIDE,
    )
    log_cleaner_min_cleanable_ratio: float = double(
        "log.cleaner.min.cleanable.ratio",
        0.5,
        between(0, 1),
        "Default of `min.cleanable.dirty.ratio`.",
        mode=CLUSTER_WIDE,
    )
    log_cleaner_delete_retention_ms: int = int64(
        "log.cleaner.delete.retention.ms",
        86_400_000,
        at_least(0),
        "Default of `delete.retention.ms`.",
        mode=CLUSTER_WIDE,
    )
    log_cleaner_min_compaction_lag_ms: int = int64(
        "log.cleaner.min.compaction.lag.ms",
        0,
        at_least(0),
        "Default of `min.compaction.lag.ms`.",
        mode=CLUSTER_WIDE,
    )
    log_cleaner_max_compaction_lag_ms: int = int64(
        "log.cleaner.max.compaction.lag.ms",
        MAX_LONG,
        at_least(1),
        "Default of `max.compaction.lag.ms`.",
        mode=CLUSTER_WIDE,
    )
    log_initial_task_delay_ms: int = int64(
        "log.initial.task.delay.ms",
        30_000,
        at_least(0),
        "Time in milliseconds from the start to the first background work on logs.",
        internal=True,
    )
    log_flush_policy: str = string(
        "log.flush.policy",
        "ack",
        one_of("ack", "interval", "os"),
        "Default of `flush.policy`.",
        mode=CLUSTER_WIDE,
        kafka=False,
    )
    log_record_validation: str = string(
        "log.record.validation",
        "relaxed",
        one_of("relaxed", "strict"),
        "Default of `record.validation`.",
        mode=CLUSTER_WIDE,
        kafka=False,
    )
