"""JoinGroup, one rule a test."""

from __future__ import annotations

import pytest
from tests.unit.coordinator.scene import SETTINGS, Scene, subscription

from millstream.coordinator.group import join_group
from millstream.coordinator.group.settings import GroupSettings

RANGE = {"range": subscription("t")}


def test_a_new_member_is_sent_back_with_an_id_from_version_4() -> None:
    scene = Scene()
    response = scene.join(client_id="web", version=4).result()
    assert response.error_code == 79  # MEMBER_ID_REQUIRED
    assert response.member_id == "web-id1"
    assert response.generation_id == -1
    assert response.leader == ""
    assert scene.group.pending_join == {"web-id1"}
    assert scene.state == "Empty"


def test_a_new_member_gets_in_at_once_below_version_4() -> None:
    scene = Scene()
    reply = scene.join(client_id="web", version=3)
    assert not reply.done
    scene.advance(3_000)
    assert reply.result().error_code == 0
    assert reply.result().member_id == "web-id1"


def test_the_member_id_of_a_static_member_begins_with_its_instance_id() -> None:
    scene = Scene()
    scene.join(client_id="web", instance_id="one")
    assert list(scene.group.members) == ["one-id1"]


def test_the_first_generation_waits_for_the_initial_delay() -> None:
    scene = Scene()
    _, reply = scene.join_new()
    scene.advance(2_999)
    assert not reply.done
    assert scene.state == "PreparingRebalance"
    scene.advance(1)
    assert reply.result().generation_id == 1
    assert scene.state == "CompletingRebalance"


def test_a_member_that_comes_during_the_initial_delay_prolongs_it() -> None:
    scene = Scene()
    _, first = scene.join_new()
    scene.advance(2_000)
    _, second = scene.join_new()
    scene.advance(1_000)
    assert not first.done
    scene.advance(3_000)
    assert first.result().generation_id == second.result().generation_id == 1


def test_the_initial_delay_ends_with_the_rebalance_timeout() -> None:
    scene = Scene()
    _, first = scene.join_new(rebalance_timeout_ms=5_000)
    for _ in range(4):
        scene.advance(1_500)
        scene.join_new(rebalance_timeout_ms=5_000)
    assert first.done
    assert scene.now_ms == 6_000


def test_an_initial_delay_of_nothing_still_waits_for_the_clock() -> None:
    scene = Scene(GroupSettings(initial_rebalance_delay_ms=0))
    _, reply = scene.join_new()
    assert not reply.done
    scene.advance(0)
    assert reply.result().error_code == 0


def test_only_the_leader_gets_the_members() -> None:
    scene = Scene()
    first_id, first = scene.join_new()
    second_id, second = scene.join_new(protocols={"range": subscription("t", "u")})
    scene.advance(6_000)
    leader, follower = first.result(), second.result()
    assert leader.leader == follower.leader == first_id
    assert leader.protocol_type == "consumer"
    assert leader.protocol_name == "range"
    assert not leader.skip_assignment
    assert [(m.member_id, m.metadata) for m in leader.members] == [
        (first_id, subscription("t")),
        (second_id, subscription("t", "u")),
    ]
    assert follower.members == []


def test_an_id_that_was_given_out_expires_with_its_session() -> None:
    scene = Scene()
    member_id = scene.join().result().member_id
    scene.advance(9_999)
    assert scene.group.pending_join == {member_id}
    scene.advance(1)
    assert scene.group.pending_join == set()
    assert scene.join(member_id).result().error_code == 25  # UNKNOWN_MEMBER_ID


def test_a_new_member_that_never_comes_back_for_its_answer_expires() -> None:
    scene = Scene(GroupSettings(new_member_join_timeout_ms=20_000))
    stable = scene.stable_group(1)
    member_id, reply = scene.join_new(rebalance_timeout_ms=300_000, session_timeout_ms=300_000)
    for _ in range(4):  # the old member stays away from the rebalance, but lives
        scene.advance(5_000)
        scene.heartbeat(stable[0])
    assert reply.result().error_code == 25
    assert member_id not in scene.group.members


def test_an_unknown_group_with_a_member_id_is_an_unknown_member() -> None:
    scene = Scene()
    response = scene.join("m").result()
    assert response.error_code == 25
    assert response.member_id == "m"
    assert len(scene.coordinator.groups) == 0


