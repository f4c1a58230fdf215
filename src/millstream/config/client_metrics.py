"""Settings of a subscription to metrics of clients (KIP-714): which metrics, how often, of whom.

Kafka: ``ClientMetricsConfigs``. A subscription holds for a client that fits every pattern of
``match``; without any it holds for all clients.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from millstream.config.definition import ConfigKey
from millstream.config.validators import Range
from millstream.config.value import ConfigType
from millstream.model.errors import ConfigError

METRICS: Final = "metrics"
INTERVAL_MS: Final = "interval.ms"
MATCH: Final = "match"
ALL_METRICS: Final = "*"
DEFAULT_INTERVAL_MS: Final = 300_000

SELECTORS: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""What a pattern of ``match`` may be about."""

CLIENT_METRICS_KEYS: Final[Mapping[str, ConfigKey]] = MappingProxyType(
    {
        key.name: key
        for key in (
            ConfigKey(
                METRICS,
                ConfigType.LIST,
                (),
                None,
                "Names of metrics, or their beginnings; `*` for all. None means that none are "
                "wanted.",
            ),
            ConfigKey(
                INTERVAL_MS,
                ConfigType.INT,
                DEFAULT_INTERVAL_MS,
                Range(100, 3_600_000),
                "How often clients push, in milliseconds.",
            ),
            ConfigKey(
                MATCH,
                ConfigType.LIST,
                (),
                None,
                "Which clients: `name=regular expression`, separated by commas.",
            ),
        )
    }
)


def check_client_metrics(texts: Mapping[str, str]) -> None:
    """Raise ConfigError for settings that no subscription may have."""
    for name, text in texts.items():
        key = CLIENT_METRICS_KEYS.get(name)
        if key is None:
            raise ConfigError(f"Unknown client metrics configuration {name}")
        key.parse(text)
    patterns(texts.get(MATCH, ""))


def patterns(text: str) -> dict[str, re.Pattern[str]]:
    """Return the patterns of ``match`` by what they are about; ConfigError for a bad one."""
    found: dict[str, re.Pattern[str]] = {}
    for item in filter(None, (each.strip() for each in text.split(","))):
        name, is_pair, pattern = item.partition("=")
        name = name.strip()
        if not is_pair or name not in SELECTORS:
            raise ConfigError(f"Illegal client matching pattern: {item}")
        try:
            found[name] = re.compile(pattern.strip())
        except re.error as error:
            raise ConfigError(f"Illegal client matching pattern: {item}") from error
    return found
