"""Settings that may be given for one listener, or for one SASL mechanism of it.

The nearest counts: ``listener.name.<listener>.<mechanism>.<name>``, then
``listener.name.<listener>.<name>``, then ``<name>``. Listener and mechanism are in small letters
there (Kafka: ``AbstractConfig.valuesWithPrefixOverride``, ``ListenerName.saslMechanismPrefix``).
"""

from __future__ import annotations

from dataclasses import replace

from millstream.config.broker import BrokerConfig
from millstream.config.value import Value


def setting_of_listener(
    config: BrokerConfig, listener: str, name: str, *, mechanism: str = ""
) -> Value:
    """Return the value of a setting for a listener; ConfigError names the text that is wrong."""
    key = config.keys[name]
    for full_name in prefixed_names(listener, name, mechanism=mechanism):
        if full_name in config.overrides:
            return replace(key, name=full_name).parse(config.overrides[full_name])
    return config.value(name)


def prefixed_names(listener: str, name: str, *, mechanism: str = "") -> tuple[str, ...]:
    """Return the names under which a setting may be given for a listener, the nearest first."""
    of_listener = f"listener.name.{listener.lower()}."
    names = (of_listener + name,)
    return (f"{of_listener}{mechanism.lower()}.{name}", *names) if mechanism else names
