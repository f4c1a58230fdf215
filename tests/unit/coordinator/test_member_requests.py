"""SyncGroup, Heartbeat and LeaveGroup, and sessions that expire: one rule a test."""

from __future__ import annotations

import pytest
from tests.unit.coordinator.scene import Scene

from millstream.coordinator.group.settings import GroupSettings


def completing_group(scene: Scene) -> tuple[str, str]:
    """Bring two members to the sync phase; return the leader and the follower."""
    leader, _ = scene.join_new()
    follower, _ = scene.join_new()
    scene.advance(6_000)
    assert scene.state == "CompletingRebalance"
    return leader, follower


# SyncGroup


def test_followers_wait_for_the_leaders_assignment() -> None:
    scene = Scene()
    leader, follower = completing_group(scene)
    waiting = scene.sync(follower)
    assert not waiting.done
    own = scene.sync(leader, {leader: b"one", follower: b"two"}).result()
    assert (own.error_code, own.assignment) == (0, b"one")
    assert (own.protocol_type, own.protocol_name) == ("consumer", "range")
    assert waiting.result().assignment == b"two"
    assert scene.state == "Stable"


def test_a_member_without_an_assignment_gets_an_empty_one() -> None:
    scene = Scene()
    leader, follower = completing_group(scene)
    scene.sync(leader, {leader: b"one", "somebody else": b"x"})
    assert scene.sync(follower).result().assignment == b""


def test_a_stable_group_gives_the_assignment_again() -> None:
    scene = Scene()
    leader, follower = scene.stable_group(2)
    assert scene.sync(follower).result().assignment == follower.encode()
    assert scene.sync(leader, {leader: b"another"}).result().assignment == leader.encode()


def test_the_assignment_survives_a_restart() -> None:
    scene = Scene()
    members = scene.stable_group(3)
    again = scene.loaded()
    assert again.state == "Stable"
    assert again.group.generation_id == 1
    assert again.group.leader_id == members[0]
    assert [again.sync(m).result().assignment for m in members] == [m.encode() for m in members]
    assert again.group.subscribed_topics == {"t"}


def test_a_generation_without_assignment_does_not_survive_a_restart() -> None:
    scene = Scene()
    completing_group(scene)
    assert scene.loaded().state == "Empty"


def test_sync_during_a_rebalance_says_so() -> None:
    scene = Scene()
    leader, follower = scene.stable_group(2)
    scene.join(leader)
    assert scene.sync(follower).result().error_code == 27  # REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"generation_id": 0}, 22),  # ILLEGAL_GENERATION
        ({"generation_id": 2}, 22),
        ({"protocol_type": "connect"}, 23),  # INCONSISTENT_GROUP_PROTOCOL
        ({"protocol_name": "sticky"}, 23),
        ({"protocol_type": None}, 0),
        ({"protocol_name": "range"}, 0),
    ],
)
def test_sync_must_fit_the_generation(options: dict[str, object], error: int) -> None:
    scene = Scene()
    leader, _ = scene.stable_group(2)
    assert scene.sync_error(leader, **options) == error


def test_sync_of_an_unknown_member_or_group() -> None:
    scene = Scene()
    assert scene.sync_error("m", generation_id=1) == 25
    member = scene.stable_group(1)[0]
    assert scene.sync_error("m") == 25
    scene.leave((member, None))
    assert scene.sync_error(member) == 25


def test_members_that_never_sync_are_out() -> None:
    scene = Scene()
    leader, follower = completing_group(scene)
    waiting = scene.sync(leader, {})
    assert waiting.done
    assert scene.state == "Stable"
    for _ in range(11):
        scene.advance(5_000)
        scene.heartbeat(leader)
        scene.heartbeat(follower)
    scene.advance(5_000)
    assert list(scene.group.members) == [leader]
    assert scene.state == "PreparingRebalance"


def test_a_leader_that_never_syncs_is_out() -> None:
    scene = Scene()
    leader, follower = completing_group(scene)
    waiting = scene.sync(follower)
    for _ in range(12):
        assert not waiting.done
        scene.heartbeat(leader)
        scene.advance(5_000)
    assert waiting.result().error_code == 27
    assert list(scene.group.members) == [follower]


def test_an_assignment_that_no_record_could_hold_fails_the_sync() -> None:
    scene = Scene(GroupSettings(max_batch_bytes=10_000))
    leader, follower = completing_group(scene)
    waiting = scene.sync(follower)
    assert scene.sync(leader, {leader: bytes(10_000)}).result().error_code == -1
    assert waiting.result().error_code == -1
    assert scene.state == "PreparingRebalance"


# Heartbeat


def test_a_heartbeat_keeps_the_session() -> None:
    scene = Scene()
    member = scene.stable_group(1)[0]
    for _ in range(10):
        scene.advance(9_999)
        assert scene.heartbeat(member) == 0
    scene.advance(10_000)
    assert scene.state == "Empty"


def test_a_heartbeat_learns_of_a_rebalance_and_keeps_the_session() -> None:
    scene = Scene()
    leader, follower = scene.stable_group(2)
    scene.join(leader)
    for _ in range(5):
        scene.advance(9_999)
        assert scene.heartbeat(follower) == 27


def test_a_heartbeat_between_join_and_sync_is_fine() -> None:
    scene = Scene()
    leader, follower = completing_group(scene)
    assert scene.heartbeat(leader) == scene.heartbeat(follower) == 0


