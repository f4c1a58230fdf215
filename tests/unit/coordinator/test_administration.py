"""DescribeGroups, ListGroups, DeleteGroups: one rule a test."""

from __future__ import annotations

import pytest
from tests.unit.coordinator.scene import GROUP, Scene, error_of, subscription

from millstream.coordinator.group import groups
from millstream.protocol.messages.describe_groups import DescribedGroup


def describe(scene: Scene, group_id: str = GROUP, version: int = 6) -> DescribedGroup:
    response = scene.coordinator.describe_group(group_id, version).response
    assert response is not None
    return response


def listed(scene: Scene, *states: str, types: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    response = scene.coordinator.list_groups(states=states, types=types).response
    assert response is not None
    return [(group.group_id, group.group_state) for group in response]


def delete(scene: Scene, group_id: str = GROUP) -> int:
    def run() -> int:
        result = scene.carry_out(scene.coordinator.delete_group(group_id))
        assert result.response is not None
        return result.response.error_code

    return error_of(run)


@pytest.mark.parametrize(("version", "error"), [(5, 0), (6, 69)])
def test_an_unknown_group_is_dead(version: int, error: int) -> None:
    group = describe(Scene(), "unknown", version)
    assert (group.error_code, group.group_state, group.members) == (error, "Dead", [])
    assert (group.error_message is not None) == bool(error)


def test_a_stable_group_shows_protocol_metadata_and_assignment() -> None:
    scene = Scene()
    leader, _ = scene.stable_group(2, client_id="web")
    group = describe(scene)
    assert (group.group_state, group.protocol_type, group.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    member = group.members[0]
    assert (member.member_id, member.client_id, member.client_host) == (
        leader,
        "web",
        "/127.0.0.1",
    )
    assert member.member_metadata == subscription("t")
    assert member.member_assignment == leader.encode()


def test_a_group_in_a_rebalance_shows_no_protocol() -> None:
    scene = Scene()
    leader, _ = scene.stable_group(2)
    scene.join(leader)
    group = describe(scene)
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert [member.member_metadata for member in group.members] == [b"", b""]
    assert group.members[0].member_assignment == leader.encode()


def test_a_simple_group_is_empty_without_a_type() -> None:
    scene = Scene()
    scene.commit({("t", 0): 1})
    group = describe(scene)
    assert (group.group_state, group.protocol_type) == ("Empty", "")


def test_filters_ignore_case() -> None:
    scene = Scene()
    scene.stable_group(1)
    scene.commit({("t", 0): 1}, group_id="simple")
    assert listed(scene) == [(GROUP, "Stable"), ("simple", "Empty")]
    assert listed(scene, " sTABLE ") == [(GROUP, "Stable")]
    assert listed(scene, "empty", "stable") == [(GROUP, "Stable"), ("simple", "Empty")]
    assert listed(scene, "nonsense") == []
    assert listed(scene, types=("Classic",)) == [(GROUP, "Stable"), ("simple", "Empty")]
    assert listed(scene, types=("consumer", "nonsense")) == []
    assert listed(scene, "Empty", types=("consumer", "CLASSIC")) == [("simple", "Empty")]


def test_an_empty_group_goes_with_its_offsets() -> None:
    scene = Scene()
    scene.commit({("t", 0): 1, ("u", 1): 2})
    assert delete(scene) == 0
    assert listed(scene) == []
    assert scene.offsets() == {}
    assert listed(scene.loaded()) == []
    assert scene.loaded().offsets() == {}


def test_a_group_with_members_stays() -> None:
    scene = Scene()
    member = scene.stable_group(1)[0]
    assert delete(scene) == 68  # NON_EMPTY_GROUP
    scene.leave((member, None))
    assert delete(scene) == 0


def test_an_unknown_group_cannot_be_deleted() -> None:
    assert delete(Scene()) == 69  # GROUP_ID_NOT_FOUND


def test_an_id_that_was_given_out_does_not_outlive_the_group() -> None:
    scene = Scene()
    pending = scene.join().result().member_id
    assert delete(scene) == 0
    assert scene.join(pending).result().error_code == 25
    assert scene.coordinator.next_deadline_ms is None


def test_a_deleted_group_can_be_created_again() -> None:
    scene = Scene()
    member = scene.stable_group(1)[0]
    scene.leave((member, None))
    delete(scene)
    _, reply = scene.join_new()
    scene.advance(3_000)
    assert reply.result().generation_id == 1


def test_a_shard_takes_so_many_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "MAX_GROUPS_PER_SHARD", 2)
    scene = Scene()
    scene.commit({("t", 0): 1}, group_id="one")
    scene.commit({("t", 0): 1}, group_id="two")
    assert scene.commit_error({("t", 0): 1}, group_id="three") == 44  # POLICY_VIOLATION
    assert scene.commit_error({("t", 0): 1}, group_id="two") == 0
    assert error_of(lambda: scene.join().result().error_code) == 44
