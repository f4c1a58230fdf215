"""Controllers over one tree: who is elected, what is decided, who is told, who is fenced."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import pytest
from tests.memory_metadata_store import Loss
from tests.unit.runtime.cluster_site import Member, Site, three

from millstream.controller import paths, payloads
from millstream.controller.config_changes import ConfigChange, ResourceType
from millstream.controller.election import LogEnd
from millstream.controller.feature_changes import FeatureUpdate, UpgradeType
from millstream.controller.isr_changes import WantedIsr
from millstream.controller.topic_changes import NewTopic
from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.features import TRANSACTION_VERSION, LevelRange
from millstream.model.leadership import NO_LEADER, IsrMember, LeaderRecoveryState
from millstream.model.metadata_store import Create, Delete, Done, Node, Operation, SetData
from millstream.model.topic import TopicPartition
from millstream.runtime.controlling import partition_writes
from millstream.runtime.controlling.leader_elections import ElectionType
from millstream.runtime.controlling.metadata_pushes import MAX_RETRY_MS
from millstream.runtime.controlling.replica_control import Move

T0 = TopicPartition("t", 0)


def epoch_of(site: Site) -> int:
    return int(site.tree.nodes[paths.CONTROLLER_EPOCH].data)


# --- the election ----------------------------------------------------------------------------


def test_the_first_broker_is_elected_and_the_others_are_told() -> None:
    site = three()
    assert site.controller.id == 1
    assert epoch_of(site) == 1
    for member in site.members.values():
        assert member.local.cache.controller_id == 1
        assert sorted(member.local.cache.brokers) == [1, 2, 3]
        assert member.local.controller_epoch == 1


def test_another_broker_follows_a_controller_that_fell_with_a_higher_epoch() -> None:
    site = three()
    site.create("t", (1, 2, 3))
    site.members[1].kill()
    site.settle()
    assert site.controller.id in (2, 3)
    assert epoch_of(site) == 2
    for number in (2, 3):
        state = site.members[number].state("t")
        assert (state.leader, state.isr, state.leader_epoch) == (2, (2, 3), 1)
        assert site.members[number].local.cache.controller_id == site.controller.id


def test_an_election_whose_answer_was_lost_holds_if_it_was_carried_out() -> None:
    site = Site()
    site.add(2)
    site.members[2].kill()
    member = site.add(1)
    member.store.expire()
    member.store.losses[:] = []
    site.settle()
    before = epoch_of(site)
    other = site.add(3)
    assert member.is_controller
    other.store.losses.append(Loss(applied=True))
    member.kill()
    site.settle()
    assert other.is_controller
    assert epoch_of(site) == before + 1, "an election that was carried out is not repeated"


def test_an_election_that_was_lost_and_not_carried_out_is_repeated() -> None:
    site = Site()
    member, other = site.add(1), site.add(2)
    other.store.losses.append(Loss(applied=False))
    member.kill()
    site.settle()
    assert other.is_controller
    assert epoch_of(site) == 2


def test_an_old_controller_writes_nothing_more() -> None:
    """It slept while its session expired, and has heard of nothing."""
    site = three()
    site.create("t", (1, 2, 3))
    zombie = site.members[1]
    zombie.cut_from = {2, 3}
    zombie.store.vanish()
    site.settle()
    assert sum(each.is_controller for each in site.members.values()) == 2
    zombie.store.is_silent = False
    created = zombie.decisions.topics.create_topics([NewTopic("late")])
    with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
        created.result()
    assert paths.topic("late") not in site.tree.nodes
    assert not zombie.is_controller


def test_pushes_of_an_old_controller_are_refused_and_make_it_resign() -> None:
    site = three()
    zombie = site.members[1]
    zombie.cut_from = {2, 3}
    zombie.store.vanish()
    site.settle()
    leader = next(each for each in (2, 3) if site.members[each].is_controller)
    follower = site.members[5 - leader]
    assert follower.local.cache.controller_id == leader
    zombie.cut_from = set()
    site.settle()
    assert follower.local.cache.controller_id == leader
    assert not zombie.is_controller


def test_a_controller_whose_store_is_silent_decides_nothing() -> None:
    site = three()
    first = site.members[1]
    first.store.silence()
    assert not first.is_controller
    with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
        first.decisions.topics.create_topics([NewTopic("t")]).result()
    first.store.reconnect()
    site.settle()
    assert site.controller is first, "its session lived on, and so did its node"
    assert epoch_of(site) == 2


def test_a_controller_that_stops_is_replaced_at_once() -> None:
    site = three()
    site.wait(site.members[1].cluster_controller.stop())
    site.settle()
    assert site.controller.id in (2, 3)


# --- what is decided ---------------------------------------------------------------------------


def test_a_topic_reaches_every_broker() -> None:
    site = three()
    site.create("t", (2, 3, 1), **{"retention.ms": "77"})
    for member in site.members.values():
        assert member.heard.created == ["t"]
        state = member.state("t")
        assert (state.leader, state.isr) == (2, (2, 3, 1))
        assert {each.broker_id for each in state.isr_broker_epochs} == {1, 2, 3}
        image = member.local.cache.topic("t")
        assert image is not None
        assert image.config.retention_ms == 77


def test_a_deleted_topic_is_forgotten_once_every_broker_has_acknowledged() -> None:
    site = three()
    site.create("t", (1, 2, 3))
    site.members[3].kill()
    site.settle()
    image = site.members[1].local.cache.topic("t")
    assert image is not None
    site.wait(site.controller.decisions.topics.delete_topics([image.topic_id]))
    site.settle()
    assert site.members[2].heard.deleted == ["t"]
    note = paths.deleted_topic(payloads.topic_id_to_text(image.topic_id))
    assert note in site.tree.nodes, "broker 3 still has its replica"
    site.add(3)
    site.settle()
    assert note not in site.tree.nodes


@pytest.mark.parametrize("text", ["+3", " 3 ", "0003"])
def test_a_number_counts_however_it_is_written(text: str) -> None:
    """Brokers read the setting as Kafka does; the controller must not fall back to the default."""
    site = three()
    site.create("t", (1, 2, 3), **{"min.insync.replicas": text})
    topic = site.controller.decisions.context.topics["t"]
    assert site.controller.controller_state.min_insync_replicas(topic) == 3


def test_what_no_store_could_take_is_refused_before_it_is_tried() -> None:
    """ZooKeeper hangs up on a request of that size, and a write that lost its connection is made
    again: the controller would do nothing else any more.
    """
    site = three()
    texts = {f"unknown.{number}": "x" * 32_000 for number in range(40)}
    large = ConfigChange(ResourceType.BROKER, "", lambda _: texts)
    refused = site.controller.decisions.topics.alter_configs([large])
    site.until(lambda: refused.done)
    with pytest.raises(KafkaError) as raised:
        refused.result()
    assert raised.value.error is ErrorCode.POLICY_VIOLATION
    assert paths.broker_config("") not in site.tree.nodes
    site.create("t", (1, 2, 3))
    assert site.members[3].state("t").leader == 1


def test_settings_of_all_brokers_reach_all() -> None:
    site = three()
    site.create("t", (1, 2, 3))
    change = ConfigChange(
        ResourceType.BROKER, "", lambda texts: {**texts, "message.max.bytes": "9"}
    )
    site.wait(site.controller.decisions.topics.alter_configs([change]))
    site.settle()
    for member in site.members.values():
        image = member.local.cache.topic("t")
        assert image is not None
        assert image.config.max_message_bytes == 9


def test_settings_of_groups_reach_all_and_outlive_a_controller() -> None:
    site = three()
    name = "consumer.session.timeout.ms"
    change = ConfigChange(ResourceType.GROUP, "a/b", lambda texts: {**texts, name: "50000"})
    site.wait(site.controller.decisions.topics.alter_configs([change]))
    site.settle()
    for member in site.members.values():
        assert member.local.cache.group_configs == {"a/b": {name: "50000"}}
    site.members[1].kill()
    site.settle()
    gone = ConfigChange(ResourceType.GROUP, "a/b", lambda texts: {})
    site.wait(site.controller.decisions.topics.alter_configs([gone]))
    site.settle()
    assert paths.group_config("a/b") not in site.tree.nodes
    for number in (2, 3):
        assert site.members[number].local.cache.group_configs == {}


def test_finalized_features_reach_all_and_outlive_a_controller() -> None:
    site = three()
    update = FeatureUpdate(TRANSACTION_VERSION, 1, UpgradeType.SAFE_DOWNGRADE)
    site.wait(site.controller.decisions.features.update([update]))
    site.settle()
    for member in site.members.values():
        assert member.local.cache.features.level(TRANSACTION_VERSION) == 1
        assert member.local.cache.features.epoch == 1
    site.members[1].kill()
    site.settle()
    back = FeatureUpdate(TRANSACTION_VERSION, 2, UpgradeType.UPGRADE)
    site.wait(site.controller.decisions.features.update([back]))
    site.settle()
    for number in (2, 3):
        assert site.members[number].local.cache.features.epoch == 2
        assert site.members[number].local.cache.features.level(TRANSACTION_VERSION) == 2


def test_a_broker_that_does_not_support_what_is_finalized_does_not_join() -> None:
    site = three()
    member = Member(site, 4)
    member.said = member.said._replace(features={TRANSACTION_VERSION: LevelRange(0, 1)})
    site.members[4] = member
    member.start()
    site.settle()
    assert sorted(site.members[1].local.cache.brokers) == [1, 2, 3]
    # Nor does it once a controller that has just been elected reads who is there.
    site.members[1].kill()
    site.settle()
    assert sorted(site.controller.local.cache.brokers) == [2, 3]


def test_a_bounced_broker_has_left_and_come_again() -> None:
    """Both changes fall into one look; only the creation id tells."""
    site = three()
    site.create("t", (3, 1, 2))
    member = site.members[3]
    data = site.tree.nodes[paths.broker(3)].data
    site.tree.multi(
        [Delete(paths.broker(3)), Create(paths.broker(3), data, ephemeral=True)],
        member.store.session_id,
    )
    site.settle()
    state = site.members[1].state("t")
    assert (state.leader, state.isr, state.leader_epoch) == (1, (1, 2), 1)


def test_a_broker_whose_process_is_gone_is_noticed_without_its_session() -> None:
    site = three()
    site.create("t", (3, 1, 2))
    site.members[3].registration.stop()
    site.members[3].killed = True  # its session lives on
    site.settle(800)
    assert paths.broker(3) not in site.tree.nodes
    assert site.members[1].state("t").leader == 1


def test_a_controller_that_replaces_one_that_is_gone_deletes_its_registration_too() -> None:
    site = three()
    site.create("t", (1, 2, 3))
    site.members[1].controller_state.end_term()
    site.members[1].registration.stop()
    site.members[1].killed = True  # its session lives on
    heir = site.members[2]
    gone = heir.election.registered
    assert gone is not None
    heir.election.replace(gone)
    site.settle(0)
    assert heir.is_controller
    assert paths.broker(1) not in site.tree.nodes
    assert heir.state("t").leader == 2
    assert len(heir.cluster_controller._pushes._addressees) == 1


def test_a_broker_that_does_not_answer_is_not_taken_for_gone() -> None:
    site = three()
    site.create("t", (3, 1, 2))
    site.members[1].cut_from = {3}
    site.settle(5_000)
    assert paths.broker(3) in site.tree.nodes
    assert site.members[1].state("t").leader == 3


def test_what_was_not_acknowledged_is_pushed_again() -> None:
    site = three()
    site.members[1].cut_from = {2}
    site.create("t", (1, 2, 3))
    assert site.members[2].local.cache.topic("t") is None
    site.members[1].cut_from = set()
    site.settle()
    assert site.members[2].heard.created == ["t"]


def test_a_session_that_expires_registers_anew_with_another_epoch() -> None:
    site = three()
    site.create("t", (2, 1, 3))
    member = site.members[2]
    before = member.local.broker_epoch
    member.store.expire()
    site.settle()
    assert member.local.broker_epoch is not None
    assert before is not None
    assert member.local.broker_epoch > before
    assert site.members[1].state("t").leader == 1
    assert member.state("t").leader == 1


def all_vanish(site: Site) -> None:
    """All processes end at once: nobody decides what follows from it."""
    for member in site.members.values():
        member.killed = member.store.is_silent = True
    for member in site.members.values():
        member.kill()


def test_a_controller_hears_nothing_of_the_time_before_its_life() -> None:
    """The simulator's seed 30094. Machine 1 lost its power, and what it had not flushed.
    Elected again, it showed itself the stored states before it had brought them into agreement with
    who lives: it led on, in its old epoch, with a log that lacked what was committed.
    """
    site = three()
    site.create("t", (1, 2, 3))
    all_vanish(site)
    reborn = site.add(1, continuity=None)
    assert reborn.is_controller
    assert reborn.heard.changed
    assert {image.partitions[0].leader for image in reborn.heard.changed} == {NO_LEADER}
    state = reborn.state("t")
    assert (state.isr, state.elr, state.last_known_elr) == ((), (2, 3), (1,))
    assert state.partition_epoch == 1, "nobody could read a state in between from the store"


def test_a_controller_that_kept_everything_leads_in_a_new_epoch_from_the_first() -> None:
    """Its high watermark begins anew, and within one leader epoch it never goes back."""
    site = three()
    site.create("t", (1, 2, 3))
    all_vanish(site)
    reborn = site.add(1)
    heard = [image.partitions[0] for image in reborn.heard.changed]
    assert {(each.leader, each.leader_epoch) for each in heard} == {(1, 1)}


def test_a_controller_that_cannot_store_what_follows_shows_nothing() -> None:
    site = three()
    site.create("t", (1, 2, 3))
    all_vanish(site)

    def follow(before: dict[str, Node], after: dict[str, Node]) -> None:
        """Another broker is elected as soon as this one is."""
        claimed = after[paths.CONTROLLER_EPOCH]
        if claimed != before[paths.CONTROLLER_EPOCH]:
            site.tree.on_change = lambda _, __: None
            site.tree.multi(
                [
                    Delete(paths.CONTROLLER),
                    Create(paths.CONTROLLER, payloads.controller(BrokerId(2), 0), ephemeral=True),
                    SetData(paths.CONTROLLER_EPOCH, b"9", claimed.version),
                ],
                site.tree.new_session(),
            )

    site.tree.on_change = follow
    reborn = site.add(1)
    assert reborn.election.wins == 1
    assert not reborn.is_controller
    assert reborn.heard.changed == []


def test_a_smaller_min_isr_drops_eligible_leader_replicas() -> None:
    """The leader, alone in the ISR, commits without them: they must not lead after it."""
    site = three()
    site.create("t", (1, 2, 3))
    site.members[3].kill()
    site.members[2].kill()
    member = site.members[1]
    assert (member.state("t").isr, member.state("t").elr) == ((1,), (2,))
    change = ConfigChange(
        ResourceType.TOPIC, "t", lambda texts: {**texts, "min.insync.replicas": "1"}
    )
    site.wait(member.decisions.topics.alter_configs([change]))
    assert (member.state("t").isr, member.state("t").elr) == ((1,), ())
    assert b'"elr"' not in site.tree.nodes[paths.state("t", 0)].data
    all_vanish(site)
    reborn = site.add(2)
    assert reborn.state("t").leader == NO_LEADER


# --- in-sync replicas ----------------------------------------------------------------------------


def wanted_isr(site: Site, isr: tuple[int, ...], name: str = "t", *, index: int = 0) -> WantedIsr:
    """Return what a leader proposes that knows what the controller knows."""
    state = site.controller.state(name, index)
    topic = site.controller.local.cache.topic(name)
    assert topic is not None
    members = [
        IsrMember(BrokerId(each), site.members[each].local.broker_epoch or 0) for each in isr
    ]
    return WantedIsr(topic.topic_id, index, state.leader_epoch, state.partition_epoch, members)


def propose(site: Site, sender: int, isr: tuple[int, ...], name: str = "t") -> object:
    epoch = site.members[sender].local.broker_epoch or 0
    wanted = [wanted_isr(site, isr, name)]
    done = site.controller.decisions.replicas.propose(BrokerId(sender), epoch, wanted)
    site.settle()
    (result,) = done.result()
    return result


def test_a_proposed_isr_is_written_and_spread() -> None:
    site = three()
    site.create("t", (1, 2, 3))
    propose(site, 1, (1, 3))
    for member in site.members.values():
        assert member.state("t").isr == (1, 3)
    assert b'"isr":[1,3]' in site.tree.nodes[paths.state("t", 0)].data


def test_a_write_whose_answer_was_lost_is_looked_up() -> None:
    site = three()
    site.create("t", (1, 2, 3))
    for applied in (True, False):
        version = site.tree.nodes[paths.state("t", 0)].version
        site.members[1].store.losses.append(Loss(applied=applied))
        propose(site, 1, (1, 3) if applied else (1, 2, 3))
        assert site.tree.nodes[paths.state("t", 0)].version == version + 1
        assert site.controller.id == 1


# --- elections ---------------------------------------------------------------------------------


def test_a_broker_that_stops_gives_its_leaderships_away() -> None:
    site = three()
    site.create("t", (3, 1, 2))
    epoch = site.members[3].local.broker_epoch
    assert epoch is not None
    done = site.controller.decisions.replicas.stop_leading(BrokerId(3), epoch)
    site.settle()
    assert done.result() == []
    assert site.members[3].state("t").leader == 1
    with pytest.raises(KafkaError, match="STALE_BROKER_EPOCH"):
        site.controller.decisions.replicas.stop_leading(BrokerId(3), epoch - 1).result()


def test_preferred_leaders_come_back_when_asked() -> None:
    site = three()
    site.create("t", (3, 1, 2))
    site.members[3].store.expire()
    site.settle()
    assert site.members[1].state("t").leader == 1
    propose(site, 1, (1, 2, 3))
    done = site.controller.decisions.replicas.elections.elect(ElectionType.PREFERRED, [T0])
    site.settle()
    assert done.result() == {T0: None}
    assert site.members[2].state("t").leader == 3
    again = site.controller.decisions.replicas.elections.elect(ElectionType.PREFERRED, None)
    assert again.result() == {}


def test_leaders_go_back_by_themselves_when_too_many_have_moved() -> None:
    site = three()
    site.create("t", (3, 1, 2))
    site.members[3].store.expire()
    site.settle()
    propose(site, 1, (1, 2, 3))
    site.wait(site.controller.decisions.replicas.elections.rebalance(10))
    site.settle()
    assert site.members[1].state("t").leader == 3


def test_the_last_ones_with_everything_are_waited_for() -> None:
    site = three()
    site.create("t", (2, 3))
    site.members[2].kill()
    site.settle()
    site.members[3].kill()
    site.settle()
    state = site.controller.state("t")
    assert (state.leader, state.isr, state.elr) == (-1, (), (2, 3))
    site.add(2)
    state = site.controller.state("t")
    assert (state.leader, state.isr, state.elr) == (2, (2,), (3,))


def test_when_all_have_lost_what_they_had_the_longest_log_leads() -> None:
    site = three()
    site.create("t", (2, 3))
    for number in (2, 3):
        site.members[number].kill()
        site.settle()
    two = site.add(2, continuity=None)
    two.log_ends[T0] = LogEnd(1, 50)
    assert site.controller.state("t").leader == -1
    three_again = site.add(3, continuity=None)
    three_again.log_ends[T0] = LogEnd(1, 70)
    # It was asked before its log was there; it is asked again.
    site.settle(5_000)
    state = site.controller.state("t")
    assert (state.leader, state.isr) == (3, (3,))
    assert state.leader_recovery_state is LeaderRecoveryState.RECOVERING
    assert site.controller.decisions.replicas.unclean_elections == 1


def without_its_only_member(**configs: str) -> Site:
    """A partition on 2 and 3 whose ISR was 2 alone, and 2 is gone."""
    site = three()
    site.create("t", (2, 3), **{"min.insync.replicas": "1", **configs})
    site.members[3].log_ends[T0] = LogEnd(0, 5)
    propose(site, 2, (2,))
    site.members[2].kill()
    site.settle()
    return site


def test_nobody_leads_who_may_lack_records_unless_somebody_asks_for_it() -> None:
    site = without_its_only_member()
    state = site.controller.state("t")
    assert (state.leader, state.isr, state.elr) == (-1, (), (2,))
    control = site.controller.decisions.replicas.elections
    preferred = control.elect(ElectionType.PREFERRED, [T0]).result()[T0]
    assert preferred is not None
    assert preferred.error is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    done = control.elect(ElectionType.UNCLEAN, [T0])
    site.settle()
    assert done.result() == {T0: None}
    state = site.members[3].state("t")
    assert (state.leader, state.isr) == (3, (3,))
    assert state.leader_recovery_state is LeaderRecoveryState.RECOVERING


@pytest.mark.parametrize("of_all", [False, True])
def test_of_two_who_ask_at_once_the_second_hears_that_there_is_a_leader(of_all: bool) -> None:
    site = without_its_only_member()
    control = site.controller.decisions.replicas.elections
    asked = None if of_all else [T0]
    first, second = (control.elect(ElectionType.UNCLEAN, asked) for _ in range(2))
    site.settle()
    assert site.controller.state("t").leader == 3
    assert first.result() == {T0: None}
    if of_all:
        assert second.result() == {}, "where all are meant, those that need none are left out"
    else:
        refused = second.result()[T0]
        assert refused is not None
        assert refused.error is ErrorCode.ELECTION_NOT_NEEDED


def test_a_topic_that_is_deleted_while_its_logs_are_compared_is_unknown() -> None:
    site = without_its_only_member()
    control = site.controller.decisions.replicas.elections
    site.controller.unanswered_by.add(3)
    asked = control.elect(ElectionType.UNCLEAN, [T0])
    image = site.controller.local.cache.topic("t")
    assert image is not None
    site.controller.decisions.topics.delete_topics([image.topic_id])
    site.settle(5_000)
    refused = asked.result()[T0]
    assert refused is not None
    assert refused.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_may_allow_unclean_elections() -> None:
    site = without_its_only_member(**{"unclean.leader.election.enable": "true"})
    site.settle()
    assert site.controller.state("t").leader == 3


def test_unclean_elections_that_are_allowed_later_are_held_at_once() -> None:
    site = without_its_only_member()
    change = ConfigChange(
        ResourceType.TOPIC, "t", lambda texts: {**texts, "unclean.leader.election.enable": "true"}
    )
    site.wait(site.controller.decisions.topics.alter_configs([change]))
    site.settle()
    assert site.controller.state("t").leader == 3


def test_replicas_whose_disk_has_failed_are_led_by_others_until_their_broker_comes_again() -> None:
    site = three()
    site.create("t", (3, 1, 2))
    site.create("u", (3,))
    topics = {name: site.controller.local.cache.topic(name) for name in ("t", "u")}
    replicas = [(image.topic_id, 0) for image in topics.values() if image is not None]
    control, reports = (
        site.controller.decisions.replicas.elections,
        site.controller.decisions.reports,
    )
    for _ in range(2):
        epoch = site.members[3].local.broker_epoch or 0
        site.wait(reports.offline_replicas(BrokerId(3), epoch, replicas))
    site.settle()
    state = site.members[2].state("t")
    assert (state.leader, state.isr, state.leader_epoch) == (1, (1, 2), 1)
    assert site.members[2].state("u").leader == -1
    site.add(4)
    assert site.members[2].state("u").leader == -1, "its broker lives, its disk does not"
    refused = control.elect(ElectionType.UNCLEAN, [TopicPartition("u", 0)]).result()
    assert refused[TopicPartition("u", 0)] is not None
    site.wait(reports.offline_replicas(BrokerId(3), epoch, ()))
    site.settle(2_000)
    assert site.members[2].state("u").leader == -1, "a report that was given up came last"
    site.members[3].store.expire()
    site.settle()
    assert site.members[2].state("u").leader == 3


# --- moves -------------------------------------------------------------------------------------


def test_a_partition_moves_to_another_broker() -> None:
    site = three()
    site.add(4)
    site.create("t", (1, 2, 3))
    done = site.controller.decisions.replicas.move([Move(T0, (2, 3, 4))])
    site.settle()
    assert done.result() == {T0: None}
    state = site.members[4].state("t")
    assert (state.replicas, state.adding_replicas, state.leader) == ((2, 3, 4, 1), (4,), 1)
    propose(site, 1, (1, 2, 3, 4))
    state = site.members[4].state("t")
    assert (state.replicas, state.leader, state.adding_replicas) == ((2, 3, 4), 2, ())
    topic = payloads.read_topic("/", site.tree.nodes[paths.topic("t")].data)
    assert topic.replicas == [(2, 3, 4)]
    assert not topic.adding


@pytest.mark.parametrize("target", [(2,), (3,)])
def test_a_move_waits_for_the_only_one_with_everything(target: tuple[int, ...]) -> None:
    """Taken away while it is down, the longest log of the others would lead."""
    site = without_its_only_member()
    site.wait(site.controller.decisions.replicas.move([Move(T0, target)]))
    site.settle(5_000)
    state = site.controller.state("t")
    assert (state.leader, state.elr, set(state.replicas)) == (-1, (2,), {2, 3})
    site.add(2)
    if target == (3,):
        propose(site, 2, (2, 3))
    state = site.controller.state("t")
    assert (state.replicas, state.leader) == (target, target[0]), "nobody has to propose anything"
    assert site.controller.decisions.replicas.unclean_elections == 0


def test_a_new_controller_goes_on_with_a_move() -> None:
    site = three()
    site.add(4)
    site.create("t", (1, 2, 3))
    site.wait(site.controller.decisions.replicas.move([Move(T0, (2, 3, 4))]))
    site.members[1].kill()
    site.settle()
    assert site.controller.state("t").adding_replicas == (4,)
    propose(site, 2, (2, 3, 4))
    assert site.controller.state("t").replicas == (2, 3, 4)


def fall_after(member: Member, writes: int) -> None:
    """Let a controller carry out so many writes, and vanish with the next one."""
    store, multi, done = member.store, member.store.multi, itertools.count()

    def carry_out(operations: Sequence[Operation]) -> Deferred[tuple[Done, ...]]:
        if next(done) < writes:
            return multi(operations)
        if not member.killed:
            member.killed = True
            member.controller_state.end_term()
            member.registration.stop()
            store.vanish()
        return Deferred()

    store.multi = carry_out  # type: ignore[method-assign]  # of this one store


@pytest.mark.parametrize("writes", range(16))
def test_a_move_that_is_written_in_parts_leaves_no_half_of_a_partition(
    writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the replicas and the state of a partition its leader might be no replica of it, and
    brokers would not hear of the others: the partition epoch is the one that they know.
    """
    site = three()
    for number in (4, 5):
        site.add(number)
    created = site.controller.decisions.topics.create_topics(
        [NewTopic("t", assignments=[(each, (2, 3, 4)) for each in range(6)])]
    )
    site.settle()
    assert not isinstance(created.result()[0], KafkaError)
    for module in ("controller_events", "partition_writes"):
        monkeypatch.setattr(f"millstream.runtime.controlling.{module}.MAX_MULTI_BYTES", 1_500)
    monkeypatch.setattr(f"{partition_writes.__name__}.LEAST_STATES_BYTES", 400)
    before = [site.controller.state("t", each) for each in range(6)]
    fallen = site.controller
    fall_after(fallen, writes)
    moves = [Move(TopicPartition("t", each), (3, 4, 5)) for each in range(6)]
    fallen.decisions.replicas.move(moves)
    site.settle(500)
    if not fallen.killed:
        assert writes > 1, "it is written in several parts"
        wanted = [wanted_isr(site, (2, 3, 4, 5), index=each) for each in range(6)]
        leader = site.members[2]
        assert leader.local.broker_epoch is not None
        fallen.decisions.replicas.propose(leader.id, leader.local.broker_epoch, wanted)
        site.settle(500)
    if not fallen.killed:
        fallen.kill()
    site.settle(5_000)
    for index in range(6):
        state = site.controller.state("t", index)
        assert state.leader in state.replicas
        assert set(state.isr) <= set(state.replicas)
        if state.replicas != before[index].replicas:
            assert state.partition_epoch > before[index].partition_epoch
            assert state.leader_epoch > before[index].leader_epoch


