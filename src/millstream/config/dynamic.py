"""The settings of a running broker: those it started with, and those changed since.

A dynamic setting stands for one broker or for all of them. Of several values of one setting the
nearest counts: this broker's, then the one for all brokers, then the file's, then the default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from millstream.config.broker import BrokerConfig, all_broker_keys
from millstream.config.value import format_value

ChangeListener = Callable[[BrokerConfig, BrokerConfig], None]
"""Called with the settings before and after a change."""


class ConfigSource(Enum):
    """Where a value comes from; the code is that of DescribeConfigs responses."""

    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


@dataclass(frozen=True, slots=True)
class SourcedValue:
    """The text of a setting and where it comes from."""

    name: str
    value: str | None
    source: ConfigSource


SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "log.roll.ms": ("log.roll.ms", "log.roll.hours"),
    "log.roll.hours": ("log.roll.ms", "log.roll.hours"),
    "log.roll.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "log.roll.jitter.hours": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "log.retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "log.retention.minutes": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "log.retention.hours": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
}
"""Settings that mean the same in other units (Kafka: ``brokerConfigSynonyms``)."""


class DynamicConfig:
    """The effective settings of this broker. ``current`` is replaced whole at each change."""

    def __init__(self, static: BrokerConfig) -> None:
        self.static = static
        self.current = static
        self.of_all_brokers: Mapping[str, str] = {}
        self.of_this_broker: Mapping[str, str] = {}
        self._listeners: list[ChangeListener] = []

    def on_change(self, listener: ChangeListener) -> None:
        """Call ``listener(before, after)`` after every change of the effective settings."""
        self._listeners.append(listener)

    def combined(
        self, *, of_all_brokers: Mapping[str, str], of_this_broker: Mapping[str, str]
    ) -> BrokerConfig:
        """Return what the settings would be; ConfigError when they cannot be."""
        return BrokerConfig({**self.static.overrides, **of_all_brokers, **of_this_broker})

    def update(
        self, *, of_all_brokers: Mapping[str, str], of_this_broker: Mapping[str, str]
    ) -> None:
        """Put in all dynamic settings anew and tell the listeners."""
        before = self.current
        self.current = self.combined(of_all_brokers=of_all_brokers, of_this_broker=of_this_broker)
        self.of_all_brokers = dict(of_all_brokers)
        self.of_this_broker = dict(of_this_broker)
        for listener in self._listeners:
            listener(before, self.current)

    def values_of(self, name: str, *, sensitive: bool = False) -> tuple[SourcedValue, ...]:
        """Return every value that a setting and its synonyms have, the one that counts first.

        Values of synonyms that come before the setting's own first value are left out (Kafka:
        ``ConfigHelper.configSynonyms``).
        """
        found = list(self._values_of(SYNONYMS.get(name, (name,)), sensitive))
        own = next((i for i, value in enumerate(found) if value.name == name), len(found))
        return tuple(found[own:])

    def _values_of(self, names: tuple[str, ...], sensitive: bool) -> Iterator[SourcedValue]:
        for texts, source in (
            (self.of_this_broker, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (self.of_all_brokers, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self.static.overrides, ConfigSource.STATIC_BROKER_CONFIG),
        ):
            for name in names:
                if name in texts:
                    yield SourcedValue(name, None if sensitive else texts[name], source)
        keys = all_broker_keys()
        for name in names:
            if name in keys and keys[name].default is not None:
                text = None if sensitive else format_value(keys[name].default)
                yield SourcedValue(name, text, ConfigSource.DEFAULT_CONFIG)
