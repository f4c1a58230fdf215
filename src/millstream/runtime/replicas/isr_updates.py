"""How a leader asks for another ISR: the proposal, and who carries it to the controller.

Only the controller writes an ISR (Kafka: ``AlterPartitionManager``, KIP-497). What comes back is
the state that the controller has written, or a KafkaError:

=============================  =================================================================
INELIGIBLE_REPLICA             a new member may not join: nothing was written
OPERATION_NOT_ATTEMPTED        the proposal never left this broker: nothing was written
INVALID_UPDATE_VERSION         the partition epoch is old: newer state is on its way
FENCED_LEADER_EPOCH            this broker leads no more
NOT_CONTROLLER,                nobody knows whether it was written
REQUEST_TIMED_OUT and others
=============================  =================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from millstream.model.deferred import Deferred
from millstream.model.leadership import IsrMember, LeaderRecoveryState, PartitionState
from millstream.model.offsets import LeaderEpoch
from millstream.model.topic import TopicId, TopicPartition


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """The ISR that a leader wants: each member with the broker epoch in which it was seen.

    ``partition_epoch`` is the one of the state on which the proposal rests.
    """

    topic_id: TopicId
    topic_partition: TopicPartition
    leader_epoch: LeaderEpoch
    partition_epoch: int
    isr: tuple[IsrMember, ...]
    recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED


class IsrProposer(Protocol):
    """Carries proposals to the controller."""

    def propose(self, proposal: IsrProposal) -> Deferred[PartitionState]:
        """Return the state as written; fails with a KafkaError of the table above.

        Always filled in the end, with REQUEST_TIMED_OUT when no controller answers.
        """


class StateReader(Protocol):
    """Reads what the metadata store itself says of a partition: for a broker that no controller
    reaches, or that is refused for long.
    """

    def read_state(self, topic_partition: TopicPartition) -> Deferred[PartitionState]:
        """Return the stored state, replicas included; fails with a MillstreamError."""
