"""A leader with two followers, as most tests of a leader begin."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from millstream.model.broker import BrokerId
from millstream.model.leadership import IsrMember, PartitionState
from millstream.replication.effects import LeaderEffect, ProposeIsr
from millstream.replication.leader import FollowerFetch, LeaderReplication, ReplicationRules

E = TypeVar("E")

ME, B, C, D = BrokerId(1), BrokerId(2), BrokerId(3), BrokerId(4)
MY_EPOCH = 11
LAG_MS = 10_000
RULES = ReplicationRules(min_insync_replicas=1, lag_time_max_ms=LAG_MS)


def state(
    *isr: BrokerId,
    replicas: tuple[BrokerId, ...] = (ME, B, C),
    leader_epoch: int = 5,
    partition_epoch: int = 7,
    leader: BrokerId = ME,
) -> PartitionState:
    return PartitionState(replicas, leader, leader_epoch, isr, partition_epoch)


def leader(
    *isr: BrokerId,
    end: int = 100,
    high_watermark: int = 80,
    min_isr: int = 1,
    replicas: tuple[BrokerId, ...] = (ME, B, C),
) -> LeaderReplication:
    return LeaderReplication(
        IsrMember(ME, MY_EPOCH),
        state(*(isr or (ME, B, C)), replicas=replicas),
        replace(RULES, min_insync_replicas=min_isr),
        log_end_offset=end,
        high_watermark=high_watermark,
        now_ms=0,
    )


def fetch(
    machine: LeaderReplication,
    who: BrokerId,
    offset: int,
    *,
    now_ms: float = 1,
    epoch: int = 21,
    live: int | None = 21,
) -> tuple[LeaderEffect, ...]:
    return machine.on_follower_fetch(FollowerFetch(who, offset, epoch, live), now_ms)


def only(effects: tuple[LeaderEffect, ...], kind: type[E]) -> E:
    found = [each for each in effects if isinstance(each, kind)]
    assert len(found) == 1, effects
    return found[0]


def proposed(effects: tuple[LeaderEffect, ...]) -> tuple[BrokerId, ...]:
    return tuple(member.broker_id for member in only(effects, ProposeIsr).members)
