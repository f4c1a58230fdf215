"""What a broker has of the machine that it runs on: time, workers, files, connections.

``server.broker`` makes the real one. `millstream.testing` passes one whose clock, disk and
connections a test steers, and which may look at requests before they are handled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from millstream.handlers.request import Handle
from millstream.handlers.routes import Route
from millstream.model.clock import Clock
from millstream.protocol.message import Request
from millstream.runtime.offload import Offload
from millstream.storage.environment import LogEnvironment

if TYPE_CHECKING:  # a broker on its own loads neither
    from millstream.keeper.links import OpenLink
    from millstream.runtime.broker_channels import Network

T = TypeVar("T")

Decode: TypeAlias = Callable[[memoryview, int], Request]

Around: TypeAlias = Callable[[Route, int, Decode, Handle], tuple[Decode, Handle]]
"""Is given an API in one version, with its decoder and its handler; returns those to be used."""


def as_it_is(part: T) -> T:
    """Change nothing."""
    return part


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The parts of a broker that touch its machine."""

    clock: Clock
    cluster_clock: Clock
    """The clock of what is agreed between processes: leases, sessions, time-outs of requests to
    other brokers. Its monotonic time and its timers are the machine's, whatever ``clock`` does.
    """
    offload: Offload
    environment: LogEnvironment
    network: Callable[[Network], Network] = as_it_is
    """Around the connections to other brokers."""
    links: Callable[[OpenLink], OpenLink] = as_it_is
    """Around the connections to a keeper."""
    around: Around | None = None
    """Around the handlers; None costs nothing."""
