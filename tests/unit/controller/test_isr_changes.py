"""The controller's checks of a proposed ISR, each in its turn (KIP-497, KIP-841, KIP-903)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.controller.states import EPOCH, ids, members, state

from millstream.controller.context import ControllerContext, LiveBroker, TopicState
from millstream.controller.isr_changes import WantedIsr, check_sender, plan_isr
from millstream.model.broker import BrokerId, BrokerNode, Endpoint
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.leadership import IsrMember, LeaderRecoveryState, PartitionState
from millstream.model.topic import TopicId

TOPIC = TopicId(bytes(range(16)))
LEADER = BrokerId(1)
PRESENT = state((1, 2, 3), leader=1, isr=(1, 2))
WANTED = WantedIsr(TOPIC, 0, 7, 20, members(1, 2, 3))


def context(present: PartitionState = PRESENT) -> ControllerContext:
    made = ControllerContext(controller_epoch=EPOCH)
    made.put_topic(TopicState("t", TOPIC, (present,), {}))
    for number in (1, 2, 3):
        endpoints = (Endpoint("PLAINTEXT", "h", number),)
        made.put_broker(LiveBroker(BrokerNode(BrokerId(number), endpoints, None, 100 + number)))
    return made


def plan(wanted: WantedIsr, made: ControllerContext | None = None) -> PartitionState:
    return plan_isr(made or context(), LEADER, wanted, min_insync_replicas=2)


def refusal(wanted: WantedIsr, made: ControllerContext | None = None) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        plan(wanted, made)
    return raised.value.error


def test_a_member_that_caught_up_comes_in() -> None:
    after = plan(WANTED)
    assert (after.isr, after.leader, after.leader_epoch) == ((1, 2, 3), 1, 7)
    assert (after.partition_epoch, after.controller_epoch) == (21, EPOCH)
    assert after.isr_broker_epochs == members(1, 2, 3)


def test_a_removed_isr_member_may_become_an_elr_member() -> None:
    after = plan(replace(WANTED, isr=members(1)))
    assert (after.isr, after.elr) == ((1,), (2,))


def test_a_sender_has_to_live_with_the_epoch_it_names() -> None:
    check_sender(context(), LEADER, 101)
    for broker_id, epoch in ((1, 100), (1, 102), (9, 109), (9, -1)):
        with pytest.raises(KafkaError, match="STALE_BROKER_EPOCH"):
            check_sender(context(), BrokerId(broker_id), epoch)


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (replace(WANTED, topic_id=TopicId(bytes(16))), ErrorCode.UNKNOWN_TOPIC_ID),
        (replace(WANTED, index=1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (replace(WANTED, leader_epoch=6), ErrorCode.FENCED_LEADER_EPOCH),
        (replace(WANTED, leader_epoch=8), ErrorCode.NOT_CONTROLLER),
        (replace(WANTED, partition_epoch=19), ErrorCode.INVALID_UPDATE_VERSION),
        (replace(WANTED, partition_epoch=21), ErrorCode.NOT_CONTROLLER),
        (replace(WANTED, isr=members(2, 3)), ErrorCode.INVALID_REQUEST),
        (replace(WANTED, isr=members(1, 2, 4)), ErrorCode.INVALID_REQUEST),
        (replace(WANTED, isr=members(1, 3, 3)), ErrorCode.INVALID_REQUEST),
        (
            replace(WANTED, isr=(*members(1, 2), IsrMember(BrokerId(3), 99))),
            ErrorCode.INELIGIBLE_REPLICA,
        ),
        (
            replace(WANTED, isr=(*members(1, 2), IsrMember(BrokerId(3)))),
            ErrorCode.INELIGIBLE_REPLICA,
        ),
        (
            replace(WANTED, recovery_state=LeaderRecoveryState.RECOVERING),
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
def test_what_cannot_be_is_refused(wanted: WantedIsr, code: ErrorCode) -> None:
    assert refusal(wanted) is code


def test_a_sender_that_is_not_the_leader_is_fenced() -> None:
    with pytest.raises(KafkaError, match="FENCED_LEADER_EPOCH"):
        plan_isr(context(), BrokerId(2), WANTED, min_insync_replicas=2)


def test_what_is_so_already_is_a_success_at_any_partition_epoch() -> None:
    same = replace(WANTED, partition_epoch=3, isr=members(2, 1))
    made = context()
    assert plan(same, made) is made.topics["t"].partitions[0]


def test_a_dead_or_stopping_broker_is_not_added_to_the_isr() -> None:
    dead = context()
    dead.remove_broker(BrokerId(3))
    assert refusal(WANTED, dead) is ErrorCode.INELIGIBLE_REPLICA
    leaving = context()
    leaving.shutting_down.add(BrokerId(3))
    assert refusal(WANTED, leaving) is ErrorCode.INELIGIBLE_REPLICA


def test_a_member_keeps_the_epoch_in_which_it_came_in() -> None:
    unknown = (IsrMember(LEADER), IsrMember(BrokerId(2)), *members(3))
    assert plan(replace(WANTED, isr=unknown)).isr_broker_epochs == members(1, 2, 3)


def test_a_leader_says_that_it_has_recovered() -> None:
    recovering = replace(
        state((1, 2, 3), leader=1, isr=(1,)),
        leader_recovery_state=LeaderRecoveryState.RECOVERING,
    )
    after = plan(replace(WANTED, isr=members(1)), context(recovering))
    assert after.leader_recovery_state is LeaderRecoveryState.RECOVERED
    assert after.isr == ids(1)
