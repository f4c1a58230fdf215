"""Groups with members of both protocols, upgrades and downgrades."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.coordinator.consumer.classic_consumer import ClassicConsumer
from tests.unit.coordinator.consumer.consumer_scene import (
    Consumer,
    ConsumerScene,
    settle,
    topics,
)
from tests.unit.coordinator.scene import GROUP, SETTINGS

from millstream.coordinator.group.classic_group import ClassicGroup
from millstream.coordinator.group.consumer.consumer_group import ConsumerGroup
from millstream.coordinator.group.settings import ConsumerSettings, MigrationPolicy
from millstream.model.errors import ErrorCode, KafkaError


def run(scene: ConsumerScene, *consumers: ClassicConsumer | Consumer, rounds: int = 30) -> None:
    for _ in range(rounds):
        scene.advance(500)
        for consumer in consumers:
            if isinstance(consumer, Consumer):
                consumer.beat()
            else:
                consumer.step()


def all_partitions(*consumers: ClassicConsumer | Consumer) -> list[int]:
    return sorted(part for consumer in consumers for part in consumer.owned.get("t", []))


@pytest.fixture
def scene() -> ConsumerScene:
    return ConsumerScene(topics=topics(t=4))


def test_a_classic_group_is_upgraded_by_the_first_member_of_the_consumer_protocol(
    scene: ConsumerScene,
) -> None:
    a, b = ClassicConsumer(scene), ClassicConsumer(scene)
    run(scene, a, b)
    assert all_partitions(a, b) == [0, 1, 2, 3]
    generation, before = a.generation, (dict(a.owned), dict(b.owned))
    new = Consumer(scene, "new")
    new.beat()
    group = scene.consumers
    assert group.classic_count == 2
    assert group.group_epoch == generation + 1
    assert (a.owned, b.owned) == before  # nobody has stopped
    run(scene, a, b, new)
    assert all_partitions(a, b, new) == [0, 1, 2, 3]
    assert all(consumer.owned for consumer in (a, b, new))
    restarted = scene.loaded()
    assert isinstance(restarted, ConsumerScene)
    assert restarted.consumers.members == scene.consumers.members


def test_a_member_that_waits_in_a_classic_rebalance_is_told_to_rejoin(scene: ConsumerScene) -> None:
    members = scene.stable_group(2)
    waiting = scene.join(members[0], protocols={"range": b"\x00\x00" + b"\x00" * 8})
    assert not waiting.done
    with pytest.raises(KafkaError):
        # What the leader of this group assigned is no assignment of consumers.
        scene.beat("new")
    assert not waiting.done


def test_waiting_members_hear_of_the_upgrade(scene: ConsumerScene) -> None:
    a, b = ClassicConsumer(scene), ClassicConsumer(scene)
    run(scene, a, b)
    a._send_join()
    leader, other = (a, b) if a.join is not None and not a.join.done else (b, a)
    if leader is b:
        b._send_join()
    waiting = leader.join
    assert waiting is not None
    assert not waiting.done
    scene.beat("new")
    assert waiting.result().error_code == ErrorCode.REBALANCE_IN_PROGRESS.code
    run(scene, a, b)
    assert other.member_id in scene.consumers.members


def test_a_classic_member_joins_a_consumer_group(scene: ConsumerScene) -> None:
    one, a = Consumer(scene, "one"), ClassicConsumer(scene)
    settle(scene, one)
    run(scene, one, a)
    assert all_partitions(one, a) == [0, 1, 2, 3]
    assert len(one.owned["t"]) == len(a.owned["t"]) == 2
    answer = scene.leave((a.member_id, None))
    assert answer.members[0].error_code == 0
    run(scene, one)
    assert all_partitions(one) == [0, 1, 2, 3]
    answer = scene.leave(("one", None))
    assert answer.members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID.code


@pytest.mark.parametrize(("version", "asks"), [(3, False), (4, True)])
def test_a_classic_member_asks_for_its_id_first_from_version_4_on(
    scene: ConsumerScene, version: int, asks: bool
) -> None:
    one, a = Consumer(scene, "one"), ClassicConsumer(scene)
    run(scene, one)
    answer = scene.join(version=version, protocols=a.protocols()).result()
    refusal = ErrorCode.MEMBER_ID_REQUIRED if asks else ErrorCode.NONE
    assert answer.error_code == refusal.code
    assert answer.member_id
    assert (answer.member_id in scene.consumers.members) is not asks


def test_the_last_member_of_the_consumer_protocol_leaves_a_classic_group_behind(
    scene: ConsumerScene,
) -> None:
    one, a, b = Consumer(scene, "one"), ClassicConsumer(scene), ClassicConsumer(scene)
    run(scene, one, a, b)
    scene.beat("one", -1)
    group = scene.coordinator.groups.get(GROUP)
    assert isinstance(group, ClassicGroup)
    assert len(group.members) == 2
    run(scene, a, b)
    assert scene.state == "Stable"
    assert all_partitions(a, b) == [0, 1, 2, 3]
    assert scene.loaded().state == "Stable"


def test_a_group_goes_back_and_forth(scene: ConsumerScene) -> None:
    a = ClassicConsumer(scene)
    run(scene, a)
    for name in ("one", "two"):
        one = Consumer(scene, name)
        run(scene, a, one)
        assert isinstance(scene.coordinator.groups.get(GROUP), ConsumerGroup)
        assert all_partitions(a, one) == [0, 1, 2, 3]
        scene.beat(name, -1)
        assert isinstance(scene.coordinator.groups.get(GROUP), ClassicGroup)
        run(scene, a)
        assert all_partitions(a) == [0, 1, 2, 3]


def test_the_session_of_the_last_consumer_ends_in_a_downgrade(scene: ConsumerScene) -> None:
    one, a = Consumer(scene, "one"), ClassicConsumer(scene)
    run(scene, one, a)
    run(scene, a, rounds=100)
    assert isinstance(scene.coordinator.groups.get(GROUP), ClassicGroup)
    assert all_partitions(a) == [0, 1, 2, 3]


def test_a_static_member_is_replaced_across_protocols(scene: ConsumerScene) -> None:
    one, a = Consumer(scene, "one", instance_id="i1"), ClassicConsumer(scene, instance_id="i2")
    run(scene, one, a)
    had = one.owned
    b = ClassicConsumer(scene, instance_id="i1")
    b.step()  # it takes the place of the last member of the consumer protocol
    group = scene.coordinator.groups.get(GROUP)
    assert isinstance(group, ClassicGroup)
    run(scene, a, b)
    assert all_partitions(a, b) == [0, 1, 2, 3]
    assert had
    new = Consumer(scene, "new", instance_id="i2")
    run(scene, b, new)
    assert isinstance(scene.coordinator.groups.get(GROUP), ConsumerGroup)
    assert all_partitions(b, new) == [0, 1, 2, 3]


def test_a_classic_member_that_does_not_rejoin_is_removed(scene: ConsumerScene) -> None:
    one, a = Consumer(scene, "one"), ClassicConsumer(scene)
    run(scene, one, a)
    scene.put_topic("t", 6)
    for _ in range(60):
        scene.advance(500)
        one.beat()
        if a.member_id in scene.consumers.members:
            scene.heartbeat(a.member_id, a.generation)
    assert a.member_id not in scene.consumers.members


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.DOWNGRADE])
def test_an_upgrade_may_be_forbidden(policy: MigrationPolicy) -> None:
    settings = replace(SETTINGS, consumer=ConsumerSettings(migration_policy=policy))
    scene = ConsumerScene(settings, topics(t=4))
    a = ClassicConsumer(scene)
    run(scene, a)
    assert scene.beat_error("one") is ErrorCode.GROUP_ID_NOT_FOUND
    run(scene, a)
    assert all_partitions(a) == [0, 1, 2, 3]


def test_a_downgrade_may_be_forbidden() -> None:
    policy = MigrationPolicy.UPGRADE
    settings = replace(SETTINGS, consumer=ConsumerSettings(migration_policy=policy))
    scene = ConsumerScene(settings, topics(t=4))
    one, a = Consumer(scene, "one"), ClassicConsumer(scene)
    run(scene, one, a)
    scene.beat("one", -1)
    run(scene, a)
    assert isinstance(scene.coordinator.groups.get(GROUP), ConsumerGroup)
    assert all_partitions(a) == [0, 1, 2, 3]


def test_a_group_whose_members_only_have_ids_yet_becomes_a_consumer_group(
    scene: ConsumerScene,
) -> None:
    given = scene.join(protocols=ClassicConsumer(scene).protocols()).result()
    assert given.error_code == ErrorCode.MEMBER_ID_REQUIRED.code
    one, a = Consumer(scene, "one"), ClassicConsumer(scene, member_id=given.member_id)
    assert one.beat() is ErrorCode.NONE
    a.step()
    assert set(scene.consumers.members) == {"one", given.member_id}
    run(scene, one, a)
    assert all_partitions(one, a) == [0, 1, 2, 3]


def test_a_group_in_its_first_rebalance_becomes_a_consumer_group(scene: ConsumerScene) -> None:
    one, a, b = Consumer(scene, "one"), ClassicConsumer(scene), ClassicConsumer(scene)
    a.step()
    given = scene.join(protocols=b.protocols()).result()
    b.member_id = given.member_id
    waiting = a.join
    assert waiting is not None
    assert not waiting.done
    assert one.beat() is ErrorCode.NONE
    assert waiting.result().error_code == ErrorCode.REBALANCE_IN_PROGRESS.code
    run(scene, one, a, b)
    assert all_partitions(one, a, b) == [0, 1, 2, 3]
    assert all(consumer.owned for consumer in (one, a, b))


def test_a_member_that_comes_back_after_a_downgrade_is_told_to_join_again(
    scene: ConsumerScene,
) -> None:
    one, a = Consumer(scene, "one"), ClassicConsumer(scene)
    run(scene, one, a)
    run(scene, a, rounds=100)  # the session of the other one ends
    assert isinstance(scene.coordinator.groups.get(GROUP), ClassicGroup)
    assert one.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    run(scene, one, a)
    assert all_partitions(one, a) == [0, 1, 2, 3]


def test_what_a_member_has_yet_to_give_back_is_not_free_after_an_upgrade(
    scene: ConsumerScene,
) -> None:
    a, b = ClassicConsumer(scene), ClassicConsumer(scene)
    run(scene, a)
    assert a.owned == {"t": [0, 1, 2, 3]}
    b.step()
    a._heartbeat()
    a._take_join()  # it assigns half to the other one, and has not heard so yet
    assert scene.state == "Stable"
    assert a.owned == {"t": [0, 1, 2, 3]}
    one = Consumer(scene, "one")
    one.beat()
    assert one.owned == {}
    run(scene, a, b, one)
    assert all_partitions(a, b, one) == [0, 1, 2, 3]


def test_a_downgrade_by_a_static_member_leaves_somebody_who_looks_for_partitions(
    scene: ConsumerScene,
) -> None:
    one = Consumer(scene, "one", instance_id="i1")
    run(scene, one)
    a = ClassicConsumer(scene, instance_id="i1")
    run(scene, a)
    scene.put_topic("t", 6)
    run(scene, a)
    assert all_partitions(a) == [0, 1, 2, 3, 4, 5]


def test_a_group_that_is_too_large_for_a_record_stays_a_consumer_group() -> None:
    scene = ConsumerScene(replace(SETTINGS, max_batch_bytes=1_300), topics(t=4))
    one = Consumer(scene, "one")
    classics = [ClassicConsumer(scene, names=["t", "x" * 150]) for _ in range(4)]
    run(scene, one)
    for consumer in classics:
        run(scene, one, consumer, rounds=2)
    run(scene, one, *classics)
    scene.beat("one", -1)
    run(scene, *classics)
    assert isinstance(scene.coordinator.groups.get(GROUP), ConsumerGroup)
    assert all_partitions(*classics) == [0, 1, 2, 3]
