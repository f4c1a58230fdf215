"""Share groups under seeded schedules of faults: members come, go and die, coordinators and leaders
move, requests and answers are lost at any step, brokers refuse with every error that they know.

Held to always: nobody acknowledges what it never acquired, and no record that was accepted is
delivered again. And in the end: every record was accepted, rejected or archived after the limit of
deliveries, and nothing stays acquired.
"""

from __future__ import annotations

import contextlib

import pytest
from tests.client_twin.cluster import TwinBroker
from tests.client_twin.loop import Connection, TwinLoop
from tests.client_twin.share_member import TwinShareMember
from tests.client_twin.sharing import (
    ShareCluster,
    acknowledge_refused,
    fetch_refused,
)

from millstream.client.core.share.acknowledgements import AcknowledgeType
from millstream.client.core.share.errors import AcknowledgeFailedError
from millstream.client.core.waiting import sleep
from millstream.client.errors import ClosedError
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.api_versions import ApiVersionsRequest
from millstream.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from millstream.protocol.messages.share_fetch import ShareFetchRequest
from millstream.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

PARTITIONS = 4
LIMIT = 5
OF_SESSIONS = [
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_SERVER_ERROR,
]
OF_MEMBERS = [
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
]


class Schedule:
    """One run; ``log`` tells the story when an assertion fails."""

    def __init__(self, seed: int) -> None:
        self.loop = TwinLoop(seed)
        self.chance = self.loop.chance
        self.cluster = ShareCluster(self.loop, [1, 2, 3])
        self.cluster.create_topic("t", PARTITIONS)
        self.cluster.lock_ms = self.chance.choice([800, 3_000])
        self.cluster.delivery_limit = LIMIT
        self.loop.network.latency_ms = lambda: self.chance.choice([0.5, 1, 3])
        self.explicit = bool(seed % 2)
        self.mode = "record_limit" if seed % 3 == 0 else "batch_optimized"
        self.members: list[ScheduledMember] = []
        self.faults = True
        self.log: list[str] = []
        self.errors: list[BaseException] = []
        self.delivered = 0
        self.cluster.before = self.before
        self.cluster.after = self.after
        self.cluster.hooks.append(self.refuse)

    def note(self, text: str) -> None:
        self.log.append(f"{self.loop.now_ms():9.0f} {text}")

    # --- faults ----------------------------------------------------------------------------------

    def before(self, broker: TwinBroker, connection: Connection, request: Request) -> bool:
        if not self.faults or isinstance(request, ApiVersionsRequest):
            return True
        if self.chance.random() < 0.006:
            self.note(f"cut before {type(request).__name__}")
            connection.cut(ConnectionResetError(104, "reset"))
            return False
        return True

    def after(self, broker: TwinBroker, connection: Connection, request: Request) -> float | None:
        if not self.faults or isinstance(request, ApiVersionsRequest):
            return 0.0
        draw = self.chance.random()
        if draw < 0.006:
            self.note(f"cut after {type(request).__name__}")
            connection.cut(ConnectionResetError(104, "reset"))
            return None
        return self.chance.choice([5.0, 50.0, 500.0]) if draw < 0.03 else 0.0

    def refuse(self, broker: TwinBroker, request: Request) -> Response | None:
        if not self.faults or self.chance.random() > 0.02:
            return None
        if isinstance(request, ShareGroupHeartbeatRequest):
            error = self.chance.choice(OF_MEMBERS)
            if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
                self.cluster.members.pop(request.member_id, None)
            self.note(f"heartbeat: {error.name}")
            return ShareGroupHeartbeatResponse(
                error_code=error.code, member_epoch=0, heartbeat_interval_ms=0
            )
        if isinstance(request, ShareFetchRequest | ShareAcknowledgeRequest):
            error = self.chance.choice(OF_SESSIONS)
            self.note(f"{type(request).__name__}: {error.name}")
            # The broker has evicted the session: it gives up what the member has acquired.
            self.cluster.share_sessions.pop((broker.node_id, request.member_id or ""), None)
            self.cluster._release(broker.node_id, request.member_id or "")
            if isinstance(request, ShareFetchRequest):
                return fetch_refused(error)
            return acknowledge_refused(error)
        return None

    # --- members ---------------------------------------------------------------------------------

    def add(self) -> None:
        member = ScheduledMember(self)
        member.core.subscribe(["t"])
        self.members.append(member)
        self.note(f"add {member.core.member.member_id}")
        spawn(member.drive()).on_done(self.ended)

    def ended(self, driver: Deferred[None]) -> None:
        try:
            driver.result()
        except ClosedError:
            pass
        except BaseException as error:
            self.errors.append(error)

    def step(self) -> None:
        draw = self.chance.randrange(9)
        if draw <= 1 and len(self.members) < 5:
            self.add()
        elif draw == 2 and len(self.members) > 1:
            member = self.members.pop(self.chance.randrange(len(self.members)))
            self.note(f"close {member.core.member.member_id}")
            spawn(member.close(5_000)).on_done(self.ended)
        elif draw == 3 and len(self.members) > 1:
            member = self.members.pop(self.chance.randrange(len(self.members)))
            self.note(f"kill {member.core.member.member_id}")
            member.kill()
        elif draw == 4:
            self.cluster.coordinator_id = self.chance.choice([1, 2, 3])
            self.note(f"coordinator to {self.cluster.coordinator_id}")
        elif draw == 5:
            partition, node_id = self.chance.randrange(PARTITIONS), self.chance.choice([1, 2, 3])
            self.note(f"leader of {partition} to {node_id}")
            self.cluster.move_leader("t", partition, node_id)
        elif draw == 6 and self.members:
            member = self.chance.choice(self.members)
            member.busy_ms = self.chance.choice([500, 4_000, 15_000])
            self.note(f"{member.core.member.member_id} is busy for {member.busy_ms}")
        else:
            self.cluster.fill("t", self.chance.randrange(PARTITIONS), self.chance.randint(1, 20))

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
        assert self.cluster.intruders == [], self.log
        for partition, row in enumerate(self.cluster.topics["t"].partitions):
            share = self.cluster.row("t", partition)
            assert self.cluster.acquired("t", partition) == [], self.log
            assert sorted(share.done) == list(range(row.end_offset)), (partition, *self.log)
            for offset, kind in share.done.items():
                if kind == "archived":
                    assert share.counts[offset] == LIMIT, (partition, offset, *self.log)
        assert self.delivered


