"""Validates the ISR that a leader proposes. The checks, in order (Kafka:
``ReplicationControlManager.alterPartition``, KIP-497, KIP-841):

====================================================  ==========================================
the sender is live, with the broker epoch it names    STALE_BROKER_EPOCH
it leads, in the leader epoch it names                FENCED_LEADER_EPOCH, NOT_CONTROLLER
the ISR already is as proposed                        success: nothing is written
it knows the newest partition epoch                   INVALID_UPDATE_VERSION, NOT_CONTROLLER
every new member lives, with the broker epoch that    INELIGIBLE_REPLICA
the leader saw, and is not about to stop
====================================================  ==========================================

NOT_CONTROLLER is returned to a leader with newer state than this controller has: there must be a
newer controller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from millstream.controller.context import ControllerContext
from millstream.controller.election import with_isr
from millstream.model.broker import NO_BROKER_EPOCH, BrokerId
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.leadership import IsrMember, LeaderRecoveryState, PartitionState
from millstream.model.offsets import LeaderEpoch
from millstream.model.topic import TopicId


@dataclass(frozen=True, slots=True)
class WantedIsr:
    """The ISR that a leader proposes for one partition."""

    topic_id: TopicId
    index: int
    leader_epoch: LeaderEpoch
    partition_epoch: int
    isr: Sequence[IsrMember]
    recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED


def check_sender(context: ControllerContext, broker_id: BrokerId, broker_epoch: int) -> None:
    """Raise STALE_BROKER_EPOCH unless the sender is registered with the broker epoch that it
    names.
    """
    known = context.broker_epoch(broker_id)
    if known == NO_BROKER_EPOCH or known != broker_epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {broker_id} is registered with epoch {known}, not {broker_epoch}",
        )


def plan_isr(
    context: ControllerContext,
    sender: BrokerId,
    wanted: WantedIsr,
    *,
    min_insync_replicas: int,
) -> PartitionState:
    """Return the state to write, or the present object if it already is as proposed.

    Raises the KafkaError of the table. The sender was checked before.
    """
    state = _state(context, wanted)
    _check_leader(state, sender, wanted)
    members = tuple(each.broker_id for each in wanted.isr)
    if set(members) == set(state.isr) and wanted.recovery_state is state.leader_recovery_state:
        return state
    if wanted.partition_epoch != state.partition_epoch:
        newer = wanted.partition_epoch > state.partition_epoch
        raise KafkaError(
            ErrorCode.NOT_CONTROLLER if newer else ErrorCode.INVALID_UPDATE_VERSION,
            f"the partition epoch is {state.partition_epoch}, not {wanted.partition_epoch}",
        )
    _check_members(context, state, wanted)
    after = with_isr(
        state,
        tuple(each for each in state.replicas if each in members),
        min_insync_replicas=min_insync_replicas,
        epochs=[each for each in wanted.isr if each.broker_id not in state.isr],
    )
    return replace(
        after,
        leader_recovery_state=wanted.recovery_state,
        partition_epoch=state.partition_epoch + 1,
        controller_epoch=context.controller_epoch,
    )


def _state(context: ControllerContext, wanted: WantedIsr) -> PartitionState:
    topic = context.topic_by_id(wanted.topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    if not 0 <= wanted.index < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic.partitions[wanted.index]


def _check_leader(state: PartitionState, sender: BrokerId, wanted: WantedIsr) -> None:
    if wanted.leader_epoch > state.leader_epoch:
        raise KafkaError(
            ErrorCode.NOT_CONTROLLER, f"leader epoch {wanted.leader_epoch} is not known here"
        )
    if wanted.leader_epoch < state.leader_epoch or state.leader != sender:
        raise KafkaError(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"broker {state.leader} leads in epoch {state.leader_epoch}",
        )


def _check_members(context: ControllerContext, state: PartitionState, wanted: WantedIsr) -> None:
    members = [each.broker_id for each in wanted.isr]
    if (
        state.leader not in members
        or len(set(members)) != len(members)
        or not set(members) <= set(state.replicas)
    ):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{members} is no valid ISR of {state.replicas}"
        )
    if wanted.recovery_state is LeaderRecoveryState.RECOVERING and (
        len(members) > 1 or state.leader_recovery_state is LeaderRecoveryState.RECOVERED
    ):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a leader that recovers is alone in its ISR")
    for member in wanted.isr:
        if member.broker_id in state.isr:
            continue
        epoch = context.broker_epoch(member.broker_id)
        if epoch == NO_BROKER_EPOCH:
            reason = "is not alive"
        elif epoch != member.broker_epoch:
            reason = f"is registered with epoch {epoch}, not {member.broker_epoch}"
        elif member.broker_id in context.shutting_down:
            reason = "is about to stop"
        else:
            continue
        raise KafkaError(ErrorCode.INELIGIBLE_REPLICA, f"broker {member.broker_id} {reason}")
