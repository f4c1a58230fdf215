"""Groups of the consumer protocol under seeded schedules of faults.

Members come, go, die and stall, coordinators and leaders move, the coordinator removes members,
requests and answers are lost at any step.

Held to always: what a member delivers is its own at the coordinator, until the coordinator has
removed it; committed offsets go back only where a removed member's records are read again. And in
the end: every record was handed out, and everything is committed.
"""

from __future__ import annotations

import pytest
from tests.client_twin.cluster import TwinBroker
from tests.client_twin.consumer_group import ConsumerGroupCluster
from tests.client_twin.loop import Connection, TwinLoop
from tests.client_twin.member import TwinMember

from millstream.client.core.consumer.consumer_membership import ConsumerMembership
from millstream.client.core.waiting import sleep
from millstream.client.errors import ClosedError
from millstream.model.deferred import Deferred, spawn
from millstream.model.topic import TopicPartition
from millstream.protocol.message import Request
from millstream.protocol.messages.api_versions import ApiVersionsRequest

PARTITIONS = 6


class Schedule:
    """One run; ``log`` tells the story when an assertion fails."""

    def __init__(self, seed: int) -> None:
        self.loop = TwinLoop(seed)
        self.chance = self.loop.chance
        self.cluster = ConsumerGroupCluster(self.loop, [1, 2, 3])
        self.cluster.create_topic("t", PARTITIONS)
        self.loop.network.latency_ms = lambda: self.chance.choice([0.5, 1, 3])
        self.auto_commits = seed % 3 != 2
        self.members: list[ScheduledMember] = []
        self.seen: set[tuple[TopicPartition, int]] = set()
        self.faults = True
        self.log: list[str] = []
        self.errors: list[BaseException] = []
        self.names = 0
        self.cluster.before = self.before
        self.cluster.after = self.after

    # --- faults ----------------------------------------------------------------------------------

    def before(self, broker: TwinBroker, connection: Connection, request: Request) -> bool:
        if not self.faults or isinstance(request, ApiVersionsRequest):
            return True
        draw = self.chance.random()
        if draw < 0.002:
            self.note(f"silence from {type(request).__name__} on")
            connection.state["silent"] = True
            return False
        if draw < 0.006:
            self.note(f"cut before {type(request).__name__}")
            connection.cut(ConnectionResetError(104, "reset"))
            return False
        return True

    def after(self, broker: TwinBroker, connection: Connection, request: Request) -> float | None:
        if not self.faults or isinstance(request, ApiVersionsRequest):
            return 0.0
        draw = self.chance.random()
        if draw < 0.004:
            self.note(f"cut after {type(request).__name__}")
            connection.cut(ConnectionResetError(104, "reset"))
            return None
        if draw < 0.03:
            return self.chance.choice([5.0, 50.0, 500.0])
        return 0.0

    def note(self, text: str) -> None:
        self.log.append(f"{self.loop.now_ms():9.0f} {text}")

    # --- members ---------------------------------------------------------------------------------

    def add(self) -> None:
        self.names += 1
        member = ScheduledMember(self, f"m{self.names}")
        member.core.subscribe(["t"], member if self.names % 2 else None)
        self.members.append(member)
        self.note(f"add {member.name} as {member.member_id}")
        spawn(member.drive()).on_done(self.ended)

    def ended(self, driver: Deferred[None]) -> None:
        try:
            driver.result()
        except ClosedError:
            pass
        except BaseException as error:
            self.errors.append(error)

    def step(self) -> None:
        for partition in range(PARTITIONS):
            self.cluster.fill("t", partition, self.chance.randint(1, 20))
        draw = self.chance.randrange(10)
        if draw <= 1 and len(self.members) < 5:
            self.add()
        elif draw == 2 and len(self.members) > 1:
            member = self.members.pop(self.chance.randrange(len(self.members)))
            self.note(f"close {member.name}")
            spawn(member.close())
        elif draw == 3 and len(self.members) > 1:
            member = self.members.pop(self.chance.randrange(len(self.members)))
            self.note(f"kill {member.name}")
            member.kill()
        elif draw == 4:
            node_id = self.chance.choice([1, 2, 3])
            self.note(f"coordinator to {node_id}")
            self.cluster.move_coordinator(node_id)
        elif draw == 5:
            partition, node_id = self.chance.randrange(PARTITIONS), self.chance.choice([1, 2, 3])
            self.note(f"leader of {partition} to {node_id}")
            self.cluster.move_leader("t", partition, node_id)
        elif draw == 6 and self.members:
            member = self.chance.choice(self.members)
            member.busy_ms = self.chance.choice([500, 4_000, 15_000])
            self.note(f"{member.name} is busy for {member.busy_ms}")
        elif draw == 7 and self.cluster.members:
            member_id = self.chance.choice(sorted(self.cluster.members))
            self.note(f"remove {member_id}")
            self.cluster.remove(member_id)
        elif self.members:
            chosen = self.chance.choice(self.members)
            self.note(f"the coordinator moves partitions from {chosen.name}")
            self.cluster.target.pop(chosen.member_id, None)
            self.cluster.assign()

    # --- what is held to -------------------------------------------------------------------------

    def run(self) -> None:
        for partition in range(PARTITIONS):
            self.cluster.fill("t", partition, 10)
        for _ in range(3):
            self.add()
        for _ in range(40):
            self.loop.advance(self.chance.choice([20, 150, 700, 2_500]))
            self.step()
        self.faults = False
        self.loop.advance(60_000)
        assert not self.errors, (self.errors, *self.log)
        expected = {
            (TopicPartition("t", number), offset)
            for number, row in enumerate(self.cluster.topics["t"].partitions)
            for offset in range(row.end_offset)
        }
        assert expected == self.seen, (sorted(expected - self.seen), *self.log)
        ends = {place: offset + 1 for place, offset in sorted(expected)}
        assert self.cluster.offsets == ends, self.log
        owned = [place for member in self.members for place in member.core.subscription.partitions]
        assert sorted(owned) == sorted(ends), self.log
        assert len(self.cluster.members) == len(self.members)


