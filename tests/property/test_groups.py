"""Whatever members do, the rules of a group hold, and the log says what memory says."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.examples import examples
from tests.unit.coordinator.scene import GROUP, Scene, error_of, subscription

from millstream.coordinator.group.classic_group import ClassicGroup
from millstream.coordinator.group.settings import GroupSettings
from millstream.coordinator.group.states import GroupState
from millstream.model.deferred import Deferred
from millstream.protocol.messages.join_group import JoinGroupResponse
from millstream.protocol.messages.sync_group import SyncGroupResponse

PROTOCOLS = [
    {"range": subscription("t")},
    {"range": subscription("t", "u")},
    {"sticky": subscription("t"), "range": subscription("t")},
    {"range": subscription("u"), "sticky": subscription("u")},
]
INSTANCES = [None, None, "a", "b"]


class Client:
    """One consumer: what it sent and what it knows."""

    def __init__(self, instance_id: str | None) -> None:
        self.instance_id = instance_id
        self.member_id = ""
        self.generation_id = -1
        self.is_leader = False
        self.members: list[str] = []
        self.joining: Deferred[JoinGroupResponse] | None = None
        self.syncing: Deferred[SyncGroupResponse] | None = None

    def take_answers(self) -> None:
        if self.joining is not None and self.joining.done:
            answer = self.joining.result()
            self.joining = None
            if answer.error_code == 79:
                self.member_id = answer.member_id
            elif answer.error_code == 0:
                self.member_id = answer.member_id
                assert answer.generation_id >= self.generation_id, "generations never go back"
                self.generation_id = answer.generation_id
                self.is_leader = answer.leader == answer.member_id
                self.members = [member.member_id for member in answer.members]
            elif answer.error_code in (25, 82):
                self.member_id, self.generation_id = "", -1
        if self.syncing is not None and self.syncing.done:
            self.syncing = None


class GroupMachine(RuleBasedStateMachine):
    """Several consumers, one group, time, restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.scene = Scene(GroupSettings(max_size=5, initial_rebalance_delay_ms=2_000))
        self.clients = [Client(INSTANCES[index % 4]) for index in range(6)]
        self.generation_id = 0
        self.committed: dict[tuple[str, int], int] = {}

    @rule(
        index=st.integers(0, 5),
        protocols=st.sampled_from(PROTOCOLS),
        version=st.sampled_from([3, 9]),
    )
    def join(self, index: int, protocols: dict[str, bytes], version: int) -> None:
        client = self.clients[index]
        client.joining = self.scene.join(
            client.member_id,
            version=version,
            instance_id=client.instance_id,
            protocols=protocols,
            rebalance_timeout_ms=15_000,
        )

    @rule(size=st.integers(1, 4), protocols=st.sampled_from(PROTOCOLS))
    def everybody_comes(self, size: int, protocols: dict[str, bytes]) -> None:
        """The first clients do what well-behaved ones do until they have an assignment."""
        for _ in range(3):
            for index in range(size):
                client = self.clients[index]
                client.take_answers()
                if client.joining is None and client.generation_id < 0:
                    self.join(index, protocols, 9)
            self.scene.advance(5_000)
        for index in range(size):
            client = self.clients[index]
            client.take_answers()
            if client.generation_id >= 0:
                self.sync(index)

    @rule(index=st.integers(0, 5))
    def sync(self, index: int) -> None:
        client = self.clients[index]
        assignments = {}
        if client.is_leader:
            assignments = {
                member: f"{member}@{client.generation_id}".encode() for member in client.members
            }

        def run() -> int:
            client.syncing = self.scene.sync(
                client.member_id,
                assignments,
                generation_id=client.generation_id,
                instance_id=client.instance_id,
            )
            return 0

        error_of(run)

    @rule(index=st.integers(0, 5))
    def heartbeat(self, index: int) -> None:
        client = self.clients[index]
        self.scene.heartbeat_error(client.member_id, client.generation_id, client.instance_id)

    @rule(index=st.integers(0, 5))
    def leave(self, index: int) -> None:
        client = self.clients[index]
        self.scene.leave((client.member_id, client.instance_id))

    @rule(index=st.integers(0, 5), partition=st.integers(0, 2), offset=st.integers(0, 99))
    def commit(self, index: int, partition: int, offset: int) -> None:
        client = self.clients[index]
        error = self.scene.commit_error(
            {("t", partition): offset},
            member_id=client.member_id,
            generation_id=client.generation_id,
            instance_id=client.instance_id,
        )
        if not error:
            self.committed["t", partition] = offset

    @rule(milliseconds=st.sampled_from([100, 3_000, 9_000, 16_000]))
    def wait(self, milliseconds: int) -> None:
        self.scene.advance(milliseconds)

    @rule()
    def delete_group(self) -> None:
        deleted = error_of(
            lambda: self.scene.carry_out(self.scene.coordinator.delete_group(GROUP)) and 0
        )
        if not deleted:
            self.committed.clear()
            self.generation_id = 0
            for client in self.clients:
                client.generation_id = -1

    @rule()
    def restart(self) -> None:
        group = self.scene.coordinator.groups.classic(GROUP)
        settled = group is not None and group.state in (GroupState.STABLE, GroupState.EMPTY)
        again = self.scene.loaded()
        if settled:
            assert group is not None
            assert_same(group, again.group)
        self.scene = again
        restored = again.coordinator.groups.classic(GROUP)
        self.generation_id = 0 if restored is None else restored.generation_id
        for client in self.clients:
            client.joining = client.syncing = None
            client.generation_id = min(client.generation_id, self.generation_id)

    @invariant()
    def rules_hold(self) -> None:
        for client in self.clients:
            client.take_answers()
        assert self.scene.offsets() == self.committed
        group = self.scene.coordinator.groups.classic(GROUP)
        if group is None:
            return
        assert_rules(group)
        assert group.generation_id >= self.generation_id, "generations never go back"
        self.generation_id = group.generation_id