# --- what a fallen controller began --------------------------------------------------------------


def test_a_creation_and_a_deletion_that_were_cut_short_are_finished() -> None:
    site = three()
    site.create("half-made", (1, 2, 3))
    site.create("half-gone", (1, 2, 3), **{"retention.ms": "1"})
    tree = site.tree
    gone = site.controller.decisions.context.topics["half-gone"]
    note = paths.deleted_topic(payloads.topic_id_to_text(gone.topic_id))
    tree.multi([Create(note, payloads.deleted_topic("half-gone", gone.partitions[0].replicas))], 0)
    for name in ("half-gone", "half-made"):
        tree.multi([Delete(paths.state(name, 0)), Delete(paths.partition(name, 0))], 0)
    site.members[1].kill()
    site.settle(3_000)
    assert paths.topic("half-gone") not in tree.nodes
    assert site.members[3].local.cache.topic("half-gone") is None
    state = site.controller.state("half-made")
    assert (state.leader, state.isr, state.partition_epoch) == (2, (2, 3), 0)
    assert tree.nodes[paths.state("half-made", 0)].version == 0


def test_a_controller_that_was_followed_while_it_read_publishes_nothing() -> None:
    """It does not know of the topics that were created since: it would delete its logs of them."""
    site = three()
    slow = site.members[2]
    get_all, count = slow.store.get_all, itertools.count(1)
    reading: list[Callable[[], None]] = []

    def read_late(wanted: Sequence[str]) -> Deferred[Mapping[str, Node]]:
        found = get_all(wanted)
        if slow.election.wins == 0 or next(count) != 2:
            return found
        answer: Deferred[Mapping[str, Node]] = Deferred()
        reading.append(lambda: answer.complete(found.result()))
        return answer

    slow.store.get_all = read_late  # type: ignore[assignment,method-assign]  # of this store
    site.members[1].kill()
    site.settle()
    assert reading, "broker 2 is elected, knows the names of all topics, and reads them"
    registered = site.members[3].election.registered
    assert registered is not None
    site.members[3].election.replace(registered)
    site.settle()
    assert site.controller.id == 3
    site.create("t", (3, 2))
    assert slow.heard.created == ["t"]
    reading[0]()
    site.settle()
    assert slow.heard.deleted == []
    assert slow.local.cache.topic("t") is not None
    assert slow.local.cache.controller_id == 3


