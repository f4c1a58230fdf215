"""Static members (KIP-345, KIP-814), one rule a test."""

from __future__ import annotations

from tests.unit.coordinator.scene import Scene, subscription

from millstream.model.deferred import Deferred
from millstream.protocol.messages.join_group import JoinGroupResponse


def static_group(scene: Scene, *instances: str) -> list[str]:
    """Bring static members to STABLE; the first one leads."""
    replies = [scene.join(instance_id=instance) for instance in instances]
    scene.advance(9_000)
    members = [reply.result().member_id for reply in replies]
    for member_id, instance in zip(members[1:], instances[1:], strict=True):
        scene.sync(member_id, instance_id=instance)
    scene.sync(members[0], {m: m.encode() for m in members}, instance_id=instances[0])
    assert scene.state == "Stable"
    return members


def test_a_new_static_member_needs_no_round_trip() -> None:
    scene = Scene()
    assert not scene.join(instance_id="a").done
    assert len(scene.group.members) == 1


def test_a_follower_that_comes_back_gets_the_present_generation() -> None:
    scene = Scene()
    _, old = static_group(scene, "a", "b")
    response = scene.join(instance_id="b").result()
    assert response.error_code == 0
    assert response.generation_id == 1
    assert response.member_id != old
    assert response.members == []
    assert not response.skip_assignment
    assert scene.state == "Stable"


def test_its_assignment_waits_for_it() -> None:
    scene = Scene()
    _, old = static_group(scene, "a", "b")
    new = scene.join(instance_id="b").result().member_id
    assert scene.sync(new, instance_id="b").result().assignment == old.encode()


def test_a_leader_that_comes_back_is_told_to_skip_the_assignment() -> None:
    scene = Scene()
    static_group(scene, "a", "b")
    response = scene.join(instance_id="a", version=9).result()
    assert response.leader == response.member_id
    assert response.skip_assignment
    assert len(response.members) == 2


def test_below_version_9_a_leader_that_comes_back_hears_that_its_old_id_leads() -> None:
    scene = Scene()
    old, _ = static_group(scene, "a", "b")
    response = scene.join(instance_id="a", version=8).result()
    assert response.leader == old
    assert response.member_id != old
    assert response.members == []
    assert not response.skip_assignment
    assert scene.group.leader_id == response.member_id


def test_the_old_process_is_fenced() -> None:
    scene = Scene()
    _, old = static_group(scene, "a", "b")
    scene.join(instance_id="b")
    assert scene.heartbeat_error(old, instance_id="b") == 82  # FENCED_INSTANCE_ID
    assert scene.sync_error(old, instance_id="b") == 82
    assert scene.commit_error({("t", 0): 1}, member_id=old, generation_id=1, instance_id="b") == 82
    assert scene.join(old, instance_id="b").result().error_code == 82
    assert scene.leave((old, "b")).members[0].error_code == 82


def test_the_old_process_that_waits_is_fenced_at_once() -> None:
    scene = Scene()
    older = scene.join(instance_id="a")
    newer = scene.join(instance_id="a")
    assert older.result().error_code == 82
    assert older.result().member_id == "a-id1"
    scene.advance(3_000)
    assert newer.result().error_code == 0
    assert list(scene.group.members) == [newer.result().member_id]


def test_the_new_member_id_survives_a_restart() -> None:
    scene = Scene()
    static_group(scene, "a", "b")
    new = scene.join(instance_id="b").result().member_id
    again = scene.loaded()
    assert again.group.static_members["b"] == new
    assert again.heartbeat(new, instance_id="b") == 0


def test_a_member_that_comes_back_with_another_protocol_starts_a_rebalance() -> None:
    scene = Scene()
    both = {"range": subscription("t"), "sticky": subscription("t")}
    replies: list[Deferred[JoinGroupResponse]] = [
        scene.join(instance_id=name, protocols=both) for name in ("a", "b")
    ]
    scene.advance(9_000)
    leader, follower = (reply.result().member_id for reply in replies)
    scene.sync(follower, instance_id="b")
    scene.sync(leader, instance_id="a")
    assert scene.group.protocol_name == "range"
    assert not scene.join(instance_id="b", protocols={"sticky": subscription("t")}).done
    assert scene.state == "PreparingRebalance"


def test_a_member_that_comes_back_before_the_sync_starts_a_rebalance() -> None:
    scene = Scene()
    scene.join(instance_id="a")
    follower = scene.join(instance_id="b")
    scene.advance(9_000)
    waiting = scene.sync(follower.result().member_id, instance_id="b")
    assert not scene.join(instance_id="b").done
    assert waiting.result().error_code == 82
    assert scene.state == "PreparingRebalance"


def test_a_static_member_stays_in_the_group_when_it_misses_a_rebalance() -> None:
    scene = Scene()
    replies = [
        scene.join(instance_id=name, session_timeout_ms=300_000, rebalance_timeout_ms=20_000)
        for name in ("a", "b")
    ]
    scene.advance(9_000)
    leader, absent = (reply.result().member_id for reply in replies)
    scene.sync(absent, instance_id="b")
    scene.sync(leader, instance_id="a")
    again = scene.join(leader, instance_id="a", session_timeout_ms=300_000)
    scene.advance(60_000)
    assert again.result().generation_id == 2
    assert absent in scene.group.members


def test_a_rebalance_that_no_static_member_joins_goes_on() -> None:
    scene = Scene()
    leader, other = static_group(scene, "a", "b")
    scene.heartbeat(other)
    scene.leave((leader, "a"))
    assert scene.state == "PreparingRebalance"
    for _ in range(15):
        scene.advance(5_000)
        scene.heartbeat(other)
    assert scene.state == "PreparingRebalance"
    assert scene.group.generation_id == 1


def test_members_without_a_rebalance_timeout_do_not_keep_the_coordinator_busy() -> None:
    scene = Scene()
    leader, absent = static_group(scene, "a", "b")
    scene.group.members[absent].rebalance_timeout_ms = 0
    scene.leave((leader, "a"))
    scene.advance(9_000)
    assert scene.state == "PreparingRebalance"
    assert list(scene.group.members) == [absent]


def test_a_static_member_expires_like_any_other() -> None:
    scene = Scene()
    static_group(scene, "a")
    scene.advance(10_000)
    assert scene.state == "Empty"
    assert scene.group.static_members == {}


def test_an_administrator_removes_a_member_by_its_instance_id() -> None:
    scene = Scene()
    static_group(scene, "a", "b")
    response = scene.leave(("", "b"), ("", "c"), ("", None))
    assert [member.error_code for member in response.members] == [0, 25, 25]
    assert list(scene.group.static_members) == ["a"]
    assert scene.state == "PreparingRebalance"


def test_an_unused_instance_id_is_unknown() -> None:
    scene = Scene()
    member = scene.stable_group(1)[0]
    assert scene.heartbeat_error(member, instance_id="a") == 25


def test_a_pending_member_cannot_become_static() -> None:
    scene = Scene()
    member_id = scene.join().result().member_id
    assert scene.join(member_id, instance_id="a").result().error_code == 25
    assert scene.join(instance_id="a").done is False