def assert_rules(group: ClassicGroup) -> None:
    members = group.members.values()
    assert (group.leader_id is None) == (not members)
    assert group.leader_id is None or group.leader_id in group.members
    assert group.static_members == {
        member.instance_id: member.member_id for member in members if member.is_static
    }
    assert group.awaiting_join == sum(member.awaiting_join is not None for member in members)
    assert group.pending_sync <= group.members.keys()
    assert not group.pending_join & group.members.keys()
    for name, count in group.protocol_support.items():
        assert count == sum(name in member.protocols for member in members) > 0
    if members:
        assert any(count == len(members) for count in group.protocol_support.values())
    match group.state:
        case GroupState.EMPTY:
            assert not members
        case GroupState.PREPARING_REBALANCE:
            assert all(member.awaiting_sync is None for member in members)
        case _:
            assert members
            assert all(group.protocol_name in member.protocols for member in members)
            assert all(member.awaiting_join is None for member in members)
    if group.state is GroupState.STABLE:
        assert all(member.awaiting_sync is None for member in members)


def assert_same(memory: ClassicGroup, log: ClassicGroup) -> None:
    assert (memory.state, memory.generation_id) == (log.state, log.generation_id)
    assert (memory.protocol_type, memory.protocol_name) == (log.protocol_type, log.protocol_name)
    assert memory.leader_id == log.leader_id
    assert memory.static_members == log.static_members
    assert memory.subscribed_topics == log.subscribed_topics
    assert {
        member.member_id: (member.assignment, member.session_timeout_ms, member.instance_id)
        for member in memory.members.values()
    } == {
        member.member_id: (member.assignment, member.session_timeout_ms, member.instance_id)
        for member in log.members.values()
    }


TestGroups = GroupMachine.TestCase
TestGroups.settings = settings(
    max_examples=examples(40),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
