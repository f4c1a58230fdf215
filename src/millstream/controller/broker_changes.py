"""Which brokers joined, left or restarted: the difference of two lists of registrations.

Watches fold changes, so a broker that restarted shows only as another creation id: it counts as
having left and joined again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from millstream.controller.context import LiveBroker
from millstream.model.broker import BrokerId


@dataclass(frozen=True, slots=True)
class BrokerChanges:
    """``left`` are gone; ``joined`` are new. A broker that restarted is in both."""

    left: frozenset[BrokerId]
    joined: tuple[LiveBroker, ...]

    @property
    def joined_ids(self) -> frozenset[BrokerId]:
        """The ids of the brokers that joined."""
        return frozenset(each.node.broker_id for each in self.joined)

    def __bool__(self) -> bool:
        return bool(self.left or self.joined)


def broker_changes(
    known: Mapping[BrokerId, LiveBroker], registered: Iterable[LiveBroker]
) -> BrokerChanges:
    """Return the difference between the known brokers and those that are registered now."""
    found = {each.node.broker_id: each for each in registered}
    left = frozenset(
        broker_id
        for broker_id, broker in known.items()
        if broker_id not in found or found[broker_id].node.epoch != broker.node.epoch
    )
    joined = tuple(
        broker for broker_id, broker in found.items() if broker_id not in known or broker_id in left
    )
    return BrokerChanges(left, joined)
