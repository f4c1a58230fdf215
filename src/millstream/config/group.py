"""Settings of a group: Kafka's names, each inherited from a broker setting (KIP-848, KIP-1222).

A group need not exist to have settings. Bounds are the broker's (``group.consumer.min…``): they are
checked when a setting is changed, and a stored value that later leaves them counts as the nearest
bound. Kafka: ``GroupConfig``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from millstream.config.broker import BrokerConfig
from millstream.config.definition import ConfigKey, Synonym
from millstream.config.offset_reset import OffsetResetText
from millstream.config.validators import at_least, one_of
from millstream.config.value import ConfigType
from millstream.model.errors import ConfigError

CONSUMER_SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
CONSUMER_HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
CONSUMER_ASSIGNMENT_INTERVAL: Final = "consumer.assignment.interval.ms"

SHARE_SESSION_TIMEOUT: Final = "share.session.timeout.ms"
SHARE_HEARTBEAT_INTERVAL: Final = "share.heartbeat.interval.ms"
SHARE_ASSIGNMENT_INTERVAL: Final = "share.assignment.interval.ms"
SHARE_DELIVERY_COUNT_LIMIT: Final = "share.delivery.count.limit"
SHARE_PARTITION_MAX_RECORD_LOCKS: Final = "share.partition.max.record.locks"
SHARE_RECORD_LOCK_DURATION: Final = "share.record.lock.duration.ms"
SHARE_AUTO_OFFSET_RESET: Final = "share.auto.offset.reset"
SHARE_ISOLATION_LEVEL: Final = "share.isolation.level"
SHARE_RENEW_ACKNOWLEDGE: Final = "share.renew.acknowledge.enable"
DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"
DEAD_LETTER_COPY_RECORD: Final = "errors.deadletterqueue.copy.record.enable"


class Bounds(NamedTuple):
    """The broker settings between which a setting of a group has to be."""

    lowest: str
    highest: str


def _key(name: str, default: int, minimum: int, doc: str) -> ConfigKey:
    inherited = Synonym(f"group.{name}")
    return ConfigKey(name, ConfigType.INT, default, at_least(minimum), doc, inherits=(inherited,))


def _by_name(*keys: ConfigKey) -> Mapping[str, ConfigKey]:
    return MappingProxyType({key.name: key for key in keys})


GROUP_KEYS: Final[Mapping[str, ConfigKey]] = _by_name(
    _key(
        CONSUMER_HEARTBEAT_INTERVAL,
        5_000,
        1,
        "Time in milliseconds between two heartbeats of a member of the consumer group.",
    ),
    _key(
        CONSUMER_SESSION_TIMEOUT,
        45_000,
        1,
        "Time in milliseconds without a heartbeat after which a member of the consumer group is "
        "removed.",
    ),
    _key(
        CONSUMER_ASSIGNMENT_INTERVAL,
        1_000,
        0,
        "Time in milliseconds between two target assignments of the consumer group.",
    ),
    _key(
        SHARE_HEARTBEAT_INTERVAL,
        5_000,
        1,
        "Time in milliseconds between two heartbeats of a member of the share group.",
    ),
    _key(
        SHARE_SESSION_TIMEOUT,
        45_000,
        1,
        "Time in milliseconds without a heartbeat after which a member of the share group is "
        "removed.",
    ),
    _key(
        SHARE_ASSIGNMENT_INTERVAL,
        1_000,
        0,
        "Time in milliseconds between two target assignments of the share group.",
    ),
    _key(
        SHARE_RECORD_LOCK_DURATION,
        30_000,
        1_000,
        "Time in milliseconds that a record is locked for the consumer that acquired it.",
    ),
    _key(
        SHARE_DELIVERY_COUNT_LIMIT,
        5,
        2,
        "Deliveries of a record to the share group before it is archived.",
    ),
    _key(
        SHARE_PARTITION_MAX_RECORD_LOCKS,
        2_000,
        100,
        "Records of a share partition that may be locked at once.",
    ),
    ConfigKey(
        SHARE_AUTO_OFFSET_RESET,
        ConfigType.STRING,
        "latest",
        OffsetResetText(),
        "Where the share group begins to read a partition of which it knows nothing.",
    ),
    ConfigKey(
        SHARE_ISOLATION_LEVEL,
        ConfigType.STRING,
        "read_uncommitted",
        one_of("read_committed", "read_uncommitted"),
        "Whether records of open transactions wait and aborted ones are left out.",
    ),
    ConfigKey(
        SHARE_RENEW_ACKNOWLEDGE,
        ConfigType.BOOLEAN,
        True,
        None,
        "Whether consumers may renew the locks of records.",
    ),
    ConfigKey(
        DEAD_LETTER_TOPIC,
        ConfigType.STRING,
        "",
        None,
        "Topic that gets what the share group gives up: rejected records, and those delivered as "
        "often as allowed. Empty: none (KIP-1191, with `share.version` 2).",
    ),
    ConfigKey(
        DEAD_LETTER_COPY_RECORD,
        ConfigType.BOOLEAN,
        False,
        None,
        "Whether a dead letter has the key and the value of its record, or headers alone.",
    ),
)
"""Every setting of a group by its name."""

BOUNDS: Final[Mapping[str, Bounds]] = MappingProxyType(
    {
        CONSUMER_SESSION_TIMEOUT: Bounds(
            "group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"
        ),
        CONSUMER_HEARTBEAT_INTERVAL: Bounds(
            "group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"
        ),
        CONSUMER_ASSIGNMENT_INTERVAL: Bounds(
            "group.consumer.min.assignment.interval.ms", "group.consumer.max.assignment.interval.ms"
        ),
        SHARE_SESSION_TIMEOUT: Bounds(
            "group.share.min.session.timeout.ms", "group.share.max.session.timeout.ms"
        ),
        SHARE_HEARTBEAT_INTERVAL: Bounds(
            "group.share.min.heartbeat.interval.ms", "group.share.max.heartbeat.interval.ms"
        ),
        SHARE_ASSIGNMENT_INTERVAL: Bounds(
            "group.share.min.assignment.interval.ms", "group.share.max.assignment.interval.ms"
        ),
        SHARE_RECORD_LOCK_DURATION: Bounds(
            "group.share.min.record.lock.duration.ms", "group.share.max.record.lock.duration.ms"
        ),
        SHARE_DELIVERY_COUNT_LIMIT: Bounds(
            "group.share.min.delivery.count.limit", "group.share.max.delivery.count.limit"
        ),
        SHARE_PARTITION_MAX_RECORD_LOCKS: Bounds(
            "group.share.min.partition.max.record.locks",
            "group.share.max.partition.max.record.locks",
        ),
    }
)

LARGER_THAN: Final[Mapping[str, str]] = MappingProxyType(
    {
        CONSUMER_SESSION_TIMEOUT: CONSUMER_HEARTBEAT_INTERVAL,
        SHARE_SESSION_TIMEOUT: SHARE_HEARTBEAT_INTERVAL,
    }
)
"""A setting that has to be larger than another one of the same group."""


def check_group_config(texts: Mapping[str, str], broker: BrokerConfig) -> None:
    """Raise ConfigError unless ``texts`` may be the settings of a group."""
    values: dict[str, int] = {}
    for name, text in texts.items():
        key = GROUP_KEYS.get(name)
        if key is None:
            raise ConfigError(f"Unknown group config name: {name}")
        value = key.parse(text)
        if name == DEAD_LETTER_TOPIC and text.startswith("__"):
            raise ConfigError(f"{name}: DLQ topic name must not start with '__'")
        if name in BOUNDS:
            assert isinstance(value, int)
            _check_bounds(name, value, broker)
            values[name] = value
    for name, other in LARGER_THAN.items():
        if name in values or other in values:
            larger = values.get(name, _inherited(name, broker))
            if larger <= values.get(other, _inherited(other, broker)):
                raise ConfigError(f"{name} must be greater than {other}")


def _check_bounds(name: str, value: int, broker: BrokerConfig) -> None:
    lowest, highest = BOUNDS[name]
    if value < _number(lowest, broker):
        raise ConfigError(f"{name} must be greater than or equal to {lowest}")
    if value > _number(highest, broker):
        raise ConfigError(f"{name} must be less than or equal to {highest}")


def effective_number(name: str, texts: Mapping[str, str], broker: BrokerConfig) -> int:
    """Return the value of a bounded setting of a group."""
    if name not in texts:
        return _inherited(name, broker)
    value = GROUP_KEYS[name].parse(texts[name])
    assert isinstance(value, int)
    lowest, highest = BOUNDS[name]
    return max(_number(lowest, broker), min(value, _number(highest, broker)))


def _inherited(name: str, broker: BrokerConfig) -> int:
    return _number(GROUP_KEYS[name].inherits[0].name, broker)


def _number(name: str, broker: BrokerConfig) -> int:
    value = broker.value(name)
    assert isinstance(value, int)
    return value