class ScheduledMember(TwinMember):
    def __init__(self, schedule: Schedule, name: str) -> None:
        super().__init__(
            schedule.cluster,
            name,
            group_protocol="consumer",
            max_poll_interval_ms=10_000,
            request_timeout_ms=2_000,
            auto_commit_interval_ms=300,
            default_api_timeout_ms=5_000,
            enable_auto_commit=schedule.auto_commits,
        )
        self.schedule = schedule
        self.group = schedule.cluster
        self.busy_ms = 0
        assert isinstance(self.core._membership, ConsumerMembership)
        self.membership = self.core._membership
        self.member_id = self.membership.member_id

    def check(self, delivered: set[TopicPartition], life: int) -> None:
        """What was delivered and is at work is this member's, or it was removed meanwhile."""
        if self.membership.machine.life != life:
            return
        row = self.group.members.get(self.member_id)
        epoch = self.core.group.generation_id
        if row is None or epoch not in (row.epoch, row.previous_epoch):
            return
        for place in delivered:
            assert self.group.place(place) in row.holds, (
                self.name,
                place,
                row,
                *self.schedule.log,
            )

    async def drive(self) -> None:
        chance = self.schedule.chance
        while self.is_running:
            records = await self.poll(chance.choice([0, 100, 500]), chance.choice([1, 7, 100]))
            if not self.is_running:
                return
            delivered = {each.topic_partition for each in records}
            life = self.membership.machine.life
            self.check(delivered, life)
            self.schedule.seen |= {(each.topic_partition, each.offset) for each in records}
            await sleep(self.loop, chance.choice([1, 20, 100, 700]) + self.busy_ms)
            self.busy_ms = 0
            if not self.is_running:
                return
            self.check(delivered, life)
            if not self.schedule.auto_commits:
                self.core.commit_async(None, None)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_group_under_faults(seed: int) -> None:
    Schedule(seed).run()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("block", range(4))
def test_many_groups_under_faults(block: int) -> None:
    for seed in range(1_000 + 25 * block, 1_025 + 25 * block):
        Schedule(seed).run()


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run() -> None:
    first, second = Schedule(5), Schedule(5)
    first.run()
    second.run()
    assert first.log == second.log
