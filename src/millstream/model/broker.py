"""Brokers as others see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

BrokerId = NewType("BrokerId", int)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a broker listens, under one listener name."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """A live broker: its id, its endpoints by listener name, and its rack."""

    broker_id: BrokerId
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None

    def endpoint(self, listener: str) -> Endpoint:
        """Return the endpoint of a listener; a name that the broker lacks gives its first one."""
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return endpoint
        return self.endpoints[0]
