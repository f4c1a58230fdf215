"""Settings of a topic: Kafka's names, defaults and limits, each inherited from a broker setting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from millstream.config.definition import (
    Config,
    ConfigKey,
    Synonym,
    boolean,
    double,
    fill,
    int32,
    int64,
    string,
    texts,
)
from millstream.config.validators import (
    at_least,
    between,
    each_of,
    gzip_level,
    one_of,
    throttled_replicas,
)
from millstream.config.value import MAX_LONG, Value
from millstream.model.errors import ConfigError

HOUR_MS: Final = 3_600_000
MINUTE_MS: Final = 60_000

CODECS: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")
FLUSH_POLICIES: Final = ("ack", "interval", "os")
RECORD_VALIDATIONS: Final = ("relaxed", "strict")


def _from(*names: str | tuple[str, int]) -> tuple[Synonym, ...]:
    return tuple(Synonym(name) if isinstance(name, str) else Synonym(*name) for name in names)


class TopicConfig(Config, final=True):
    """The settings of one topic. Topics without settings of their own share one instance."""

    __slots__ = ("overrides",)

    segment_bytes: int = int32(
        "segment.bytes",
        1_073_741_824,
        at_least(1_048_576),
        "Size in bytes at which a segment of the log is closed and a new one begun.",
        inherits=_from("log.segment.bytes"),
    )
    segment_ms: int = int64(
        "segment.ms",
        168 * HOUR_MS,
        at_least(1),
        "Age in milliseconds at which a segment is closed even when it is not full.",
        inherits=_from("log.roll.ms", ("log.roll.hours", HOUR_MS)),
    )
    segment_jitter_ms: int = int64(
        "segment.jitter.ms",
        0,
        at_least(0),
        "Random part, in milliseconds, that is taken off `segment.ms` for each segment, so that "
        "many logs do not roll at once.",
        inherits=_from("log.roll.jitter.ms", ("log.roll.jitter.hours", HOUR_MS)),
    )
    segment_index_bytes: int = int32(
        "segment.index.bytes",
        10_485_760,
        at_least(4),
        "Largest size in bytes of a segment's index; a full index closes the segment.",
        inherits=_from("log.index.size.max.bytes"),
    )
    flush_messages: int = int64(
        "flush.messages",
        MAX_LONG,
        at_least(1),
        "Number of records after which the log is forced to disk under `flush.policy=interval`.",
        inherits=_from("log.flush.interval.messages"),
    )
    flush_ms: int = int64(
        "flush.ms",
        MAX_LONG,
        at_least(0),
        "Time in milliseconds after which the log is forced to disk under `flush.policy=interval`.",
        inherits=_from("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    )
    flush_policy: str = string(
        "flush.policy",
        "ack",
        one_of(*FLUSH_POLICIES),
        "When records are forced to disk: before they are acknowledged (`ack`, many producers "
        "share one flush), by `flush.messages` and `flush.ms` (`interval`), or when the operating "
        "system sees fit (`os`).",
        inherits=_from("log.flush.policy"),
        kafka=False,
    )
    retention_bytes: int = int64(
        "retention.bytes",
        -1,
        None,
        "Size in bytes that a partition may grow to before its oldest segments are deleted; −1 "
        "sets no limit.",
        inherits=_from("log.retention.bytes"),
    )
    retention_ms: int = int64(
        "retention.ms",
        168 * HOUR_MS,
        at_least(-1),
        "Age in milliseconds beyond which segments are deleted; −1 sets no limit.",
        inherits=_from(
            "log.retention.ms",
            ("log.retention.minutes", MINUTE_MS),
            ("log.retention.hours", HOUR_MS),
        ),
    )
    max_message_bytes: int = int32(
        "max.message.bytes",
        1_048_588,
        at_least(0),
        "Size in bytes of the largest record batch that is accepted.",
        inherits=_from("message.max.bytes"),
    )
    index_interval_bytes: int = int32(
        "index.interval.bytes",
        4096,
        at_least(0),
        "Bytes of log between two entries of the offset index.",
        inherits=_from("log.index.interval.bytes"),
    )
    delete_retention_ms: int = int64(
        "delete.retention.ms",
        24 * HOUR_MS,
        at_least(0),
        "Time in milliseconds that tombstones are kept in a compacted log.",
        inherits=_from("log.cleaner.delete.retention.ms"),
    )
    min_compaction_lag_ms: int = int64(
        "min.compaction.lag.ms",
        0,
        at_least(0),
        "Time in milliseconds during which a record is not compacted.",
        inherits=_from("log.cleaner.min.compaction.lag.ms"),
    )
    max_compaction_lag_ms: int = int64(
        "max.compaction.lag.ms",
        MAX_LONG,
        at_least(1),
        "Time in milliseconds after which a record must become eligible for compaction.",
        inherits=_from("log.cleaner.max.compaction.lag.ms"),
    )
    file_delete_delay_ms: int = int64(
        "file.delete.delay.ms",
        60_000,
        at_least(0),
        "Time in milliseconds between marking a file as deleted and removing it.",
        inherits=_from("log.segment.delete.delay.ms"),
    )
    min_cleanable_dirty_ratio: float = double(
        "min.cleanable.dirty.ratio",
        0.5,
        between(0, 1),
        "Share of a log that must be uncompacted before the cleaner takes it.",
        inherits=_from("log.cleaner.min.cleanable.ratio"),
    )
    cleanup_policy: tuple[str, ...] = texts(
        "cleanup.policy",
        ("delete",),
        each_of("compact", "delete"),
        "How old segments go: deleted by age and size, compacted by key, or both. An empty list "
        "keeps everything.",
        inherits=_from("log.cleanup.policy"),
    )
    unclean_leader_election_enable: bool = boolean(
        "unclean.leader.election.enable",
        False,
        "Whether a replica that is not in sync may lead as a last resort, at the price of records.",
        inherits=_from("unclean.leader.election.enable"),
    )
    min_insync_replicas: int = int32(
        "min.insync.replicas",
        1,
        at_least(1),
        "Replicas that must be in sync for a write with `acks=all` to succeed.",
        inherits=_from("min.insync.replicas"),
    )
    compression_type: str = string(
        "compression.type",
        "producer",
        one_of(*CODECS),
        "Codec in which batches are stored; `producer` keeps what the producer chose.",
        inherits=_from("compression.type"),
    )
    compression_gzip_level: int = int32(
        "compression.gzip.level",
        -1,
        gzip_level,
        "Level of gzip where `compression.type=gzip`.",
        inherits=_from("compression.gzip.level"),
    )
    compression_lz4_level: int = int32(
        "compression.lz4.level",
        9,
        between(1, 17),
        "Level of lz4 where `compression.type=lz4`.",
        inherits=_from("compression.lz4.level"),
    )
    compression_zstd_level: int = int32(
        "compression.zstd.level",
        3,
        between(-131_072, 22),
        "Level of zstd where `compression.type=zstd`.",
        inherits=_from("compression.zstd.level"),
    )
    preallocate: bool = boolean(
        "preallocate",
        False,
        "Whether a new segment's file is given its full size at once.",
        inherits=_from("log.preallocate"),
    )
    message_timestamp_type: str = string(
        "message.timestamp.type",
        "CreateTime",
        one_of(*TIMESTAMP_TYPES),
        "Whether records carry the producer's time or the time of their arrival.",
        inherits=_from("log.message.timestamp.type"),
    )
    message_timestamp_before_max_ms: int = int64(
        "message.timestamp.before.max.ms",
        MAX_LONG,
        at_least(0),
        "How far, in milliseconds, a record's time may lie behind the broker's.",
        inherits=_from("log.message.timestamp.before.max.ms"),
    )
    message_timestamp_after_max_ms: int = int64(
        "message.timestamp.after.max.ms",
        HOUR_MS,
        at_least(0),
        "How far, in milliseconds, a record's time may lie ahead of the broker's.",
        inherits=_from("log.message.timestamp.after.max.ms"),
    )
    record_validation: str = string(
        "record.validation",
        "relaxed",
        one_of(*RECORD_VALIDATIONS),
        "Which produced batches have their records checked before they are appended: all that are "
        "not compressed (`relaxed`), or the compressed ones too (`strict`), which the broker "
        "decompresses for it. `relaxed` needs the C kernel; without it batches of up to 8 records "
        "are checked.",
        inherits=_from("log.record.validation"),
        kafka=False,
    )
    leader_replication_throttled_replicas: tuple[str, ...] = texts(
        "leader.replication.throttled.replicas",
        (),
        throttled_replicas,
        "Replicas (`partition:broker`, or `*`) whose replication the leader slows down.",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = texts(
        "follower.replication.throttled.replicas",
        (),
        throttled_replicas,
        "Replicas (`partition:broker`, or `*`) whose replication the follower slows down.",
    )
    errors_deadletterqueue_group_enable: bool = boolean(
        "errors.deadletterqueue.group.enable",
        False,
        "Whether share groups may have the topic as their dead-letter topic (KIP-1191).",
    )
    remote_storage_enable: bool = boolean(
        "remote.storage.enable",
        False,
        "Tiered storage, which Millstream does not have: only false is accepted.",
    )
    local_retention_ms: int = int64(
        "local.retention.ms",
        -2,
        at_least(-2),
        "Part of `retention.ms` kept locally under tiered storage; −2 means all of it.",
        inherits=_from("log.local.retention.ms"),
    )
    local_retention_bytes: int = int64(
        "local.retention.bytes",
        -2,
        at_least(-2),
        "Part of `retention.bytes` kept locally under tiered storage; −2 means all of it.",
        inherits=_from("log.local.retention.bytes"),
    )
    remote_log_copy_disable: bool = boolean(
        "remote.log.copy.disable",
        False,
        "Belongs to tiered storage, which Millstream does not have.",
    )
    remote_log_delete_on_disable: bool = boolean(
        "remote.log.delete.on.disable",
        False,
        "Belongs to tiered storage, which Millstream does not have.",
    )
    internal_segment_bytes: int | None = int32(
        "internal.segment.bytes",
        None,
        None,
        "Overrides `segment.bytes` without its lower limit; for tests.",
        internal=True,
    )

    def __init__(
        self, overrides: Mapping[str, str] | None = None, defaults: TopicConfig | None = None
    ) -> None:
        """Take the topic's own texts over the broker's defaults; ConfigError as Kafka words it.

        Without ``defaults`` the settings that are not given have Kafka's own defaults.
        """
        overrides = dict(overrides or {})
        parsed = parse_overrides(overrides)
        if defaults is None:
            values: dict[str, Value] = {key.attribute: key.default for key in self.keys.values()}
        else:
            values = {key.attribute: getattr(defaults, key.attribute) for key in self.keys.values()}
        fill(self, values | parsed, overrides)

    @classmethod
    def from_values(cls, values: Mapping[str, Value]) -> TopicConfig:
        """Return the settings of a topic that sets none: ``values`` by attribute, all of them."""
        made = cls.__new__(cls)
        fill(made, values, {})
        return made

    @property
    def roll_bytes(self) -> int:
        """The size in bytes at which a segment is closed, the internal override included."""
        return self.internal_segment_bytes or self.segment_bytes

    @property
    def roll_ms(self) -> int:
        """The age in milliseconds at which a segment is closed: records that have to be compacted
        by some time must not lie in the active segment until then.
        """
        return (
            min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms
        )

    @property
    def compacts(self) -> bool:
        """True when records are compacted by key."""
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        """True when old segments are deleted by age and size."""
        return "delete" in self.cleanup_policy


def parse_overrides(overrides: Mapping[str, str]) -> dict[str, Value]:
    """Parse a topic's own texts to values by attribute, in Kafka's order of complaint: unknown
    names first, then each value in the order in which the settings are declared.
    """
    for name in overrides:
        if name not in TopicConfig.keys:
            raise ConfigError(f"Unknown topic config name: {name}")
    return {
        key.attribute: key.parse(overrides[name])
        for name, key in TopicConfig.keys.items()
        if name in overrides
    }


def stored_topic_config(
    overrides: Mapping[str, str], defaults: TopicConfig, on_refused: Callable[[ConfigError], None]
) -> TopicConfig:
    """Return the settings of a topic that is there, whoever wrote them: another version may have
    had other names and limits. What is invalid is passed to ``on_refused`` and left out, and takes
    nothing else with it: without its `cleanup.policy` a compacted topic would lose its records.
    """
    try:
        return TopicConfig(overrides, defaults)
    except ConfigError:
        usable: dict[str, str] = {}
        for name, text in overrides.items():
            try:
                parse_overrides({name: text})
            except ConfigError as error:
                on_refused(error)
            else:
                usable[name] = text
        return TopicConfig(usable, defaults)


def inherited_topic_config(broker: Config) -> TopicConfig:
    """Return what a topic inherits from a broker (Kafka: ``KafkaConfig.extractLogConfigMap``): of
    each setting's broker settings the first that is not null.
    """
    return TopicConfig.from_values(
        {key.attribute: _inherited(key, broker) for key in TopicConfig.keys.values()}
    )


def _inherited(key: ConfigKey, broker: Config) -> Value:
    for synonym in key.inherits:
        value = broker.value(synonym.name)
        if isinstance(value, int) and synonym.factor != 1:
            return value * synonym.factor if value >= 0 else -1
        if value is not None:
            return value
    return key.default


def validate(config: TopicConfig) -> None:
    """Refuse settings that contradict each other (Kafka: ``LogConfig.validate``)."""
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise ConfigError(
            "conflict topic config setting min.compaction.lag.ms "
            f"({config.min_compaction_lag_ms}) > max.compaction.lag.ms "
            f"({config.max_compaction_lag_ms})"
        )
    if config.remote_storage_enable:
        raise ConfigError(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )
