"""Who leads: in assignment order, alive, in sync."""

from __future__ import annotations

import pytest

from millstream.controller.election import after_restart, elect_leader, new_partition
from millstream.model.broker import BrokerId
from millstream.model.leadership import NO_LEADER, PartitionState


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number) for number in numbers)


@pytest.mark.parametrize(
    ("replicas", "isr", "live", "leader"),
    [
        (ids(3, 1, 2), ids(1, 2, 3), ids(1, 2, 3), 3),
        (ids(3, 1, 2), ids(2, 1), ids(1, 2, 3), 1),
        (ids(3, 1, 2), ids(3, 2), ids(1, 2), 2),
        (ids(3, 1, 2), ids(3), ids(1, 2), NO_LEADER),
        (ids(3), (), ids(3), NO_LEADER),
    ],
)
def test_the_first_replica_that_is_live_and_in_sync(
    replicas: tuple[BrokerId, ...],
    isr: tuple[BrokerId, ...],
    live: tuple[BrokerId, ...],
    leader: int,
) -> None:
    assert elect_leader(replicas, isr, live) == leader


def test_a_new_partition_is_in_sync_where_it_is_live() -> None:
    state = new_partition(ids(2, 1, 3), ids(1, 3), controller_epoch=7, leader_epoch=4)
    assert state == PartitionState(ids(2, 1, 3), BrokerId(1), 4, ids(1, 3), 0, 7)


def test_a_new_partition_keeps_one_tuple() -> None:
    state = new_partition(ids(1), ids(1), controller_epoch=1)
    assert state.isr is state.replicas


STATE = PartitionState(ids(1), BrokerId(1), 3, ids(1), partition_epoch=9, controller_epoch=2)


def test_nothing_changes_after_a_clean_stop() -> None:
    again = after_restart(STATE, ids(1), controller_epoch=5, lost_records=False, log_epoch=3)
    assert again is STATE


@pytest.mark.parametrize(
    ("live", "lost", "log_epoch", "leader", "leader_epoch"),
    [
        (ids(1), True, 3, 1, 4),  # records that were shown may be gone: consumers must notice
        (ids(1), False, 6, 1, 7),  # the log is ahead of the store
        ((), False, 3, NO_LEADER, 4),
    ],
)
def test_a_change_raises_the_leader_epoch(
    live: tuple[BrokerId, ...], lost: bool, log_epoch: int, leader: int, leader_epoch: int
) -> None:
    state = after_restart(STATE, live, controller_epoch=5, lost_records=lost, log_epoch=log_epoch)
    assert (state.leader, state.leader_epoch) == (leader, leader_epoch)
    assert (state.partition_epoch, state.controller_epoch) == (10, 5)


def test_a_partition_without_live_replicas_is_unchanged() -> None:
    elsewhere = PartitionState(ids(2), NO_LEADER, 3, ids(2))
    assert after_restart(elsewhere, ids(1), controller_epoch=5, lost_records=True) is elsewhere
