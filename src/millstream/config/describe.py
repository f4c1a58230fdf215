"""Settings as DescribeConfigs answers them: the value, its source, and its synonyms.

Kafka: ``ConfigHelper.createTopicConfigEntry`` and ``createBrokerConfigEntry``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from millstream.config.broker import all_broker_keys, value_of
from millstream.config.client_metrics import CLIENT_METRICS_KEYS
from millstream.config.definition import READ_ONLY, ConfigKey
from millstream.config.dynamic import DYNAMIC_ONLY, ConfigSource, DynamicConfig, SourcedValue
from millstream.config.group import GROUP_KEYS
from millstream.config.topic import TopicConfig
from millstream.config.value import ConfigType, Value, format_value

_OF_LISTENER: Final = re.compile(r"listener\.name\.[^.]*\.(.*)", re.DOTALL)
_OF_MECHANISM: Final = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
"""Settings of a listener that have the name of a SASL mechanism in front."""


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting. ``value`` is None for a sensitive setting and for null; the first of
    ``synonyms`` is the value that counts.
    """

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    synonyms: tuple[SourcedValue, ...]
    type: ConfigType
    doc: str | None
    """None for a setting that Apache Kafka does not declare among a broker's."""


def describe_topic(config: TopicConfig, dynamic: DynamicConfig) -> Iterator[ConfigEntry]:
    """Yield a topic's settings; internal ones only where they were set."""
    for key in TopicConfig.keys.values():
        is_set = key.name in config.overrides
        if key.internal and not is_set:
            continue
        value = format_value(config.value(key.name))
        synonyms: tuple[SourcedValue, ...] = ()
        if key.inherits:
            synonyms = dynamic.values_of(key.inherits[0].name)
        if is_set:
            synonyms = (SourcedValue(key.name, value, ConfigSource.TOPIC_CONFIG), *synonyms)
        yield _entry(key, value, synonyms, read_only=False)


def describe_group(texts: Mapping[str, str], dynamic: DynamicConfig) -> Iterator[ConfigEntry]:
    """Yield a group's settings; the group need not exist (Kafka: ``createGroupConfigEntry``)."""
    for key in GROUP_KEYS.values():
        synonyms = dynamic.values_of(key.inherits[0].name) if key.inherits else ()
        value = synonyms[0].value if synonyms else format_value(key.default)
        if key.name in texts:
            value = texts[key.name]
            synonyms = (SourcedValue(key.name, value, ConfigSource.GROUP_CONFIG), *synonyms)
        yield _entry(key, value, synonyms, read_only=False)


def describe_client_metrics(texts: Mapping[str, str]) -> Iterator[ConfigEntry]:
    """Yield the settings of a subscription to metrics of clients, which need not exist (Kafka:
    ``createClientMetricsConfigEntry``).
    """
    for key in CLIENT_METRICS_KEYS.values():
        value, synonyms = format_value(key.default), ()
        if key.name in texts:
            value = texts[key.name]
            own = SourcedValue(key.name, value, ConfigSource.CLIENT_METRICS_CONFIG)
            yield _entry(key, value, (own,), read_only=False)
        else:
            yield _entry(key, value, synonyms, read_only=False)


def describe_broker(dynamic: DynamicConfig) -> Iterator[ConfigEntry]:
    """Yield the settings of this broker: all that Kafka has, and what else was set."""
    keys = all_broker_keys()
    overrides = {**dynamic.static.overrides, **dynamic.of_all_brokers, **dynamic.of_this_broker}
    for key in keys.values():
        if key.internal and key.name not in overrides:
            continue
        yield _broker_entry(key, value_of(dynamic.current, key), dynamic)
    for name, text in overrides.items():
        if name not in keys:
            yield _broker_entry(_key(name), text, dynamic)


def describe_all_brokers(dynamic: DynamicConfig) -> Iterator[ConfigEntry]:
    """Yield the dynamic settings that all brokers share."""
    for name, text in dynamic.shared.items():
        key = _key(name)
        value = None if key.is_sensitive else text
        shared = SourcedValue(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
        yield _entry(key, value, (shared,), read_only=key.mode is READ_ONLY)


def _key(name: str) -> ConfigKey:
    """Return the declaration of a setting that was given to a broker. A setting of a listener is
    declared like the setting without the prefix; one of a plug-in may be a secret (Kafka:
    ``KafkaConfig.configType`` and ``maybeSensitive``).
    """
    keys = all_broker_keys()
    if name in keys:
        return keys[name]
    kind = ConfigType.UNKNOWN
    base = _without_listener(name)
    if base is not None and base in keys:
        kind = keys[base].type
    return ConfigKey(name, kind, None, effective=False, kafka=False)


def _without_listener(name: str) -> str | None:
    """Return the name without the prefix of a listener and a mechanism; None where it has none."""
    listener = _OF_LISTENER.fullmatch(name)
    if listener is None:
        return None
    return next(filter(listener[1].endswith, _OF_MECHANISM), listener[1])


def _broker_entry(key: ConfigKey, value: Value, dynamic: DynamicConfig) -> ConfigEntry:
    base = _without_listener(key.name)
    synonyms = dynamic.values_of(key.name, sensitive=key.is_sensitive, base=base)
    text = None if key.is_sensitive else format_value(value)
    return _entry(key, text, synonyms, read_only=key.mode is READ_ONLY)


def _entry(
    key: ConfigKey, value: str | None, synonyms: tuple[SourcedValue, ...], *, read_only: bool
) -> ConfigEntry:
    return ConfigEntry(
        name=key.name,
        value=value,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        read_only=read_only,
        sensitive=key.is_sensitive,
        synonyms=synonyms,
        type=key.type,
        doc=None if key.name in DYNAMIC_ONLY else key.doc,
    )
