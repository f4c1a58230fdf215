"""The states of a member whose coordinator assigns, one event at a time."""

from __future__ import annotations

import pytest

from millstream.client.core.consumer.member_machine import (
    NO_ASSIGNMENT,
    Assignment,
    MemberMachine,
    MemberState,
    TopicIdPartition,
)
from millstream.model.topic import TopicId

A, B = (TopicIdPartition(TopicId(bytes([n] * 16)), 0) for n in (1, 2))


def stable(*owned: TopicIdPartition) -> MemberMachine:
    machine = MemberMachine()
    machine.join()
    machine.sent()
    machine.on_heartbeat(1, owned)
    machine.reconciled(machine.target)
    machine.sent()
    return machine


def test_joining_ends_with_an_acknowledgement() -> None:
    machine = MemberMachine()
    assert not machine.heartbeats
    machine.join()
    assert (machine.state, machine.epoch) == (MemberState.JOINING, 0)
    assert machine.heartbeats_now
    machine.sent()
    assert machine.state is MemberState.JOINING
    machine.on_heartbeat(3, [A])
    assert (machine.state, machine.epoch) == (MemberState.RECONCILING, 3)
    machine.reconciled(machine.target)
    assert machine.state is MemberState.ACKNOWLEDGING
    assert machine.heartbeats_now
    machine.sent()
    assert machine.state is MemberState.STABLE
    assert not machine.heartbeats_now


def test_an_empty_assignment_is_acknowledged_too() -> None:
    machine = MemberMachine()
    machine.join()
    machine.on_heartbeat(1, [])
    assert machine.state is MemberState.RECONCILING


def test_an_unchanged_assignment_changes_the_epoch_alone() -> None:
    machine = stable(A)
    machine.on_heartbeat(2, None)
    machine.on_heartbeat(3, [A])
    assert (machine.state, machine.epoch) == (MemberState.STABLE, 3)


def test_an_assignment_that_comes_and_goes_is_acknowledged() -> None:
    machine = stable(A)
    machine.on_heartbeat(2, [])
    machine.on_heartbeat(2, [A])
    assert machine.state is MemberState.RECONCILING
    assert machine.target.partitions == machine.current.partitions
    assert machine.target != machine.current


def test_an_assignment_during_an_acknowledgement_comes_after_it() -> None:
    machine = stable(A)
    machine.on_heartbeat(2, [B])
    machine.reconciled(machine.target)
    machine.on_heartbeat(2, [A, B])
    assert machine.state is MemberState.ACKNOWLEDGING
    machine.sent()
    assert machine.state is MemberState.RECONCILING


def test_part_of_an_assignment_is_not_the_end_of_it() -> None:
    machine = stable()
    machine.on_heartbeat(2, [A, B])
    machine.reconciled(Assignment(machine.target.number, frozenset([A])))
    machine.sent()
    assert machine.state is MemberState.RECONCILING


@pytest.mark.parametrize("end", ["fence", "expire", "left", "fail"])
def test_an_end_forgets_the_epoch_and_the_assignment(end: str) -> None:
    machine = stable(A)
    life, era = machine.life, machine.era
    getattr(machine, end)()
    assert not machine.heartbeats
    assert (machine.epoch, machine.current, machine.target) == (0, NO_ASSIGNMENT, NO_ASSIGNMENT)
    assert machine.life > life
    assert machine.era > era
    machine.on_heartbeat(5, [B])
    assert machine.epoch == 0, "an answer to what was sent before"


def test_who_leaves_keeps_the_epoch_and_takes_no_assignment() -> None:
    machine = stable(A)
    life, era = machine.life, machine.era
    machine.prepare_to_leave()
    assert (machine.life, machine.era) == (life, era + 1)
    assert machine.heartbeats
    machine.on_heartbeat(4, [B])
    assert (machine.epoch, machine.target.partitions) == (4, frozenset([A]))
    assert not machine.fence(), "it does not join again"
    assert machine.state is MemberState.UNSUBSCRIBED


def test_a_fenced_member_may_join_again_and_a_failed_one_may_not() -> None:
    machine = stable(A)
    assert machine.fence()
    assert machine.state is MemberState.FENCED
    assert not machine.fence(), "once is enough"
    machine.join()
    assert machine.state is MemberState.JOINING
    assert not machine.is_announced
    machine.fail()
    machine.left()
    assert machine.state is MemberState.FATAL
