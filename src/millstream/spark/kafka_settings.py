"""The options that start with `kafka.`: settings of the consumer inside the source.

A Java consumer has some hundred settings. Those that change what is read and how, and those that
protect the connection, are used; those that the stock connector fixes itself are refused as there.
The others tune parts of the Java consumer that have no counterpart here and are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn

from millstream.model.errors import ConfigError
from millstream.spark.security_options import security_settings

_FIXED_BY_THE_SOURCE: Final[Mapping[str, str]] = {
    "auto.offset.reset": "use startingOffsets",
    "enable.auto.commit": "the source commits nothing",
    "interceptor.classes": "the source runs no interceptors",
    "key.deserializer": "keys are binary; cast them in the query",
    "value.deserializer": "values are binary; cast them in the query",
}
_LARGEST_INT: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """The settings of the reading client."""

    bootstrap_servers: str
    """Empty if log directories are read without a broker."""
    client_id: str
    read_committed: bool
    request_timeout_ms: int
    fetch_max_bytes: int
    """Most bytes of log in one response; a larger batch is still returned whole."""
    check_crcs: bool
    security: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The settings that protect connections; they hold secrets."""


def parse_kafka_settings(
    settings: Mapping[str, str], *, needs_broker: bool = True
) -> KafkaSettings:
    """Read settings without their ``kafka.`` prefix; ConfigError names the wrong option."""
    for name in settings:
        _refuse_what_cannot_be(name)
    servers = settings.get("bootstrap.servers", "").strip()
    if not servers and needs_broker:
        raise ConfigError("option kafka.bootstrap.servers is missing")
    isolation = settings.get("isolation.level", "read_uncommitted").strip()
    if isolation not in ("read_committed", "read_uncommitted"):
        _refuse("isolation.level", "read_committed or read_uncommitted", isolation)
    per_partition = _count(settings, "max.partition.fetch.bytes", 8 * 1024 * 1024)
    return KafkaSettings(
        bootstrap_servers=servers,
        client_id=settings.get("client.id", "millstream-spark").strip(),
        read_committed=isolation == "read_committed",
        request_timeout_ms=_count(settings, "request.timeout.ms", 30_000),
        fetch_max_bytes=min(_count(settings, "fetch.max.bytes", 50 * 1024 * 1024), per_partition),
        check_crcs=_boolean(settings, "check.crcs", default=True),
        security=security_settings(settings),
    )


def _refuse_what_cannot_be(name: str) -> None:
    if name in _FIXED_BY_THE_SOURCE:
        raise ConfigError(f"option kafka.{name} is not supported: {_FIXED_BY_THE_SOURCE[name]}")


def _count(settings: Mapping[str, str], name: str, default: int) -> int:
    text = settings.get(name, str(default)).strip()
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(_LARGEST_INT))
    if not is_number or not 1 <= int(text) <= _LARGEST_INT:
        _refuse(name, f"a whole number, at least 1 and at most {_LARGEST_INT}", text[:100])
    return int(text)


def _boolean(settings: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = settings.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        _refuse(name, "true or false", text)
    return text == "true"


def _refuse(name: str, wanted: str, text: str) -> NoReturn:
    raise ConfigError(f"option kafka.{name} takes {wanted}, not {text!r}")