# --- registration ------------------------------------------------------------------------------


def test_settings_of_a_topic_that_was_not_made_do_not_stand_in_its_way() -> None:
    """A large request is written in parts; the controller fell between two of them."""
    site = three()
    settings = payloads.config({"retention.ms": "1"})
    site.tree.multi([Create(paths.topic_config("t"), settings)], 0)
    site.members[1].kill()
    site.settle(3_000)
    assert paths.topic_config("t") not in site.tree.nodes
    site.create("t", (2, 3), **{"retention.ms": "2"})
    assert site.controller.local.overrides("t") == {"retention.ms": "2"}


def test_an_own_older_registration_is_replaced_and_anothers_is_not() -> None:
    site = three()
    site.members[3].killed = True
    site.members[3].registration.stop()
    again = site.add(3)  # the same directory, another session
    assert site.tree.nodes[paths.broker(3)].owner == again.store.session_id
    other = Member(site, 3)
    other.said = replace_directory(other.said)
    started = other.registration.start(other.node, other.said)
    site.settle(20_000)
    with pytest.raises(KafkaError) as raised:
        started.result()
    assert raised.value.error is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def replace_directory(said: payloads.Registration) -> payloads.Registration:
    return said._replace(directory_id="somebody else's")


def test_a_registration_whose_answer_was_lost_is_ours() -> None:
    site = three()
    site.members[2].store.losses.append(Loss(applied=True))
    before = site.members[2].local.broker_epoch
    site.members[2].store.expire()
    site.settle()
    member = site.members[2]
    assert member.local.broker_epoch != before
    assert site.tree.nodes[paths.broker(2)].creation_id == member.local.broker_epoch


