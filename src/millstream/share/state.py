"""The state of a share partition, as its leader writes it to the share coordinator and reads it.

A share partition is a partition of a topic as one share group reads it. All records below its
*start offset* are finished for the group. Those from there on are described by *state batches*:
ranges of offsets with one delivery state and count each. Offsets at or above the start offset that
no batch covers are available and were never delivered. Kafka: ``PersisterStateBatch``,
``PartitionAllData``, ``SharePartitionKey``.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from millstream.model.topic import TopicId, topic_id_from_text, topic_id_to_text

UNINITIALIZED_START_OFFSET: Final = -1
"""No start offset was ever set: the leader takes the one of ``share.auto.offset.reset``."""

NO_DELIVERY_COMPLETE_COUNT: Final = -1
"""Nobody knows how many deliveries are completed (KIP-1226)."""

ANY_EPOCH: Final = -1
"""A leader or state epoch that is not compared."""

DELIVERY_AVAILABLE: Final = 0
"""To be delivered; with a count above 0, to be delivered again."""
DELIVERY_ACKNOWLEDGED: Final = 2
"""Finished: a consumer accepted it."""
DELIVERY_ARCHIVED: Final = 4
"""Finished: rejected, or delivered as often as allowed."""


class SharePartitionKey(NamedTuple):
    """A share partition: a group and a partition of a topic."""

    group_id: str
    topic_id: TopicId
    partition: int

    @property
    def coordinator_key(self) -> str:
        """The key by which FindCoordinator finds its share coordinator."""
        return f"{self.group_id}:{topic_id_to_text(self.topic_id)}:{self.partition}"


def parse_coordinator_key(text: str) -> SharePartitionKey:
    """Read a key of FindCoordinator; ValueError when it is none.

    It is read from the right: a group's id may contain colons.
    """
    try:
        group_id, topic_id, partition = text.rsplit(":", 2)
        key = SharePartitionKey(group_id, topic_id_from_text(topic_id), int(partition))
    except ValueError as error:
        raise ValueError(f"not the key of a share partition: {text!r}") from error
    if not group_id.strip() or not partition.lstrip("+-").isdecimal():
        raise ValueError(f"not the key of a share partition: {text!r}")
    return key


class StateBatch(NamedTuple):
    """Offsets from ``first_offset`` to ``last_offset``, both included, in one delivery state.

    ``delivery_state`` is one of the ``DELIVERY_`` numbers above. Order is that of the fields.
    """

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class ShareState(NamedTuple):
    """What the share coordinator keeps of a share partition.

    ``start_offset`` is :data:`UNINITIALIZED_START_OFFSET` until a leader writes one. The batches
    are in order and do not overlap.
    """

    state_epoch: int
    start_offset: int
    state_batches: tuple[StateBatch, ...] = ()


class ShareStateUpdate(NamedTuple):
    """What a leader writes.

    ``start_offset`` -1 leaves it as it is. ``state_batches`` are those that have changed; they may
    overlap each other and what is stored, see ``coordinator.share.state_batches`` for which wins.
    ``delivery_complete_count``: how many offsets at or above the start offset are finished; -1 when
    unknown.
    """

    state_epoch: int
    leader_epoch: int
    start_offset: int = UNINITIALIZED_START_OFFSET
    delivery_complete_count: int = NO_DELIVERY_COMPLETE_COUNT
    state_batches: tuple[StateBatch, ...] = ()


class ShareStateSummary(NamedTuple):
    """What DescribeShareGroupOffsets needs to know of a share partition."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
