"""Short ways to write states of partitions and electorates."""

from __future__ import annotations

from collections.abc import Iterable

from millstream.controller.election import Electorate
from millstream.model.broker import BrokerId
from millstream.model.leadership import NO_LEADER, IsrMember, PartitionState

EPOCH = 5
"""The controller epoch under which tests decide."""


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number) for number in numbers)


def brokers(*numbers: int) -> frozenset[BrokerId]:
    return frozenset(ids(*numbers))


def members(*numbers: int) -> tuple[IsrMember, ...]:
    """Members that came in with broker epoch 100 + id."""
    return tuple(IsrMember(BrokerId(each), 100 + each) for each in numbers)


def state(
    replicas: Iterable[int],
    *,
    leader: int = NO_LEADER,
    isr: Iterable[int] = (),
    elr: Iterable[int] = (),
    last_known: Iterable[int] = (),
    leader_epoch: int = 7,
) -> PartitionState:
    return PartitionState(
        ids(*replicas),
        BrokerId(leader),
        leader_epoch,
        ids(*isr),
        partition_epoch=20,
        controller_epoch=3,
        elr=ids(*elr),
        last_known_elr=ids(*last_known),
        isr_broker_epochs=members(*isr, *elr),
    )


def electorate(*live: int, lost: Iterable[int] = ()) -> Electorate:
    """Brokers that live; those in ``lost`` have kept what they have only since epoch 1000."""
    return Electorate(brokers(*live), {BrokerId(each): 1000 for each in lost})
