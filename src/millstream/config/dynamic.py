"""The settings of a running broker: those it started with, and those changed since.

A dynamic setting holds for one broker or for all of them. Of several values of one setting the
nearest counts: this broker's, then the one for all brokers, then the file's, then the default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from millstream.config.broker import BrokerConfig, all_broker_keys, value_of
from millstream.config.definition import PER_BROKER, READ_ONLY
from millstream.config.protection import protects, refuse_unprotected, setting_of_any_listener
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


DYNAMIC_ONLY: Final = frozenset(
    {
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
"""Throttles, which Apache Kafka knows as dynamic settings alone: without a default to show, and
without a documentation (Kafka: ``QuotaConfig.brokerQuotaConfigs``)."""

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
"""A setting of all brokers together: see :attr:`DynamicConfig.shared`."""

_THREAD_POOLS: Final = (
    "background.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)
_CLEANER_THREADS: Final = "log.cleaner.threads"

_NOT_ZERO: Final = frozenset({"max.connections", "max.connection.creation.rate"})
"""Limits that at 0 would keep out everybody, administrators included, and are refused (Kafka:
``ListenerConnectionQuota``)."""


class DynamicConfig:
    """The effective settings of this broker. ``current`` is replaced whole at each change."""

    def __init__(self, static: BrokerConfig) -> None:
        self.static = static
        self.current = static
        self.of_all_brokers: Mapping[str, str] = {}
        self.of_this_broker: Mapping[str, str] = {}
        self._listeners: list[ChangeListener] = []
        self._checks: list[Callable[[BrokerConfig], None]] = []

    @property
    def shared(self) -> Mapping[str, str]:
        """The settings of all brokers. `min.insync.replicas` is always among them: the eligible
        leaders of a partition depend on it, so it is one value for the whole cluster. Until it is
        set dynamically it is that of the file (Kafka writes it there when it formats a cluster).
        """
        found = format_value(self.static.min_insync_replicas) or ""
        return {MIN_INSYNC_REPLICAS: found, **self.of_all_brokers}

    def on_change(self, listener: ChangeListener) -> None:
        """Call ``listener(before, after)`` after every change of the effective settings."""
        self._listeners.append(listener)

    def on_check(self, check: Callable[[BrokerConfig], None]) -> None:
        """Call ``check`` with what the settings of this broker would be, before they are changed:
        it raises ConfigError where that cannot be.
        """
        self._checks.append(check)

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
        (Kafka: ``DynamicBrokerConfig.validate``). Unknown names pass.
        """
        self.check_each(texts, for_all_brokers=for_all_brokers)
        if for_all_brokers:
            after = self.combined(of_all_brokers=texts, of_this_broker=self.of_this_broker)
        else:
            after = self.combined(of_all_brokers=self.of_all_brokers, of_this_broker=texts)
        validate(after.topic_defaults)
        _check_thread_pools(self.current, after)
        for check in self._checks:
            check(after)

    def check_each(self, texts: Mapping[str, str], *, for_all_brokers: bool) -> None:
        """Raise ConfigError for what can be said of each text without the other settings of its
        broker: all that is known of a broker that is another one.
        """
        keys = all_broker_keys()
        known = {name: keys[name] for name in texts if name in keys}
        of_listeners = {
            name: keys[base]
            for name in texts
            if (base := setting_of_any_listener(name)) is not None and base in keys
        }
        _refuse_some(
            "Cannot update these configs dynamically",
            (name for name, key in (known | of_listeners).items() if key.mode is READ_ONLY),
        )
        _refuse_some(
            "These security configs can be dynamically updated only per-listener using the "
            "listener prefix",
            (name for name in known if name.startswith("ssl.")),
        )
        if for_all_brokers:
            _refuse_some(
                "Cannot update these configs at default cluster level, broker id must be specified",
                (name for name, key in (known | of_listeners).items() if key.mode is PER_BROKER),
            )
        for name, key in of_listeners.items():
            key.parse(texts[name])
        for name, key in known.items():
            if key.parse(texts[name]) == 0 and name in _NOT_ZERO:
                raise ConfigError(f"Invalid {name} 0")
        refuse_unprotected(texts)

    def update(
        self, *, of_all_brokers: Mapping[str, str], of_this_broker: Mapping[str, str]
    ) -> None:
        """Replace all dynamic settings and call the listeners."""
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
        broker or the rules of this version: ``on_refused`` is called for each, and the rest counts.
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

    def values_of(
        self, name: str, *, sensitive: bool = False, base: str | None = None
    ) -> tuple[SourcedValue, ...]:
        """Return every value that a setting and its synonyms have, the one that counts first.
        ``base`` is what holds where a setting of a listener is not given.

        Values of synonyms that come before the setting's own first value are left out (Kafka:
        ``ConfigHelper.configSynonyms``).
        """
        names = SYNONYMS.get(name, (name,) if base is None else (name, base))
        found = list(self._values_of(names, sensitive))
        own = next((i for i, value in enumerate(found) if value.name == name), len(found))
        return tuple(found[own:])

    def _values_of(self, names: tuple[str, ...], sensitive: bool) -> Iterator[SourcedValue]:
        for texts, source in (
            (self.of_this_broker, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (self.shared, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self.static.overrides, ConfigSource.STATIC_BROKER_CONFIG),
        ):
            for name in names:
                if name in texts:
                    yield SourcedValue(name, None if sensitive else texts[name], source)
        keys = all_broker_keys()
        for name in names:
            if name in keys and name not in DYNAMIC_ONLY and keys[name].default is not None:
                text = None if sensitive else format_value(keys[name].default)
                yield SourcedValue(name, text, ConfigSource.DEFAULT_CONFIG)


def _check_thread_pools(before: BrokerConfig, after: BrokerConfig) -> None:
    """Refuse sizes of thread pools that are more than doubled or less than halved in one step
    (Kafka: ``DynamicThreadPool.validateReconfiguration`` and ``LogCleaner``'s).

    Millstream has no such pools; automation that works with Kafka finds the same steps here.
    """
    for name in _THREAD_POOLS:
        current, wanted = _sizes(name, before, after)
        failed = f"Dynamic thread count update validation failed for {name}={wanted}, value should"
        if wanted < current // 2:
            raise _invalid(f"{failed} be at least half the current value {current}")
        if wanted > 2 * current:
            raise _invalid(f"{failed} not be greater than double the current value {current}")
    current, wanted = _sizes(_CLEANER_THREADS, before, after)
    if wanted == current:
        return
    if wanted < 1:
        raise _invalid("Log cleaner threads should be at least 1")
    if wanted < current // 2:
        raise _invalid(
            f"Log cleaner threads cannot be reduced to less than half the current value {current}"
        )
    if wanted > 2 * current:
        raise _invalid(
            "Log cleaner threads cannot be increased to more than double the current value "
            f"{current}"
        )


def _sizes(name: str, before: BrokerConfig, after: BrokerConfig) -> tuple[int, int]:
    key = all_broker_keys()[name]
    current, wanted = value_of(before, key), value_of(after, key)
    assert isinstance(current, int)
    assert isinstance(wanted, int)
    return current, wanted


def _invalid(reason: str) -> ConfigError:
    """Return the refusal in the words that reach a client of Apache Kafka."""
    return ConfigError(
        f"Invalid value org.apache.kafka.common.config.ConfigException: {reason} for configuration "
        "Invalid dynamic configuration"
    )


def _refuse_some(reason: str, names: Iterable[str]) -> None:
    refused = ", ".join(names)
    if refused:
        raise ConfigError(f"{reason}: [{refused}]")
