"""Groups under seeded schedules of faults: members come, go and die, coordinators and leaders move,
requests and answers are lost at any step.

Held to always: no partition has two owners in one generation; committed offsets never go back.
And in the end: every record was handed out at least once, and everything is committed.
"""

from __future__ import annotations

import pytest
from tests.client_twin.cluster import TwinBroker
from tests.client_twin.loop import Connection, TwinLoop
from tests.client_twin.member import TwinMember
from tests.client_twin.readers import ReaderCluster

from millstream.client.core.waiting import sleep
from millstream.client.errors import ClosedError
from millstream.model.deferred import Deferred, spawn
from millstream.model.topic import TopicPartition
from millstream.protocol.message import Request
from millstream.protocol.messages.api_versions import ApiVersionsRequest

PARTITIONS = 6
STRATEGIES = [
    "range",
    "roundrobin",
    "sticky",
    "cooperative-sticky",
    "range,cooperative-sticky",
    "cooperative-sticky,sticky",
]


class Schedule:
    """One run; ``log`` tells the story when an assertion fails."""

    def __init__(self, seed: int) -> None:
        self.loop = TwinLoop(seed)
        self.chance = self.loop.chance
        self.cluster = ReaderCluster(self.loop, [1, 2, 3])
        self.cluster.create_topic("t", PARTITIONS)
        self.loop.network.latency_ms = lambda: self.chance.choice([0.5, 1, 3])
        self.strategy = STRATEGIES[seed % len(STRATEGIES)]
        self.members: list[TwinMember] = []
        self.seen: set[tuple[TopicPartition, int]] = set()
        self.owners: dict[tuple[int, TopicPartition], str] = {}
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
        member = ScheduledMember(
            self,
            f"m{self.names}",
            partition_assignment_strategy=self.strategy,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=500,
            max_poll_interval_ms=10_000,
            request_timeout_ms=2_000,
            auto_commit_interval_ms=300,
            default_api_timeout_ms=5_000,
        )
        member.subscribe(["t"])
        self.members.append(member)
        self.note(f"add {member.name}")
        spawn(member.drive()).on_done(self.ended)

    def ended(self, driver: Deferred[None]) -> None:
        try:
            driver.result()
        except ClosedError:
            pass
        except BaseException as error:
            self.errors.append(error)

    def step(self) -> None:
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
        elif draw == 7 and self.members:
            self.chance.choice(self.members).core.enforce_rebalance("the schedule says so")
        else:
            self.cluster.fill("t", self.chance.randrange(PARTITIONS), self.chance.randint(1, 20))

    # --- what is held to -------------------------------------------------------------------------

    def check_commits(self) -> None:
        committed: dict[TopicPartition, int] = {}
        for commit in self.cluster.commits:
            assert commit.offset >= committed.get(commit.place, 0), (commit, *self.log)
            committed[commit.place] = commit.offset

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
        self.check_commits()
        expected = {
            (TopicPartition("t", number), offset)
            for number, row in enumerate(self.cluster.topics["t"].partitions)
            for offset in range(row.end_offset)
        }
        assert expected == self.seen, (sorted(expected - self.seen), *self.log)
        ends = {place: offset + 1 for place, offset in sorted(expected)}
        last = {commit.place: commit.offset for commit in self.cluster.commits}
        assert last == ends, self.log
        owned = [place for member in self.members for place in member.owned]
        assert sorted(owned) == sorted(ends), self.log


class ScheduledMember(TwinMember):
    def __init__(self, schedule: Schedule, name: str, **settings: object) -> None:
        super().__init__(schedule.cluster, name, **settings)
        self.schedule = schedule
        self.busy_ms = 0

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        super().on_partitions_assigned(partitions)
        generation = self.core.group.generation_id
        for place in self.owned:
            owner = self.schedule.owners.setdefault((generation, place), self.name)
            assert owner == self.name, (generation, place, owner, self.name, *self.schedule.log)

    async def drive(self) -> None:
        chance = self.schedule.chance
        while self.is_running:
            records = await self.poll(chance.choice([0, 100, 500]), chance.choice([1, 7, 100]))
            if not self.is_running:
                return
            self.schedule.seen |= {(each.topic_partition, each.offset) for each in records}
            await sleep(self.loop, chance.choice([1, 20, 100]) + self.busy_ms)
            self.busy_ms = 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_group_under_faults(seed: int) -> None:
    Schedule(seed).run()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("block", range(4))
def test_many_groups_under_faults(block: int) -> None:
    for seed in range(1_000 + 10 * block, 1_010 + 10 * block):
        Schedule(seed).run()


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run() -> None:
    first, second = Schedule(5), Schedule(5)
    first.run()
    second.run()
    assert first.log == second.log
