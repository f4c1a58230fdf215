"""Callbacks of the user, which must run inside poll, commit or close.

The core runs on the client's loop, perhaps on another thread; a rebalance listener or a commit's
callback does not. The core queues them, the waiting call of the API runs them, and dependent
operations continue when they have returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from millstream.model.deferred import Deferred
from millstream.model.topic import TopicPartition


@dataclass(frozen=True, slots=True, eq=False)
class UserCall:
    """Run ``function()`` on the user's side, then complete ``done`` on the loop, even if it raises.

    Under asyncio the function may return an awaitable, which is awaited.
    """

    function: Callable[[], object]
    done: Deferred[None]


PartitionsFunction: TypeAlias = Callable[[frozenset[TopicPartition]], object]


class RebalanceListener(Protocol):
    """Listener of rebalances. It may commit, seek, pause (Kafka's names and rules).

    Called inside ``poll`` and ``close`` of the consumer; an exception is raised from there, and the
    rebalance continues.
    """

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> object:
        """Partitions are about to be revoked; offsets can still be committed."""

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> object:
        """Partitions were added, perhaps none."""

    def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> object:
        """Partitions were lost: offsets cannot be committed any more."""


class Listener:
    """Calls a user's listener, if it has the function."""

    def __init__(self, target: RebalanceListener) -> None:
        self._target = target

    def revoked(self, partitions: Iterable[TopicPartition]) -> Callable[[], object]:
        """Return the call for revoked partitions."""
        return self._call("on_partitions_revoked", partitions)

    def assigned(self, partitions: Iterable[TopicPartition]) -> Callable[[], object]:
        """Return the call for new partitions."""
        return self._call("on_partitions_assigned", partitions)

    def lost(self, partitions: Iterable[TopicPartition]) -> Callable[[], object]:
        """Return the call for lost partitions: without its own function, that for revoked ones."""
        has_own = hasattr(self._target, "on_partitions_lost")
        return self._call("on_partitions_lost" if has_own else "on_partitions_revoked", partitions)

    def _call(self, name: str, partitions: Iterable[TopicPartition]) -> Callable[[], object]:
        function: PartitionsFunction | None = getattr(self._target, name, None)
        topic_partitions = frozenset(partitions)
        return lambda: None if function is None else function(topic_partitions)
