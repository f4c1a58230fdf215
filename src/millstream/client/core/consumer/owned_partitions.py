"""The partitions that a member owns, and what its rebalance listener was told of them.

Partitions that are being revoked deliver no more records. The listener hears of a partition's end
only if it heard of its beginning.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from millstream.client.core.consumer.subscription import Subscription
from millstream.client.core.consumer.user_calls import Listener, RebalanceListener
from millstream.model.deferred import Deferred
from millstream.model.topic import TopicPartition


class OwnedPartitions:
    """The partitions of one member. ``run`` runs a function on the user's side."""

    def __init__(self, subscription: Subscription) -> None:
        self.run: Callable[[Callable[[], object]], Deferred[None]] = _run_at_once
        self._subscription = subscription
        self._listener: Listener | None = None
        self._told: frozenset[TopicPartition] = frozenset()
        """Partitions that were reported to the listener."""

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions that are assigned now."""
        return frozenset(self._subscription.partitions)

    def listen(self, listener: RebalanceListener | None) -> None:
        """Call another listener from now on."""
        self._listener = None if listener is None else Listener(listener)

    def stop_reading(self, topic_partitions: Iterable[TopicPartition] | None = None) -> None:
        """Return no more records of some partitions, or of all, until they are assigned again."""
        states = self._subscription.partitions
        for topic_partition in states if topic_partitions is None else topic_partitions:
            if topic_partition in states:
                states[topic_partition].revoking = True

    async def give_up(
        self, topic_partitions: Iterable[TopicPartition], *, lost: bool = False
    ) -> None:
        """Call the listener, then drop the partitions; ``lost``: others may own them already."""
        gone = frozenset(topic_partitions)
        self.stop_reading(gone)
        if not gone:
            return
        told = gone & self._told
        if self._listener is not None and told:
            self._told -= told
            await self.run(self._listener.lost(told) if lost else self._listener.revoked(told))
        self._subscription.set_partitions(
            [
                topic_partition
                for topic_partition in self._subscription.partitions
                if topic_partition not in gone
            ]
        )

    async def hand_over(
        self,
        revoked: frozenset[TopicPartition],
        *,
        at_poll: Callable[[], Awaitable[None]],
        commit: Callable[[Iterable[TopicPartition]], Awaitable[None]],
    ) -> None:
        """Stop reading, wait for the user's next poll, commit, and give the partitions up."""
        self.stop_reading(revoked)
        await at_poll()
        await commit(revoked)
        await self.give_up(revoked)

    async def tell_assigned(
        self, added: frozenset[TopicPartition], is_current: Callable[[], bool]
    ) -> None:
        """Tell the listener of added partitions, perhaps none, unless they are lost by then."""
        if self._listener is not None:
            await self.run(partial(self._tell, self._listener, added, is_current))

    def _tell(
        self, listener: Listener, added: frozenset[TopicPartition], is_current: Callable[[], bool]
    ) -> object:
        if not is_current():
            return None
        self._told |= added
        return listener.assigned(added)()


def _run_at_once(function: Callable[[], object]) -> Deferred[None]:
    function()
    return Deferred.of(None)
