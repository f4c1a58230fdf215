"""The settings of a running broker: those it started with, and those changed since.

A dynamic setting stands for one broker or for all of them. Of several values of one setting the
nearest counts: this broker's, then the one for all brokers, then the file's, then the default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from millstream.config.broker import BrokerConfig, all_broker_keys
from millstream.config.definition import PER_BROKER, READ_ONLY
from millstream.config.protection import protects, refuse_unprotected
from millstream.config.topic import validate
from millstream.config.value import format_value
from millstream.model.errors import ConfigError

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


_NOT_ZERO: Final = frozenset({"max.connections", "max.connection.creation.rate"})
"""Limits that keep everybody out at 0, who could raise them again too, and are refused then (Kafka:
``ListenerConnectionQuota``)."""


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
        dynamic = {**of_all_brokers, **of_this_broker}
        keys = all_broker_keys()
        known = {name: dynamic[name] for name in dynamic if name in keys or protects(name)}
        return BrokerConfig({**self.static.overrides, **known})

    def check(self, texts: Mapping[str, str], *, for_all_brokers: bool) -> None:
        """Raise ConfigError unless ``texts`` may be the dynamic settings of this broker, or of all
        (Kafka: ``DynamicBrokerConfig.validate``). Names that nobody knows are let through.
        """
        self.check_each(texts, for_all_brokers=for_all_brokers)
        if for_all_brokers:
            after = self.combined(of_all_brokers=texts, of_this_broker=self.of_this_broker)
        else:
            after = self.combined(of_all_brokers=self.of_all_brokers, of_this_broker=texts)
        validate(after.topic_defaults)

    def check_each(self, texts: Mapping[str, str], *, for_all_brokers: bool) -> None:
        """Raise ConfigError for what can be said of each text without the other settings of its
        broker: all that is known of a broker that is another one.
        """
        keys = all_broker_keys()
        known = {name: keys[name] for name in texts if name in keys}
        _refuse_some(
            "Cannot update these configs dynamically",
            (name for name, key in known.items() if key.mode is READ_ONLY),
        )
        _refuse_some(
            "These security configs can be dynamically updated only per-listener using the "
            "listener prefix",
            (name for name in known if name.startswith("ssl.")),
        )
        if for_all_brokers:
            _refuse_some(
                "Cannot update these configs at default cluster level, broker id must be specified",
                (name for name, key in known.items() if key.mode is PER_BROKER),
            )
        for name, key in known.items():
            if key.parse(texts[name]) == 0 and name in _NOT_ZERO:
                raise ConfigError(f"Invalid {name} 0")
        refuse_unprotected(texts)

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

    def update_as_far_as_can_be(
        self,
        *,
        of_all_brokers: Mapping[str, str],
        of_this_broker: Mapping[str, str],
        on_refused: Callable[[ConfigError], None],
    ) -> None:
        """Put in what is stored, as :meth:`update` does, without what contradicts the file of this
        broker or the rules of this version: ``on_refused`` is told, and the rest counts.
        """
        try:
            self.update(of_all_brokers=of_all_brokers, of_this_broker=of_this_broker)
        except ConfigError:
            usable: tuple[dict[str, str], dict[str, str]] = ({}, {})
            for texts, kept in zip((of_all_brokers, of_this_broker), usable, strict=True):
                for name, text in texts.items():
                    kept[name] = text
                    try:
                        self.combined(of_all_brokers=usable[0], of_this_broker=usable[1])
                    except ConfigError as error:
                        del kept[name]
                        on_refused(error)
            self.update(of_all_brokers=usable[0], of_this_broker=usable[1])

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


def _refuse_some(reason: str, names: Iterable[str]) -> None:
    refused = ", ".join(names)
    if refused:
        raise ConfigError(f"{reason}: [{refused}]")