def test_an_unknown_member_id_in_a_known_group() -> None:
    scene = Scene()
    scene.stable_group(1)
    response = scene.join("nobody").result()
    assert response.error_code == 25
    assert response.member_id == "nobody"


@pytest.mark.parametrize(("timeout_ms", "error"), [(5_999, 26), (6_000, 79), (1_800_001, 26)])
def test_session_timeouts_have_limits(timeout_ms: int, error: int) -> None:
    assert Scene().join(session_timeout_ms=timeout_ms).result().error_code == error


def test_another_protocol_type_is_inconsistent() -> None:
    scene = Scene()
    scene.stable_group(1)
    assert scene.join(protocol_type="connect").result().error_code == 23


def test_a_protocol_that_not_everybody_speaks_is_inconsistent() -> None:
    scene = Scene()
    scene.stable_group(1)
    assert scene.join(protocols={"sticky": b""}).result().error_code == 23


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", RANGE), ("consumer", {})])
def test_an_empty_group_wants_a_type_and_a_protocol(
    protocol_type: str, protocols: dict[str, bytes]
) -> None:
    scene = Scene()
    response = scene.join(protocol_type=protocol_type, protocols=protocols).result()
    assert response.error_code == 23
    assert response.member_id == ""


def test_a_group_that_was_heard_of_survives_a_restart() -> None:
    scene = Scene()
    scene.join()
    assert scene.loaded().state == "Empty"
    assert scene.loaded().group.protocol_type is None


def test_the_protocol_with_the_most_votes_wins() -> None:
    scene = Scene()
    a, b = b"a", b"b"
    scene.join_new(protocols={"range": a, "sticky": b})
    scene.join_new(protocols={"sticky": b, "range": a})
    _, reply = scene.join_new(protocols={"sticky": b, "range": a})
    scene.advance(9_000)
    assert reply.result().protocol_name == "sticky"


def test_only_protocols_that_everybody_speaks_are_candidates() -> None:
    scene = Scene()
    scene.join_new(protocols={"sticky": b"", "range": b""})
    scene.join_new(protocols={"sticky": b"", "range": b""})
    _, reply = scene.join_new(protocols={"range": b""})
    scene.advance(9_000)
    assert reply.result().protocol_name == "range"


def test_a_follower_that_asks_again_while_stable_gets_the_present_generation() -> None:
    scene = Scene()
    _, follower = scene.stable_group(2)
    response = scene.join(follower).result()
    assert (response.error_code, response.generation_id) == (0, 1)
    assert response.members == []
    assert scene.state == "Stable"


def test_a_leader_that_asks_again_while_stable_starts_a_rebalance() -> None:
    scene = Scene()
    leader, _ = scene.stable_group(2)
    assert not scene.join(leader).done
    assert scene.state == "PreparingRebalance"


def test_a_follower_with_new_metadata_starts_a_rebalance() -> None:
    scene = Scene()
    _, follower = scene.stable_group(2)
    assert not scene.join(follower, protocols={"range": subscription("u")}).done
    assert scene.state == "PreparingRebalance"


def test_a_member_that_lost_its_answer_gets_it_again_before_the_sync() -> None:
    scene = Scene()
    leader, _ = scene.join_new()
    follower, _ = scene.join_new()
    scene.advance(6_000)
    again = scene.join(leader).result()
    assert again.generation_id == 1
    assert len(again.members) == 2
    assert scene.join(follower).result().members == []
    assert scene.state == "CompletingRebalance"


def test_new_metadata_before_the_sync_starts_a_rebalance() -> None:
    scene = Scene()
    _leader, _ = scene.join_new()
    follower, _ = scene.join_new()
    scene.advance(6_000)
    waiting = scene.sync(follower)
    assert not scene.join(follower, protocols={"range": b"new"}).done
    assert waiting.result().error_code == 27  # REBALANCE_IN_PROGRESS
    assert scene.state == "PreparingRebalance"


def test_the_rebalance_ends_when_all_have_joined_again() -> None:
    scene = Scene()
    leader, follower = scene.stable_group(2)
    first = scene.join(leader)
    second = scene.join(follower)
    assert first.result().generation_id == second.result().generation_id == 2


def test_a_member_that_does_not_rejoin_in_time_is_removed() -> None:
    scene = Scene()
    leader, follower = scene.stable_group(2, session_timeout_ms=100_000)
    reply = scene.join(leader, session_timeout_ms=100_000)
    scene.advance(59_999)
    assert not reply.done
    scene.advance(1)
    assert reply.result().generation_id == 2
    assert list(scene.group.members) == [leader]
    assert scene.heartbeat_error(follower) == 25


