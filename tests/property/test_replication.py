"""Three replicas under random events: what is committed once stays at its offset, for ever.

The machines are the real ones; logs are lists of (epoch, value), the controller is a few lines, and
messages between them are lost, late or out of order as chance has it.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from millstream.model.broker import BrokerId
from millstream.model.epoch_end import EpochEndOffset
from millstream.model.errors import ErrorCode
from millstream.model.leadership import NO_LEADER, IsrMember, PartitionState
from millstream.replication.divergence import is_diverging
from millstream.replication.effects import LeaderEffect, ProposeIsr
from millstream.replication.follower import (
    Append,
    FetchAnswer,
    FollowerReplication,
    FollowerRules,
    LogView,
    Truncate,
    high_watermark_after,
)
from millstream.replication.leader import FollowerFetch, LeaderReplication, ReplicationRules

BROKERS = tuple(BrokerId(each) for each in (1, 2, 3))
LAG_MS = 100
Entry = tuple[int, int]


class Replica:
    """One broker's log and the role that it plays."""

    def __init__(self, broker_id: BrokerId, min_isr: int) -> None:
        self.broker_id = broker_id
        self.rules = ReplicationRules(min_isr, LAG_MS, 1)
        self.log: list[Entry] = []
        self.epoch_starts: list[tuple[int, int]] = []
        self.high_watermark = 0
        self.alive = True
        self.leading: LeaderReplication | None = None
        self.following: FollowerReplication | None = None
        self.seen = (-1, -1)

    def become(self, state: PartitionState, now: float) -> tuple[LeaderEffect, ...]:
        if (state.leader_epoch, state.partition_epoch) <= self.seen:
            return ()
        new_epoch = state.leader_epoch > self.seen[0]
        self.seen = (state.leader_epoch, state.partition_epoch)
        if state.leader == self.broker_id:
            self.following = None
            if new_epoch:
                self.assign(state.leader_epoch)
            if self.leading is not None:
                return self.leading.on_state(state, now)
            self.leading = LeaderReplication(
                IsrMember(self.broker_id, 1),
                state,
                self.rules,
                log_end_offset=len(self.log),
                high_watermark=self.high_watermark,
                now_ms=now,
            )
            return self.leading.on_append(len(self.log))
        self.leading = None
        if new_epoch:
            self.epoch_starts = [each for each in self.epoch_starts if each[1] < len(self.log)]
            self.following = None
            if state.leader != NO_LEADER:
                rules = FollowerRules(LAG_MS, 1)
                self.following = FollowerReplication(state.leader, state.leader_epoch, rules)
        return ()

    def assign(self, epoch: int) -> None:
        if not self.epoch_starts or self.epoch_starts[-1][0] < epoch:
            starts = [each for each in self.epoch_starts if each[1] < len(self.log)]
            self.epoch_starts = [*starts, (epoch, len(self.log))]

    def end_of(self, epoch: int) -> EpochEndOffset:
        known = [each for each in self.epoch_starts if each[0] <= epoch]
        later = [each for each in self.epoch_starts if each[0] > epoch]
        if not known and not later:
            return EpochEndOffset(-1, -1)
        end = later[0][1] if later else len(self.log)
        return EpochEndOffset(known[-1][0] if known else epoch, end)

    def truncate(self, offset: int) -> None:
        del self.log[offset:]
        self.epoch_starts = [each for each in self.epoch_starts if each[1] < offset]
        self.high_watermark = min(self.high_watermark, offset)