def test_a_registration_that_goes_while_it_is_looked_at_is_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An answer that was read before must not end the look at what came after it."""
    site = three()
    member = site.members[2]
    held: list[tuple[Deferred[Node], Node]] = []
    get = member.store.get

    def slow(path: str) -> Deferred[Node]:
        held.append((Deferred(), get(path).result()))
        return held[-1][0]

    with monkeypatch.context() as patch:
        patch.setattr(member.store, "get", slow)
        member.store.silence()
        member.store.reconnect()
        site.tree.multi([Delete(paths.broker(2))], 0)
    for answer, node in held:
        answer.complete(node)
    site.settle()
    assert site.tree.nodes[paths.broker(2)].creation_id == member.local.broker_epoch


def test_a_broker_that_is_gone_is_unregistered() -> None:
    site = three()
    site.create("t", (1, 2, 3))
    control = site.controller.decisions.replicas
    with pytest.raises(KafkaError, match="alive"):
        control.unregister(BrokerId(3)).result()
    with pytest.raises(KafkaError, match="BROKER_ID_NOT_REGISTERED"):
        control.unregister(BrokerId(9)).result()
    site.members[3].kill()
    site.settle()
    control.unregister(BrokerId(3)).result()


def test_groups_wait_until_there_are_brokers_enough_for_their_topic() -> None:
    site = Site()
    site.add(1)
    refused = site.controller.decisions.topics.ensure_topic("__consumer_offsets")
    with pytest.raises(KafkaError, match="INVALID_REPLICATION_FACTOR"):
        refused.result()
    site.add(2)
    site.add(3)
    made = site.controller.decisions.topics.ensure_topic("__consumer_offsets")
    site.settle()
    assert all(len(state.replicas) == 3 for state in made.result().partitions)


def test_a_broker_that_refuses_pushes_is_not_flooded_with_them() -> None:
    """One attempt at a time, with pauses that grow, also while there is more to tell."""
    site = three()
    site.controller.cut_from.add(3)
    site.create("t", (1, 2, 3))
    begun = site.members[3].refused_sends
    site.settle(60_000)
    sent = site.members[3].refused_sends - begun
    assert 60_000 / MAX_RETRY_MS - 5 <= sent <= 60_000 / MAX_RETRY_MS + 5
    site.controller.cut_from.clear()
    site.settle()
    assert site.members[3].state("t").leader == 1


def test_a_topic_that_is_deleted_does_not_keep_others_from_their_leaders() -> None:
    """Logs are compared in an event of its own; a topic may go in one that comes before it."""
    site = three()
    for name in ("t", "u"):
        site.create(name, (2, 3), **{"min.insync.replicas": "1"})
        site.members[3].log_ends[TopicPartition(name, 0)] = LogEnd(0, 5)
        propose(site, 2, (2,), name)
    site.members[2].kill()
    site.settle()
    topics = site.controller.decisions.topics
    changes = [
        ConfigChange(
            ResourceType.TOPIC,
            name,
            lambda texts: {**texts, "unclean.leader.election.enable": "true"},
        )
        for name in ("u", "t")
    ]
    image = site.controller.local.cache.topic("u")
    assert image is not None
    store_answers: Deferred[None] = Deferred()

    async def slow() -> None:
        await store_answers

    site.controller.events.submit(slow)
    altered = topics.alter_configs(changes)
    deleted = topics.delete_topics([image.topic_id])
    store_answers.complete(None)
    site.settle(5_000)
    altered.result()
    deleted.result()
    assert site.controller.state("t").leader == 3


def test_a_broker_that_does_not_say_what_it_has_holds_up_no_other_event() -> None:
    site = three()
    site.create("t", (2, 3))
    for number in (2, 3):
        site.members[number].kill()
        site.settle()
    two = site.add(2, continuity=None)
    two.log_ends[T0] = LogEnd(1, 50)
    site.controller.unanswered_by.add(3)
    site.add(3, continuity=None).log_ends[T0] = LogEnd(1, 70)
    for index in range(20):
        created = site.controller.decisions.topics.create_topics(
            [NewTopic(f"n{index}", assignments=[(0, (1,))], configs={})]
        )
        site.settle(100)
        assert created.done, f"event {index} waits for a broker that does not answer"
    site.controller.unanswered_by.clear()
    site.settle(10_000)
    assert site.controller.state("t").leader == 3


def test_an_unclean_election_that_is_asked_for_holds_up_no_other_event() -> None:
    site = without_its_only_member()
    site.controller.unanswered_by.add(3)
    asked = site.controller.decisions.replicas.elections.elect(ElectionType.UNCLEAN, [T0])
    for index in range(10):
        created = site.controller.decisions.topics.create_topics(
            [NewTopic(f"n{index}", assignments=[(0, (1,))], configs={})]
        )
        site.settle(100)
        assert created.done, f"event {index} waits for a broker that does not answer"
    site.settle(2_000)
    refused = asked.result()[T0]
    assert refused is not None
    assert refused.error is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


@pytest.mark.parametrize("comes_again", [False, True])
def test_a_broker_that_has_gone_since_it_was_asked_is_not_elected(comes_again: bool) -> None:
    site = three()
    site.add(4)
    site.create("t", (2, 3, 4), **{"unclean.leader.election.enable": "true"})
    for number in (2, 3, 4):
        site.members[number].kill()
        site.settle()
    two = site.add(2, continuity=None)
    site.controller.unanswered_by.add(3)
    site.add(3, continuity=None)
    two.log_ends[T0] = LogEnd(1, 50)
    site.settle(2_500)  # 2 is asked again, has answered, and 3 is waited for
    assert site.controller.state("t").leader == -1
    two.kill()
    if comes_again:
        site.add(2, continuity=None)
    for _ in range(50):
        site.settle(100)
        assert site.controller.state("t").leader == -1, "what its life before had says nothing"
    if not comes_again:
        site.add(2, continuity=None)
    site.members[2].log_ends[T0] = LogEnd(1, 40)
    site.settle(10_000)
    assert site.controller.state("t").leader == 2
