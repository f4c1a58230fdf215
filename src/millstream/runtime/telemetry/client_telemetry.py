"""What clients push of their own metrics (KIP-714), and who is asked for which.

Subscriptions are entities (``EntityKind.CLIENT_METRICS``), which the controller keeps and every
broker has. A client is asked for the metrics of all that it fits, at the smallest of their
intervals. Its newest values are kept until it ends, or has pushed nothing for three intervals.
Kafka: ``ClientMetricsManager``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from crc32c import crc32c

from millstream.config.client_metrics import (
    ALL_METRICS,
    DEFAULT_INTERVAL_MS,
    INTERVAL_MS,
    MATCH,
    METRICS,
    patterns,
)
from millstream.model.clock import Clock
from millstream.model.entities import EntitiesView, EntityKind, EntityValue
from millstream.model.errors import ConfigError, ErrorCode, KafkaError
from millstream.runtime.telemetry.otlp import Point

MAX_CLIENTS: Final = 1_000
MAX_SERIES_OF_A_CLIENT: Final = 200
MAX_ATTRIBUTES: Final = 16
MAX_TEXT: Final = 200
"""Of each name and text that a client gives so many characters are kept."""
_LOST_INTERVALS: Final = 3
_WORDS: Final = struct.Struct(">IIII")


@dataclass(frozen=True, slots=True)
class Client:
    """A client that asks or pushes."""

    instance_id: bytes
    client_id: str
    software_name: str
    software_version: str
    address: str
    port: int

    def selected(self) -> dict[str, str]:
        """Return what patterns of ``match`` are about."""
        return {
            "client_instance_id": instance_text(self.instance_id),
            "client_id": self.client_id,
            "client_software_name": self.software_name,
            "client_software_version": self.software_version,
            "client_source_address": self.address,
            "client_source_port": str(self.port),
        }


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a client is asked for."""

    metrics: tuple[str, ...]
    interval_ms: int
    subscription_id: int

    def names(self, metric: str) -> bool:
        """Tell whether a metric is one of them, or begins like one."""
        return self.metrics == (ALL_METRICS,) or metric.startswith(self.metrics)


@dataclass(frozen=True, slots=True)
class _Subscription:
    metrics: tuple[str, ...]
    interval_ms: int
    match: dict[str, re.Pattern[str]]

    def fits(self, client: dict[str, str]) -> bool:
        return all(pattern.fullmatch(client[name]) for name, pattern in self.match.items())


@dataclass(slots=True)
class Pushed:
    """The newest values of one client."""

    client: Client
    until_ms: float
    points: dict[tuple[str, tuple[tuple[str, str], ...]], float] = field(default_factory=dict)


class ClientTelemetry:
    """Subscriptions, and what clients have pushed to this broker."""

    def __init__(self, entities: EntitiesView, clock: Clock) -> None:
        self._entities = entities
        self._clock = clock
        self._pushed: dict[bytes, Pushed] = {}
        self.accepted = 0
        self.refused = 0
        self._subscriptions: list[_Subscription] = []
        entities.watch(EntityKind.CLIENT_METRICS, self._changed)
        self._changed(())

    def wanted_of(self, client: Client) -> Wanted:
        """Return what a client is asked for."""
        selected = client.selected()
        fitting = [each for each in self._subscriptions if each.fits(selected)]
        names = sorted({name for each in fitting for name in each.metrics})
        if ALL_METRICS in names:
            names = [ALL_METRICS]
        interval_ms = min((each.interval_ms for each in fitting), default=DEFAULT_INTERVAL_MS)
        number = crc32c(f"{names}{interval_ms}".encode())
        for word in _WORDS.unpack(client.instance_id):
            number ^= word
        number -= (1 << 32) if number >= 1 << 31 else 0
        return Wanted(tuple(names), interval_ms, number)

    def take(self, client: Client, points: Iterable[Point], *, terminating: bool) -> None:
        """Keep what a client has pushed of what it is asked for, in place of what it pushed before.

        THROTTLING_QUOTA_EXCEEDED where there are too many clients.
        """
        self._forget_lost()
        wanted = self.wanted_of(client)
        if terminating or not wanted.metrics:
            self._pushed.pop(client.instance_id, None)
            self.accepted += 1
            return
        if client.instance_id not in self._pushed and len(self._pushed) >= MAX_CLIENTS:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many clients push metrics")
        until_ms = self._clock.monotonic_ms() + _LOST_INTERVALS * wanted.interval_ms
        pushed = Pushed(client, until_ms)
        for point in points:
            if len(pushed.points) == MAX_SERIES_OF_A_CLIENT:
                break
            if wanted.names(point.name):
                attributes = point.attributes[:MAX_ATTRIBUTES]
                named = tuple((key[:MAX_TEXT], text[:MAX_TEXT]) for key, text in attributes)
                pushed.points[point.name[:MAX_TEXT], named] = point.value
        self._pushed[client.instance_id] = pushed
        self.accepted += 1

    def pushed(self) -> Iterator[Pushed]:
        """Yield what is kept of each client."""
        self._forget_lost()
        return iter(tuple(self._pushed.values()))

    def _forget_lost(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for instance_id in [key for key, each in self._pushed.items() if each.until_ms < now_ms]:
            del self._pushed[instance_id]

    def _changed(self, _: Iterable[str]) -> None:
        values = self._entities.all(EntityKind.CLIENT_METRICS).values()
        self._subscriptions = [found for each in values if (found := _subscription(each))]


def _subscription(texts: EntityValue) -> _Subscription | None:
    """Return what the settings of a subscription say; None where they say nothing."""
    names = tuple(filter(None, (name.strip() for name in texts.get(METRICS, "").split(","))))
    try:
        return _Subscription(
            names, int(texts.get(INTERVAL_MS, DEFAULT_INTERVAL_MS)), patterns(texts.get(MATCH, ""))
        )
    except (ConfigError, ValueError):  # written by another version
        return None


def instance_text(instance_id: bytes) -> str:
    """Return the id of a client as Kafka writes it: 22 characters of base64url."""
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(instance_id).decode().rstrip("=")
