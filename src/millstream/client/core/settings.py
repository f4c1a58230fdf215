"""The settings of producer, consumer and admin, under the Java client's names.

A setting may be given in a mapping with dots (``{"linger.ms": 5}``) or as a keyword with
underscores (``linger_ms=5``). An unknown name and a value of the wrong type are errors; the error
for an unknown name suggests the nearest one. Numbers may be text, as in a properties file.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar, cast

from millstream.client.core.security_settings import ALIASES, SecuritySettings
from millstream.client.core.setting_types import (
    INT_MAX,
    LONG_MAX,
    boolean,
    choice,
    function,
    integer,
    milliseconds,
    optional_name,
    serializer,
    setting,
    text,
    tracing,
)
from millstream.client.settings import Address, parse_bootstrap_servers
from millstream.model.errors import ConfigError
from millstream.records.compression import Codec

S = TypeVar("S", bound=SecuritySettings)


def _addresses(value: object) -> tuple[Address, ...]:
    if isinstance(value, str):
        return parse_bootstrap_servers(value)
    if isinstance(value, Sequence) and all(isinstance(each, str) for each in value):
        return parse_bootstrap_servers(",".join(cast("Sequence[str]", value)))
    raise ValueError("it takes host:port,host:port or a list of them")


def _acks(value: object) -> int:
    known = {"all": -1, "-1": -1, "0": 0, "1": 1}
    if str(value).lower() not in known:
        raise ValueError("it takes 0, 1 or all")
    return known[str(value).lower()]


def _codec(value: object) -> Codec:
    if isinstance(value, Codec):
        return value
    return Codec.named(text(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings(SecuritySettings):
    """The common settings of producer, consumer and admin. Names ending in ``_ms`` are
    milliseconds.
    """

    bootstrap_servers: tuple[Address, ...] = setting(_addresses)
    client_id: str = setting(text, "millstream")
    client_rack: str = setting(text, "")
    request_timeout_ms: float = setting(milliseconds(most=INT_MAX), 30_000)
    retry_backoff_ms: float = setting(milliseconds(), 100)
    retry_backoff_max_ms: float = setting(milliseconds(), 1_000)
    reconnect_backoff_ms: float = setting(milliseconds(), 50)
    reconnect_backoff_max_ms: float = setting(milliseconds(), 1_000)
    connections_max_idle_ms: float = setting(milliseconds(), 540_000)
    socket_connection_setup_timeout_ms: float = setting(milliseconds(1), 10_000)
    socket_connection_setup_timeout_max_ms: float = setting(milliseconds(1), 30_000)
    send_buffer_bytes: int = setting(integer(-1), 131_072)
    receive_buffer_bytes: int = setting(integer(-1), 65_536)
    metadata_max_age_ms: float = setting(milliseconds(), 300_000)
    metadata_recovery_strategy: str = setting(choice("rebootstrap", "none"), "rebootstrap")
    metadata_recovery_rebootstrap_trigger_ms: float = setting(milliseconds(), 300_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedSettings(ClientSettings):
    """What producers and consumers tell of themselves; nothing unless it is set."""

    statistics_interval_ms: float = setting(milliseconds(), 0)
    """How often ``statistics_callback`` is called; 0 for never (librdkafka's setting)."""
    statistics_callback: object = setting(function, None)
    """Called with the client's statistics, on the client's thread or event loop."""
    tracing: object = setting(tracing, None)
    """True, or a TracerProvider of OpenTelemetry: spans of what is sent and read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings(ObservedSettings):
    """Settings of a producer (Kafka: ``ProducerConfig``)."""

    acks: int = setting(_acks, -1)
    batch_size: int = setting(integer(), 131_072)
    linger_ms: float = setting(milliseconds(), 5)
    buffer_memory: int = setting(integer(1, LONG_MAX), 33_554_432)
    max_block_ms: float = setting(milliseconds(), 60_000)
    max_request_size: int = setting(integer(), 1_048_576)
    max_in_flight_requests_per_connection: int = setting(integer(1), 5)
    retries: int = setting(integer(), INT_MAX)
    delivery_timeout_ms: float = setting(milliseconds(most=INT_MAX), 120_000)
    enable_idempotence: bool = setting(boolean, True)
    compression_type: Codec = field(default=Codec.NONE, metadata={"reader": _codec})
    compression_gzip_level: int = setting(integer(-1, 9), -1)
    compression_lz4_level: int = setting(integer(1, 17), 9)
    compression_zstd_level: int = setting(integer(-131_072, 22), 3)
    partitioner: object = setting(lambda value: value, None)
    """None as Java's default (KIP-794), ``"round_robin"``, or ``f(topic, key, value, count)``."""
    partitioner_ignore_keys: bool = setting(boolean, False)
    partitioner_adaptive_partitioning_enable: bool = setting(boolean, True)
    partitioner_availability_timeout_ms: float = setting(milliseconds(), 0)
    key_serializer: object = setting(serializer, None)
    value_serializer: object = setting(serializer, None)
    metadata_max_idle_ms: float = setting(milliseconds(5_000), 300_000)
    allow_auto_create_topics: bool = setting(boolean, True)
    transactional_id: str | None = setting(optional_name, None)
    transaction_timeout_ms: int = setting(integer(1), 60_000)

    @property
    def compression_level(self) -> int | None:
        """The level that is set for the codec in use; None is Kafka's default."""
        levels = {
            Codec.GZIP: self.compression_gzip_level,
            Codec.LZ4: self.compression_lz4_level,
            Codec.ZSTD: self.compression_zstd_level,
        }
        return levels.get(self.compression_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminSettings(ClientSettings):
    """Settings of an admin client (Kafka: ``AdminClientConfig``)."""

    default_api_timeout_ms: float = setting(milliseconds(most=INT_MAX), 60_000)
    retries: int = setting(integer(), INT_MAX)


def read_settings(
    kind: type[S], given: Mapping[str, object] | None = None, keywords: Mapping[str, object] = {}
) -> S:
    """Return the settings of ``kind`` from a mapping with dots and keywords with underscores.

    ConfigError for an unknown name (it says which is nearest), a value that does not fit, a name
    given twice, and a missing one without a default.
    """
    known = {each.name: each for each in fields(kind) if "reader" in each.metadata}
    values: dict[str, object] = {}
    for spelt, value in [*(given or {}).items(), *keywords.items()]:
        name = spelt.replace(".", "_")
        name = ALIASES.get(name, name)
        if name not in known:
            raise ConfigError(_unknown(spelt, list(known), dotted=spelt not in keywords))
        if name in values:
            raise ConfigError(f"{dotted(name)} is given twice")
        try:
            values[name] = known[name].metadata["reader"](value)
        except (ValueError, ConfigError) as error:
            shown = "…" if known[name].metadata.get("is_secret") else repr(value)
            raise ConfigError(f"{dotted(name)} = {shown}: {error}") from None
    missing = [name for name, each in known.items() if each.default is MISSING]
    for name in missing:
        if name not in values:
            raise ConfigError(f"{dotted(name)} is missing")
    return kind(**cast("dict[str, Any]", {**values, "given": frozenset(values)}))


def dotted(name: str) -> str:
    """Return a setting's name as Kafka writes it."""
    return name.replace("_", ".")


def _unknown(spelt: str, known: Sequence[str], *, dotted: bool) -> str:
    message = f"there is no setting {spelt!r}"
    near = difflib.get_close_matches(spelt.lower().replace(".", "_"), known, 1, 0.5)
    if not near:
        return message
    return f"{message}; the nearest is {near[0].replace('_', '.') if dotted else near[0]!r}"
