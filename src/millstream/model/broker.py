"""Brokers and their endpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NewType

BrokerId = NewType("BrokerId", int)

NO_BROKER_EPOCH: Final = -1
"""Broker epochs are creation ids of a registration (czxid) and never negative."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a broker listens, under one listener name."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """A live broker: its id, its endpoints by listener name, its rack, and its epoch, which is the
    creation id of its registration and changes with every restart (KIP-380).
    """

    broker_id: BrokerId
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    epoch: int = NO_BROKER_EPOCH

    def listens(self, listener: str) -> bool:
        """Tell whether the broker has a listener of this name."""
        return any(endpoint.listener == listener for endpoint in self.endpoints)

    def endpoint(self, listener: str) -> Endpoint:
        """Return the endpoint of a listener; the first one if the broker has no listener of that
        name.
        """
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return endpoint
        return self.endpoints[0]