class ScheduledMember(TwinShareMember):
    def __init__(self, schedule: Schedule) -> None:
        super().__init__(
            schedule.cluster,
            share_acknowledgement_mode="explicit" if schedule.explicit else "implicit",
            share_acquire_mode=schedule.mode,
            max_poll_records=schedule.chance.choice([1, 7, 500]),
            max_poll_interval_ms=10_000,
            request_timeout_ms=2_000,
            default_api_timeout_ms=5_000,
        )
        self.schedule = schedule
        self.busy_ms = 0

    async def drive(self) -> None:
        chance, schedule = self.schedule.chance, self.schedule
        while self.is_running:
            records = await self.poll(chance.choice([0, 100, 500]), chance.choice([1, 7, 100]))
            if not self.is_running:
                return
            schedule.delivered += len(records)
            for record in records:
                row = self.cluster.row("t", record.partition)
                counted = row.counts[record.offset]
                assert 1 <= record.delivery_count <= counted, (record, *schedule.log)
            await sleep(self.loop, chance.choice([1, 20, 100]) + self.busy_ms)
            self.busy_ms = 0
            for record in records if schedule.explicit else ():
                self.say([record], chance.choice(KINDS))
            if chance.random() < 0.2 and self.is_running:
                with contextlib.suppress(AcknowledgeFailedError):
                    await self.commit(chance.choice([100, 5_000]))


KINDS = [
    *[AcknowledgeType.ACCEPT] * 6,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
    AcknowledgeType.RENEW,
]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_share_group_under_faults(seed: int) -> None:
    Schedule(seed).run()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("block", range(4))
def test_many_share_groups_under_faults(block: int) -> None:
    for seed in range(1_000 + 25 * block, 1_025 + 25 * block):
        Schedule(seed).run()


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run() -> None:
    first, second = Schedule(5), Schedule(5)
    first.run()
    second.run()
    assert first.log == second.log
