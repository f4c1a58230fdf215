"""Functions of the user that must run where the user waits: inside poll, commit or close.

The core runs on the client's loop, perhaps on another thread; a rebalance listener or a commit's
callback does not. The core queues them, whoever waits for the core runs them, and what depends on
them goes on when they have returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from millstream.model.deferred import Deferred
from millstream.model.topic import TopicPartition


@dataclass(frozen=True, slots=True, eq=False)
class UserCall:
    """Run ``function()`` where the user waits, then fill ``done`` on the loop, come what may.

    Under asyncio the function may return an awaitable, which is awaited.
    """

    function: Callable[[], object]
    done: Deferred[None]


PartitionsFunction: TypeAlias = Callable[[frozenset[TopicPartition]], object]


class RebalanceListener(Protocol):
    """Hears what a rebalance takes and gives. May commit, seek, pause (Kafka's names and rules).

    Called inside ``poll`` and ``close`` of the consumer; an exception is raised from there, and
    the rebalance goes on.
    """

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> object:
        """Partitions are about to go to others; offsets can still be committed."""

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> object:
        """Partitions came that were not there before, perhaps none."""

    def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> object:
        """Partitions went to others already: offsets cannot be committed any more."""


class Listener:
    """Calls a user's listener, whichever of the functions it has."""

    def __init__(self, target: RebalanceListener) -> None:
        self._target = target

    def revoked(self, partitions: Iterable[TopicPartition]) -> Callable[[], object]:
        """Return the call that tells of revoked partitions."""
        return self._call("on_partitions_revoked", partitions)

    def assigned(self, partitions: Iterable[TopicPartition]) -> Callable[[], object]:
        """Return the call that tells of new partitions."""
        return self._call("on_partitions_assigned", partitions)

    def lost(self, partitions: Iterable[TopicPartition]) -> Callable[[], object]:
        """Return the call that tells of lost partitions: without a function of its own, revoked."""
        has_own = hasattr(self._target, "on_partitions_lost")
        return self._call("on_partitions_lost" if has_own else "on_partitions_revoked", partitions)

    def _call(self, name: str, partitions: Iterable[TopicPartition]) -> Callable[[], object]:
        function: PartitionsFunction | None = getattr(self._target, name, None)
        topic_partitions = frozenset(partitions)
        return lambda: None if function is None else function(topic_partitions)