def test_another_leads_when_the_leader_did_not_join_in_time() -> None:
    scene = Scene()
    leader, follower = scene.stable_group(2, session_timeout_ms=100_000)
    reply = scene.join(follower, protocols={"range": b"new"}, session_timeout_ms=100_000)
    scene.advance(60_000)
    assert reply.result().leader == follower
    assert leader not in scene.group.members


def test_a_member_that_asks_twice_is_answered_on_the_newer_connection() -> None:
    scene = Scene()
    leader, follower = scene.stable_group(2)
    older = scene.join(leader)
    newer = scene.join(leader)
    assert older.result().error_code == 27
    scene.join(follower)
    assert newer.result().generation_id == 2


def test_the_rebalance_waits_for_ids_that_were_given_out() -> None:
    scene = Scene()
    leader = scene.stable_group(1)[0]
    pending = scene.join().result().member_id
    reply = scene.join(leader)
    assert not reply.done
    scene.join(pending)
    assert reply.result().generation_id == 2


def test_an_id_that_expires_lets_the_rebalance_end() -> None:
    scene = Scene()
    leader = scene.stable_group(1)[0]
    scene.join()
    reply = scene.join(leader)
    scene.advance(10_000)
    assert reply.result().generation_id == 2


def test_a_full_group_refuses_new_members() -> None:
    scene = Scene(GroupSettings(max_size=2))
    scene.stable_group(2)
    response = scene.join().result()
    assert response.error_code == 81  # GROUP_MAX_SIZE_REACHED
    assert response.member_id == ""


def test_the_size_limit_counts_waiting_members_during_a_rebalance() -> None:
    scene = Scene(GroupSettings(max_size=2))
    _, first = scene.join_new()
    pending = scene.join().result().member_id
    late = scene.join().result().member_id
    second = scene.join(pending)
    assert scene.join(late).result().error_code == 81
    scene.advance(9_000)
    assert first.result().error_code == second.result().error_code == 0


def test_a_limit_that_was_lowered_sends_away_the_last_to_come_back() -> None:
    scene = Scene()
    one, two, three = scene.stable_group(3)
    smaller = scene.loaded(GroupSettings(max_size=2))
    assert smaller.state == "PreparingRebalance"
    first, second = smaller.join(one), smaller.join(two)
    assert smaller.join(three).result().error_code == 81
    assert first.result().error_code == second.result().error_code == 0


def test_metadata_that_no_record_could_hold_is_refused() -> None:
    scene = Scene(GroupSettings(max_batch_bytes=1_000))
    assert scene.join(protocols={"range": bytes(1_001)}).result().error_code == 42


def test_members_cannot_fill_the_memory_with_metadata() -> None:
    scene = Scene(GroupSettings(max_batch_bytes=1_000))
    for _ in range(4):
        scene.join(protocols={"range": bytes(800)}, version=3)
    assert scene.join(protocols={"range": bytes(801)}, version=3).result().error_code == 81
    assert not scene.join(protocols={"range": bytes(800)}, version=3).done


def test_a_shard_has_so_many_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_group, "MAX_SESSIONS_PER_SHARD", 3)
    scene = Scene()
    for _ in range(3):
        assert scene.join().result().error_code == 79
    assert scene.join().result().error_code == 81
    scene.advance(10_000)
    assert scene.join().result().error_code == 79


def test_a_group_of_another_type_keeps_its_type() -> None:
    scene = Scene()
    _, reply = scene.join_new(protocol_type="connect", protocols={"v1": b"x"})
    scene.advance(3_000)
    assert reply.result().protocol_type == "connect"
    assert scene.group.subscribed_topics is None


def test_an_empty_group_may_change_its_type() -> None:
    scene = Scene()
    member = scene.stable_group(1)[0]
    scene.leave((member, None))
    assert scene.state == "Empty"
    _, reply = scene.join_new(protocol_type="connect", protocols={"v1": b"x"})
    scene.advance(3_000)
    assert reply.result().protocol_type == "connect"
    assert reply.result().generation_id == 3


def test_settings_of_the_scene_are_the_defaults_of_kafka() -> None:
    assert GroupSettings() == SETTINGS