class World:
    def __init__(self, random: Random, min_isr: int) -> None:
        self.random = random
        self.min_isr = min_isr
        self.now = 0.0
        self.replicas = {each: Replica(each, min_isr) for each in BROKERS}
        self.state = PartitionState(BROKERS, BROKERS[0], 0, BROKERS, 0)
        self.elr: set[BrokerId] = set()
        self.proposals: list[tuple[BrokerId, ProposeIsr]] = []
        self.committed: list[Entry] = []
        self.acknowledged = 0
        self.push()

    # The controller

    def write(self, **changes: object) -> None:
        before = set(self.state.isr)
        epoch = self.state.partition_epoch + 1
        self.state = replace(self.state, partition_epoch=epoch, **changes)  # type: ignore[arg-type]
        if len(self.state.isr) >= self.min_isr:
            self.elr.clear()
        else:
            self.elr |= before - set(self.state.isr)

    def push(self) -> None:
        for each in self.random.sample(BROKERS, 3):
            if self.replicas[each].alive and self.random.random() < 0.8:
                self.carry_out(each, self.replicas[each].become(self.state, self.now))

    def live(self) -> list[BrokerId]:
        return [each for each in BROKERS if self.replicas[each].alive]

    def elect(self) -> None:
        live = self.live()
        isr = tuple(each for each in self.state.isr if each in live)
        epoch = self.state.leader_epoch + 1
        if isr:
            keep = isr[0] if self.state.leader not in isr else self.state.leader
            if isr != self.state.isr or keep != self.state.leader:
                self.write(leader=keep, isr=isr, leader_epoch=epoch)
            return
        eligible = [each for each in BROKERS if each in live and each in self.elr]
        if eligible:
            self.write(leader=eligible[0], isr=(eligible[0],), leader_epoch=epoch)
        elif self.state.leader != NO_LEADER:
            self.write(leader=NO_LEADER, isr=(), leader_epoch=epoch)

    def decide(self) -> None:
        """Serve one proposal, and perhaps let the answer be lost."""
        if not self.proposals:
            return
        sender, asked = self.proposals.pop(self.random.randrange(len(self.proposals)))
        isr = tuple(member.broker_id for member in asked.members)
        answer: PartitionState | ErrorCode
        if asked.leader_epoch != self.state.leader_epoch:
            answer = ErrorCode.FENCED_LEADER_EPOCH
        elif isr == self.state.isr:
            answer = self.state
        elif asked.partition_epoch != self.state.partition_epoch:
            answer = ErrorCode.INVALID_UPDATE_VERSION
        elif not set(isr) - set(self.state.isr) <= set(self.live()):
            answer = ErrorCode.INELIGIBLE_REPLICA
        else:
            self.write(isr=isr)
            answer = self.state
        if self.random.random() < 0.3:
            answer = ErrorCode.REQUEST_TIMED_OUT
        leading = self.replicas[sender].leading
        if leading is not None:
            self.carry_out(sender, leading.on_isr_answer(asked.attempt, answer, self.now))
            self.carry_out(sender, leading.retry_proposal(asked.attempt))

    # Brokers

    def carry_out(self, broker: BrokerId, effects: tuple[LeaderEffect, ...]) -> None:
        replica = self.replicas[broker]
        for effect in effects:
            if isinstance(effect, ProposeIsr):
                self.proposals.append((broker, effect))
        if replica.leading is not None:
            replica.high_watermark = max(replica.high_watermark, replica.leading.high_watermark)
        self.check(replica)

    def produce(self) -> None:
        for replica in self.replicas.values():
            if replica.alive and replica.leading is not None:
                value = self.random.getrandbits(40)
                replica.log.append((replica.leading.state.leader_epoch, value))
                self.carry_out(replica.broker_id, replica.leading.on_append(len(replica.log)))

    def fetch(self, broker: BrokerId) -> None:
        replica = self.replicas[broker]
        following = replica.following
        if not replica.alive or following is None:
            return
        leader = self.replicas[following.leader]
        if not leader.alive or leader.leading is None:
            return
        if leader.leading.state.leader_epoch != following.leader_epoch:
            return
        asked = following.position(
            log_end_offset=len(replica.log),
            log_start_offset=0,
            latest_epoch=replica.epoch_starts[-1][0] if replica.log else -1,
        )
        end = leader.end_of(asked.last_fetched_epoch)
        if is_diverging(
            end, last_fetched_epoch=asked.last_fetched_epoch, fetch_offset=asked.offset
        ):
            answer, records = FetchAnswer(diverging=end), []
        else:
            who = FollowerFetch(broker, asked.offset, 1, 1)
            self.carry_out(leader.broker_id, leader.leading.on_follower_fetch(who, self.now))
            records = leader.log[asked.offset : asked.offset + self.random.randint(1, 4)]
            answer = FetchAnswer(high_watermark=leader.high_watermark, has_records=bool(records))
        if self.random.random() < 0.2:
            return  # lost on the way
        view = LogView(len(replica.log), replica.high_watermark, replica.end_of)
        for effect in following.on_answer(asked, answer, view, self.now):
            match effect:
                case Truncate(offset, loses_committed):
                    assert not loses_committed
                    replica.truncate(offset)
                case Append():
                    for entry in records:
                        if not replica.epoch_starts or replica.epoch_starts[-1][0] != entry[0]:
                            replica.assign(entry[0])
                        replica.log.append(entry)
                    replica.high_watermark = high_watermark_after(
                        own=replica.high_watermark,
                        leader_high_watermark=answer.high_watermark,
                        log_end_offset=len(replica.log),
                    )
        self.check(replica)

    def kill(self, broker: BrokerId) -> None:
        """kill -9: the log stays, roles and the newest high watermark go."""
        replica = self.replicas[broker]
        replica.alive = False
        replica.leading = replica.following = None
        replica.seen = (-1, -1)
        replica.high_watermark = self.random.randint(0, replica.high_watermark)

    # What must hold

    def check(self, replica: Replica) -> None:
        below = replica.log[: replica.high_watermark]
        shared = min(len(below), len(self.committed))
        assert below[:shared] == self.committed[:shared], "a committed entry has changed"
        self.committed += below[shared:]
        epochs = [epoch for epoch, _ in replica.log]
        assert epochs == sorted(epochs)

    def step(self) -> None:
        self.now += self.random.choice((1, 1, 5, 60))
        match self.random.choices(range(7), (6, 12, 3, 3, 1, 2, 2))[0]:
            case 0:
                self.produce()
            case 1:
                self.fetch(self.random.choice(BROKERS))
            case 2:
                self.decide()
            case 3:
                self.push()
            case 4:
                self.kill(self.random.choice(BROKERS))
            case 5:
                self.replicas[self.random.choice(BROKERS)].alive = True
                self.elect()
            case _:
                for replica in self.replicas.values():
                    if replica.leading is not None:
                        effects = replica.leading.check_shrink(self.now)
                        self.carry_out(replica.broker_id, effects)

    def heal(self) -> None:
        for replica in self.replicas.values():
            replica.alive = True
        for turn in range(400):
            self.now += 3
            self.elect()
            self.push()
            for each in BROKERS:
                self.fetch(each)
            self.decide()
            if turn < 200:
                self.produce()


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(seed=st.integers(0, 2**32), min_isr=st.sampled_from((1, 2)))
def test_what_is_committed_stays_through_kills_and_lost_messages(seed: int, min_isr: int) -> None:
    world = World(Random(seed), min_isr)
    for _ in range(300):
        world.step()
    world.heal()
    leader = world.replicas[world.state.leader]
    assert set(world.state.isr) == set(BROKERS)
    assert leader.log[: len(world.committed)] == world.committed
    assert leader.high_watermark == len(world.committed)