@pytest.mark.parametrize(("generation_id", "error"), [(0, 22), (1, 0), (2, 22), (-1, 22)])
def test_a_heartbeat_must_be_of_the_generation(generation_id: int, error: int) -> None:
    scene = Scene()
    member = scene.stable_group(1)[0]
    assert scene.heartbeat_error(member, generation_id) == error


def test_a_heartbeat_of_an_unknown_member_or_group() -> None:
    scene = Scene()
    assert scene.heartbeat_error("m", 1) == 25
    scene.stable_group(1)
    assert scene.heartbeat_error("m") == 25
    scene.join()
    pending = next(iter(scene.group.pending_join))
    assert scene.heartbeat_error(pending) == 25


def test_a_member_that_falls_silent_starts_a_rebalance() -> None:
    scene = Scene()
    leader, follower = scene.stable_group(2)
    scene.advance(5_000)
    scene.heartbeat(leader)
    scene.advance(5_000)
    assert list(scene.group.members) == [leader]
    assert scene.heartbeat(leader) == 27
    assert scene.heartbeat_error(follower) == 25


def test_a_leader_that_falls_silent_leaves_the_lead() -> None:
    scene = Scene()
    _, follower = scene.stable_group(2)
    scene.advance(5_000)
    scene.heartbeat(follower)
    scene.advance(5_000)
    assert scene.group.leader_id == follower


def test_a_member_waiting_in_a_rebalance_does_not_expire() -> None:
    scene = Scene()
    leader, follower = scene.stable_group(2)
    waiting = scene.join(leader)
    for _ in range(5):
        scene.advance(9_000)
        scene.heartbeat(follower)
    assert not waiting.done
    assert leader in scene.group.members


def test_sessions_restart_after_a_restart() -> None:
    scene = Scene()
    member = scene.stable_group(1)[0]
    scene.advance(9_000)
    again = scene.loaded()
    again.advance(9_999)
    assert again.heartbeat(member) == 0
    again.advance(10_000)
    assert again.state == "Empty"


# LeaveGroup


def test_a_leaving_member_is_removed_at_once() -> None:
    scene = Scene()
    leader, follower = scene.stable_group(2)
    assert scene.leave((follower, None)).members[0].error_code == 0
    assert scene.state == "PreparingRebalance"
    assert scene.heartbeat(leader) == 27
    assert scene.join(leader).result().generation_id == 2


def test_the_last_one_to_leave_empties_the_group() -> None:
    scene = Scene()
    member = scene.stable_group(1)[0]
    scene.advance(1_000)
    scene.leave((member, None))
    assert scene.state == "Empty"
    assert scene.group.generation_id == 2
    assert scene.group.leader_id is None
    again = scene.loaded()
    assert (again.state, again.group.generation_id) == ("Empty", 2)
    assert again.group.protocol_type == "consumer"
    assert again.group.state_timestamp_ms == scene.now.wall_ms


def test_several_leave_at_once_and_each_gets_its_answer() -> None:
    scene = Scene()
    one, two, three = scene.stable_group(3)
    response = scene.leave((one, None), ("nobody", None), (two, None))
    assert [member.error_code for member in response.members] == [0, 25, 0]
    assert [member.member_id for member in response.members] == [one, "nobody", two]
    assert scene.group.leader_id == three


def test_leaving_an_unknown_group_is_an_error() -> None:
    response = Scene().leave(("m", None), ("n", "i"))
    assert response.error_code == 0
    assert [member.error_code for member in response.members] == [25, 25]
    assert response.members[1].group_instance_id == "i"


def test_an_id_that_was_given_out_can_leave() -> None:
    scene = Scene()
    leader = scene.stable_group(1)[0]
    pending = scene.join().result().member_id
    waiting = scene.join(leader)
    assert scene.leave((pending, None)).members[0].error_code == 0
    assert waiting.result().generation_id == 2


def test_a_member_that_leaves_while_it_waits_in_a_rebalance_is_unknown() -> None:
    scene = Scene()
    leader, follower = scene.stable_group(2)
    waiting = scene.join(leader)
    scene.leave((leader, None))
    assert waiting.result().error_code == 25
    assert scene.group.leader_id == follower


def test_the_last_to_be_awaited_leaves_and_the_rebalance_ends() -> None:
    scene = Scene()
    leader, follower = scene.stable_group(2)
    waiting = scene.join(leader)
    scene.leave((follower, None))
    assert waiting.result().generation_id == 2


def test_a_member_that_leaves_while_it_waits_for_an_assignment_is_unknown() -> None:
    scene = Scene()
    leader, follower = completing_group(scene)
    waiting = scene.sync(follower)
    scene.leave((follower, None))
    assert waiting.result().error_code == 25
    assert scene.join(leader).result().generation_id == 2


def test_leaving_during_the_initial_delay_leaves_an_empty_generation() -> None:
    scene = Scene()
    member, _ = scene.join_new()
    scene.leave((member, None))
    assert scene.state == "PreparingRebalance"
    scene.advance(3_000)
    assert scene.state == "Empty"
    assert scene.group.generation_id == 1


def test_a_coordinator_that_moves_away_answers_everybody() -> None:
    scene = Scene()
    leader, _ = scene.stable_group(2)
    waiting_to_join = scene.join(leader)
    scene.carry_out(scene.coordinator.on_unloaded())
    assert waiting_to_join.result().error_code == 16  # NOT_COORDINATOR
    other = Scene()
    _, follower = completing_group(other)
    waiting_to_sync = other.sync(follower)
    other.carry_out(other.coordinator.on_unloaded())
    assert waiting_to_sync.result().error_code == 16
    assert other.coordinator.next_deadline_ms is None
