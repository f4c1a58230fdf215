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
from millstream.config.validators import at_least
from millstream.config.value import ConfigType
from millstream.model.errors import ConfigError

CONSUMER_SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
CONSUMER_HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
CONSUMER_ASSIGNMENT_INTERVAL: Final = "consumer.assignment.interval.ms"


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
    }
)

LARGER_THAN: Final[Mapping[str, str]] = MappingProxyType(
    {CONSUMER_SESSION_TIMEOUT: CONSUMER_HEARTBEAT_INTERVAL}
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
