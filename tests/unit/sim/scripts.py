"""Faults in an order that chance seldom finds: each says which rule it needs.

A script is played by a cluster of three brokers and one partition, and must end without a problem
(``test_scripts``); ``test_mutations`` plays it again without the rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations

from millstream.controller import paths, payloads
from millstream.controller.config_changes import ConfigChange, ResourceType
from millstream.coordinator.group.partitioner import group_partition
from millstream.history.checker import Send, Step
from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.leadership import NO_LEADER, PartitionState
from millstream.model.metadata_store import Delete, Node
from millstream.model.topic import GROUP_METADATA_TOPIC, TopicPartition
from millstream.protocol.api import ApiKey
from millstream.protocol.message import Response
from millstream.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from millstream.protocol.messages.metadata import MetadataRequest
from millstream.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from millstream.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.runtime.controlling.leader_elections import ElectionType
from millstream.runtime.controlling.replica_control import Move
from millstream.runtime.coordinators.group_coordinator_runtime import GroupCoordinatorRuntime
from millstream.runtime.replicas.partition import Partition
from millstream.runtime.replicas.partition_requests import delete_records_before
from millstream.sim.admin_requests import move_log
from millstream.sim.checkers import Entry, entries
from millstream.sim.clients import PRODUCE_VERSION
from millstream.sim.cluster import Report, SimCluster
from millstream.sim.faults import Swarm
from millstream.sim.workload import TOPIC

Script = Callable[[SimCluster], list[str]]
ACKNOWLEDGED_MS = 30_000
NEVER_MS = 1e9


@dataclass(frozen=True)
class Shape:
    """The cluster that a script needs."""

    brokers: int = 3
    partitions: int = 1
    min_isr: int = 2
    groups: bool = False
    asks_everybody: bool = False
    """True where every broker is to be asked what groups have committed."""
    directories: int | None = None
    """How many log directories each broker has; None for any number."""
    segment_bytes: int | None = None
    """Size at which segments are closed, for scripts in which they have to be."""
    flush_policy: str | None = None
    """The topic's flush policy; None for any."""
    rebalances: bool = True
    """False where the controller is to give no leadership back by itself."""
    leaves_unreachable: bool = False
    """True where leaderships may move from brokers that their followers do not reach."""

    def fits(self, cluster: SimCluster) -> bool:
        """Tell whether a cluster is like that."""
        return (
            (len(cluster.numbers), cluster.work.partition_count) == (self.brokers, self.partitions)
            and cluster.min_isr == self.min_isr
            and (cluster.work.group_count > 0 or not self.groups)
            and self.directories in (None, len(cluster.directories))
            and not (cluster.work.deletes or cluster.work.expires or cluster.work.reads_nearby)
        )


def play(script: Script, shape: Shape, seed: int) -> Report:
    """Play a script in a cluster of the shape it needs, another one for each seed."""
    seed *= 1_000
    while True:
        cluster = SimCluster(seed, swarm=Swarm.of("elect"))
        if shape.fits(cluster):
            break
        seed += 1
    cluster.work.segment_bytes = shape.segment_bytes
    cluster.work.flush_policy = shape.flush_policy
    if shape.asks_everybody:
        cluster.work.ask_everybody()
    if not shape.rebalances:
        cluster.settings["auto.leader.rebalance.enable"] = "false"
    if not shape.leaves_unreachable:
        asked = (ApiKey.REPORT_SILENT_FOLLOWERS, ApiKey.DESCRIBE_FETCHERS)
        for link in permutations(cluster.numbers, 2):
            cluster.network.weather.slow |= {(*link, int(each)): NEVER_MS for each in asked}

    def strike() -> list[str]:
        try:
            return script(cluster)
        finally:
            heal_all(cluster)

    return cluster.play(strike)


def state(cluster: SimCluster, index: int = 0) -> PartitionState:
    tree = cluster.ensemble.tree.nodes
    node = tree[paths.state(TOPIC, index)]
    replicas = payloads.read_topic("", tree[paths.topic(TOPIC)].data).replicas[index]
    return payloads.read_state("", node.data, replicas=replicas, version=node.version)


def make_controller_and_leader_two(cluster: SimCluster) -> tuple[int, int, int]:
    """Return controller, leader and the third broker: three different ones."""
    for _ in range(20):
        controller, leader = cluster.controller_number(), state(cluster).leader
        if controller is not None and leader not in (NO_LEADER, controller):
            third = next(each for each in cluster.numbers if each not in (controller, leader))
            return controller, leader, third
        if controller is None:
            cluster.go_on(500)
            continue
        cluster.kill(controller, "kill the controller that leads")
        cluster.go_on(6_000)
        cluster.start_broker(controller)
        cluster.until(lambda: not cluster.unhealthy(), 30_000)
    raise AssertionError("controller and leader are always one")


def make_controller(cluster: SimCluster, is_wanted: Callable[[int], bool]) -> int:
    """Delete ``/controller`` until a broker that is wanted becomes the controller."""
    for _ in range(100):
        controller = cluster.controller_number()
        if controller is not None and is_wanted(controller):
            cluster.go_on(1_000)
            return controller
        if controller is not None:
            delete_controller_node(cluster)
        cluster.go_on(400)
    raise AssertionError("the controller is never the one that is wanted")


def delete_controller_node(cluster: SimCluster) -> None:
    """Delete ``/controller``, as operators do to have another controller."""
    cluster.ensemble.tree.multi([Delete(paths.CONTROLLER)], 0)
    cluster.ensemble.changed()


def whole(cluster: SimCluster) -> None:
    """Wait until all are in sync."""
    assert cluster.until(lambda: not cluster.unhealthy(), 30_000), cluster.unhealthy()


def elect_preferred(cluster: SimCluster, controller: int) -> None:
    """Have the preferred leader elected, without a message."""
    control = cluster.lives[controller].controller.replicas
    control.elections.elect(ElectionType.PREFERRED, None).on_done(lambda _: None)


def replica(cluster: SimCluster, number: int, topic: str = TOPIC, index: int = 0) -> Partition:
    """Return what a broker has of a partition."""
    found = cluster.lives[number].partitions.replica(topic, index)
    assert found is not None
    return found


def cut_off(cluster: SimCluster, number: int, *others: int) -> None:
    """Let nothing go between a broker and some others."""
    for other in others:
        cluster.network.cut(number, other)
        cluster.network.cut(other, number)


def heal_all(cluster: SimCluster) -> None:
    """Let everything through again."""
    for source, target in tuple(cluster.network.cuts):
        cluster.network.heal(source, target)
    cluster.network.closed_to.clear()
    cluster.network.weather.slow.clear()


def lead_with_second(cluster: SimCluster) -> tuple[int, int, int]:
    """Have the second replica lead, everybody in sync; return the replicas in their order.

    For shapes in which no leadership is given back.
    """
    first, second, third = state(cluster).replicas
    controller = cluster.controller_number()
    assert controller is not None
    if state(cluster).leader == third:
        elect_preferred(cluster, controller)
        assert cluster.until(lambda: state(cluster).leader == first, 10_000)
    if state(cluster).leader == first:
        cluster.kill(first, "kill the leader")
        assert cluster.until(lambda: state(cluster).leader == second, 20_000)
        cluster.start_broker(first)
        whole(cluster)
    return first, second, third


def answers_are_lost(cluster: SimCluster) -> list[str]:
    """A follower is to join; the controller writes it, and neither its answer nor its pushes reach
    the leader for longer than a request waits. The follower is cut from the leader meanwhile, so
    only what the leader remembers makes it wait for it.
    """
    controller, leader, third = make_controller_and_leader_two(cluster)
    cluster.kill(third, "kill")
    if not cluster.until(lambda: third not in state(cluster).isr, 10_000):
        return ["a killed follower stays in the ISR"]
    late = [(controller, leader, int(key)) for key in (ApiKey.PROPOSE_ISR, ApiKey.PUSH_METADATA)]
    slow, tree = cluster.network.weather.slow, cluster.ensemble.tree
    look = tree.on_change

    def changed(before: dict[str, Node], after: dict[str, Node]) -> None:
        look(before, after)
        if third in state(cluster).isr:
            slow.update(dict.fromkeys(late, 1e9))
            tree.on_change = look

    tree.on_change = changed
    cluster.start_broker(third)
    if not cluster.until(lambda: third in state(cluster).isr, 20_000):
        return ["the follower does not join"]
    cluster.network.cut(third, leader)
    cluster.network.cut(leader, third)
    cluster.go_on(9_000)
    for key in late:
        slow.pop(key, None)
    cluster.network.heal(third, leader)
    cluster.network.heal(leader, third)
    return []


def a_leader_writes_nothing(cluster: SimCluster) -> list[str]:
    """A broker leads for a while in which nobody writes, and follows again: its epoch is in its
    list of epochs and in no record.
    """
    first = state(cluster).replicas[0]
    for client in cluster.work.clients:
        client.clock.pause()
    cluster.go_on(3_000)
    cluster.kill(first, "kill")
    if not cluster.until(lambda: state(cluster).leader not in (first, NO_LEADER), 10_000):
        return ["nobody leads"]
    cluster.start_broker(first)
    # The controller gives the preferred replica its place back by itself.
    moved = cluster.until(lambda: state(cluster).leader == first, 60_000)
    for client in cluster.work.clients:
        client.clock.resume()
    return [] if moved else ["the preferred replica does not lead again"]


def a_client_names_its_leader_epoch(cluster: SimCluster) -> list[str]:
    """A broker leads and nobody writes. It is asked where its epoch ends, by a client that knows it
    and by two that know the epoch before and the one to come (KIP-320).
    """
    first = state(cluster).replicas[0]
    cluster.go_on(3_000)
    for client in cluster.work.clients:
        client.clock.pause()
    cluster.go_on(3_000)
    cluster.kill(first, "kill")
    if not cluster.until(lambda: state(cluster).leader not in (first, NO_LEADER), 10_000):
        return ["nobody leads"]
    cluster.go_on(1_000)
    for client in cluster.work.clients:
        client.clock.resume()
    for producer in cluster.work.producers:
        producer.held = True
    leader, epoch = state(cluster).leader, state(cluster).leader_epoch
    end = replica(cluster, leader).log.log_end_offset
    expected = {
        epoch: (ErrorCode.NONE, epoch, end),
        epoch - 1: (ErrorCode.FENCED_LEADER_EPOCH, -1, -1),
        epoch + 1: (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1),
    }
    told = {each: _end_of_epoch(cluster, leader, each, epoch) for each in expected}
    wrote = replica(cluster, leader).log.log_end_offset > end
    for producer in cluster.work.producers:
        producer.held = False
    if wrote or told == expected:
        return []
    return [f"clients that name a leader epoch are answered {told}, not {expected}"]


def _end_of_epoch(
    cluster: SimCluster, leader: int, known: int, wanted: int
) -> tuple[ErrorCode, int, int]:
    """Ask where an epoch ends, as a client that knows the leader epoch ``known``."""
    asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=known, leader_epoch=wanted)
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic=TOPIC, partitions=[asked])]
    )
    asking = spawn(cluster.work.clients[0].ask(BrokerId(leader), request, lane="script"))
    assert cluster.until(lambda: asking.done, 5_000)
    response = asking.result()
    assert isinstance(response, OffsetForLeaderEpochResponse)
    found = response.topics[0].partitions[0]
    return ErrorCode.of(found.error_code), found.leader_epoch, found.end_offset


def nobody_knows_the_epoch_of_a_tail(cluster: SimCluster) -> list[str]:
    """A leader writes what nobody fetches, and nothing else in its epoch. Another leads after it,
    and nobody writes: the first one is to truncate its tail and to join again.
    """
    cluster.go_on(2_000)
    for producer in cluster.work.producers:
        producer.held = True
    cluster.go_on(4_000)
    first, second, third = lead_with_second(cluster)
    for each in (first, third):
        cluster.network.weather.slow[second, each, int(ApiKey.FETCH)] = NEVER_MS
    for producer in cluster.work.producers:
        producer.held = False
    log = replica(cluster, second).log
    end = log.log_end_offset
    cluster.until(lambda: log.log_end_offset > end, 2_000)
    for producer in cluster.work.producers:
        producer.held = True
    cluster.kill(second, "kill the leader")
    heal_all(cluster)
    for client in cluster.work.clients:  # who waits for an answer would write again
        client.clock.pause()
    if not cluster.until(lambda: state(cluster).leader not in (second, NO_LEADER), 20_000):
        return ["nobody leads"]
    cluster.start_broker(second)
    joined = cluster.until(lambda: not cluster.unhealthy(), 30_000)
    for client in cluster.work.clients:
        client.clock.resume()
    for producer in cluster.work.producers:
        producer.held = False
    return [] if joined else ["a follower with a tail does not join while nobody writes"]


def one_writer_is_left_alone(cluster: SimCluster) -> list[str]:
    """Both followers die, one write waits, and nobody writes or fetches after it: the high
    watermark moves when the controller's answer comes.
    """
    writer = cluster.work.producers[0]
    assert writer.acks == -1
    others = [each for each in cluster.work.producers if each is not writer]
    for each in others:
        each.held = True
    controller, leader, third = make_controller_and_leader_two(cluster)
    cluster.kill(controller, "kill")
    cluster.kill(third, "kill")
    if not cluster.until(lambda: state(cluster).isr == (BrokerId(leader),), 30_000):
        return [f"the ISR is {state(cluster).isr}"]
    moment_ms = cluster.loop.now_ms
    answered = cluster.until(lambda: writer.last_acknowledged_ms > moment_ms, ACKNOWLEDGED_MS)
    for each in others:
        each.held = False
    return [] if answered else ["a write that is committed is not acknowledged"]


def a_follower_is_cut_off(cluster: SimCluster) -> list[str]:
    """A follower that is cut from the leader alone leaves the ISR, and writes go on."""
    _, leader, third = make_controller_and_leader_two(cluster)
    cluster.network.cut(third, leader)
    cluster.network.cut(leader, third)
    gone = cluster.until(lambda: third not in state(cluster).isr, 30_000)
    moment_ms = cluster.loop.now_ms
    answered = gone and cluster.until(
        lambda: not cluster.work.waits_since(moment_ms), ACKNOWLEDGED_MS
    )
    cluster.network.heal(third, leader)
    cluster.network.heal(leader, third)
    return [] if answered else ["a follower that is cut off holds up every write"]


def the_controller_is_cut_from_a_follower(cluster: SimCluster) -> list[str]:
    """The leader dies while its follower does not hear the controller: it reads who leads from the
    store itself, long before the controller reaches it again.
    """
    controller, leader, third = make_controller_and_leader_two(cluster)
    cluster.network.cut(controller, third)
    cluster.kill(leader, "kill the leader")
    if not cluster.until(lambda: state(cluster).leader not in (leader, NO_LEADER), 10_000):
        cluster.network.heal(controller, third)
        return ["nobody leads"]
    followed = cluster.until(lambda: _knows(cluster, third), 40_000)
    cluster.network.heal(controller, third)
    return [] if followed else ["a broker does not look up who leads"]


def _knows(cluster: SimCluster, number: int) -> bool:
    partition = cluster.lives[number].partitions.replica(TOPIC, 0)
    return partition is not None and partition.leader_epoch == state(cluster).leader_epoch


def a_push_is_late(cluster: SimCluster) -> list[str]:
    """A controller writes that a leader is alone in sync, and is paused with the push under way.
    Its successor elects another leader, which others follow and write to. Then the push arrives,
    and a client writes that knows the leader of before alone.
    """
    first, second, third = state(cluster).replicas
    controller = make_controller(cluster, lambda number: number == third)
    network, tree = cluster.network, cluster.ensemble.tree
    cluster.kill(first, "kill the leader")
    if not cluster.until(lambda: replica(cluster, second).leading is not None, 20_000):
        return ["the second replica does not lead"]
    network.weather.slow[third, second, int(ApiKey.FETCH)] = NEVER_MS
    network.reset(third, second)
    look = tree.on_change

    def changed(before: dict[str, Node], after: dict[str, Node]) -> None:
        look(before, after)
        if state(cluster).isr == (second,):
            network.cut(controller, second)
            tree.on_change = look

    tree.on_change = changed
    if not cluster.until(lambda: (controller, second) in network.cuts, 20_000):
        return [f"the ISR is {state(cluster).isr}"]
    cluster.go_on(600)
    cluster.lives[controller].clock.pause()
    taken_over = cluster.until(lambda: cluster.controller_number() == second, 20_000)
    cluster.start_broker(first)
    joined = taken_over and cluster.until(lambda: first in state(cluster).isr, 20_000)
    cluster.go_on(1_000)
    for client in cluster.work.clients:
        client.clock.pause()
    elect_preferred(cluster, second)
    moved = joined and cluster.until(lambda: state(cluster).leader == first, 10_000)
    cluster.go_on(1_000)
    network.heal(controller, second)
    cluster.go_on(500)
    for client in cluster.work.clients:
        client.clock.resume()
    cluster.go_on(3_000)
    cluster.lives[controller].clock.resume()
    heal_all(cluster)
    return [] if moved else ["the first replica does not lead again"]


def an_old_push_comes_last(cluster: SimCluster) -> list[str]:
    """A push of settings takes long, and is given up. The next one tells of other settings by
    another connection; then the old one arrives.
    """
    controller, _, third = make_controller_and_leader_two(cluster)
    slow, key = cluster.network.weather.slow, (controller, third, int(ApiKey.PUSH_METADATA))
    slow[key] = 60_000
    _set_min_isr(cluster, controller, 1)
    cluster.go_on(700)
    del slow[key]
    _set_min_isr(cluster, controller, 2)
    cluster.go_on(60_000)
    return []


def _set_min_isr(cluster: SimCluster, controller: int, value: int) -> None:
    """Have the controller change a setting, without a message."""
    texts = {"min.insync.replicas": str(value)}
    change = ConfigChange(ResourceType.TOPIC, TOPIC, lambda known: {**known, **texts})
    cluster.lives[controller].controller.topics.alter_configs([change]).on_done(lambda _: None)
    cluster.go_on(100)


def fewer_have_to_be_in_sync(cluster: SimCluster) -> list[str]:
    """A leader is alone in the ISR, another replica is eligible. ``min.insync.replicas`` becomes 1,
    and the controller is cut from the store before it removes that replica, which leads next.
    """
    controller, leader, third = make_controller_and_leader_two(cluster)
    cluster.kill(third, "kill")
    cluster.network.weather.slow[leader, controller, int(ApiKey.FETCH)] = NEVER_MS
    alone = cluster.until(
        lambda: (state(cluster).isr, state(cluster).elr) == ((leader,), (controller,)), 40_000
    )
    if not alone:
        return [f"the leader is not alone: {state(cluster)}"]
    tree = cluster.ensemble.tree
    look = tree.on_change

    def changed(before: dict[str, Node], after: dict[str, Node]) -> None:
        look(before, after)
        path = paths.topic_config(TOPIC)
        if after[path] != before[path]:
            cluster.ensemble.cuts.add((controller, "to"))
            tree.on_change = look

    tree.on_change = changed
    _set_min_isr(cluster, controller, 1)
    cluster.go_on(2_500)
    cluster.kill(leader, "kill the leader")
    cluster.go_on(6_000)
    cluster.ensemble.cuts.clear()
    elected = cluster.until(lambda: state(cluster).leader == controller, 20_000)
    cluster.go_on(2_000)
    return [] if elected else ["the eligible replica does not lead"]


def the_controller_is_deposed(cluster: SimCluster) -> list[str]:
    """``/controller`` is deleted, as operators do to have another controller, while the controller
    does not run. It wakes with a topic to make, which its successor would know nothing of.
    """
    controller = cluster.controller_number()
    assert controller is not None
    life = cluster.lives[controller]
    client = cluster.work.clients[0]
    connecting = spawn(client.ask(BrokerId(controller), MetadataRequest(topics=[]), lane="late"))
    cluster.until(lambda: connecting.done, 3_000)
    life.clock.pause()
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name="late", num_partitions=1, replication_factor=3, assignments=[], configs=[]
            )
        ],
        timeout_ms=2_000,
    )
    making = spawn(client.ask(BrokerId(controller), request, lane="late"))
    cluster.go_on(100)
    delete_controller_node(cluster)
    cluster.until(lambda: cluster.controller_number() not in (None, controller), 1_000)
    cluster.go_on(500)
    life.clock.resume()
    cluster.until(lambda: making.done, 5_000)
    if not _was_made(making):
        return []
    known = cluster.until(
        lambda: all(
            each.partitions.replica("late", 0) is not None for each in cluster.lives.values()
        ),
        20_000,
    )
    return [] if known else ["a topic that was made is nowhere"]


def _was_made(making: Deferred[Response]) -> bool:
    try:
        response = making.result()
    except KafkaError:
        return False
    assert isinstance(response, CreateTopicsResponse)
    return response.topics[0].error_code == 0


def a_proposal_is_late(cluster: SimCluster) -> list[str]:
    """A leader proposes a follower, and the request is held up. Another leads in the meantime, and
    the follower falls behind; then the proposal arrives.
    """
    replicas = first, second, third = lead_with_second(cluster)
    controller = make_controller(cluster, lambda number: number not in replicas)
    cluster.kill(third, "kill")
    if not cluster.until(lambda: third not in state(cluster).isr, 20_000):
        return ["a killed follower stays in the ISR"]
    cluster.start_broker(third)
    if not _proposes(cluster, second, third, controller):
        return ["the follower is not proposed"]
    cluster.network.cut(second, controller)
    cut_off(cluster, third, first, second)
    elect_preferred(cluster, controller)
    moved = cluster.until(lambda: replica(cluster, first).leading is not None, 4_000)
    cluster.go_on(3_000)
    cluster.network.heal(second, controller)
    cluster.go_on(2_000)
    heal_all(cluster)
    return [] if moved else ["the preferred replica does not lead"]


def an_answer_is_late(cluster: SimCluster) -> list[str]:
    """Two followers join one after the other. A push tells the leader of the first one before
    the answer to its proposal does. The first answer comes when the second proposal is written.
    """
    replicas = first, second, third = lead_with_second(cluster)
    controller = make_controller(cluster, lambda number: number not in replicas)
    for number in (first, third):
        cluster.kill(number, "kill")
    if not cluster.until(lambda: state(cluster).isr == (second,), 20_000):
        return [f"the ISR is {state(cluster).isr}"]
    cluster.go_on(1_000)
    slow = cluster.network.weather.slow
    slow[controller, second, int(ApiKey.PROPOSE_ISR)] = 4_000
    cluster.start_broker(third)
    known = cluster.lives[second].core.metadata
    if not cluster.until(lambda: known.is_reachable(BrokerId(third)), 10_000):
        return ["the second follower does not come back"]
    held = cluster.lives[third].clock
    held.pause()
    cluster.start_broker(first)
    leading = replica(cluster, second).leading
    assert leading is not None
    if not cluster.until(lambda: set(leading.machine.isr.isr) == {first, second}, 20_000):
        return [f"the first follower does not join: {leading.machine.isr}"]
    slow[controller, second, int(ApiKey.PUSH_METADATA)] = NEVER_MS
    held.resume()
    if not cluster.until(lambda: third in leading.machine.waited_for, 20_000):
        return []  # its session has ended while it was held, and no push tells of its next one
    held.pause()
    cluster.go_on(6_000)
    held.resume()
    return []


def a_follower_comes_back_with_less(cluster: SimCluster) -> list[str]:
    """A follower has caught up and is proposed, and the request does not arrive. It loses its power
    and comes back with a shorter log, from which it fetches once; then the proposal arrives.
    """
    controller, leader, third = make_controller_and_leader_two(cluster)
    cluster.kill(third, "kill")
    if not cluster.until(lambda: third not in state(cluster).isr, 20_000):
        return ["a killed follower stays in the ISR"]
    slow = cluster.network.weather.slow
    slow[leader, controller, int(ApiKey.PROPOSE_ISR)] = NEVER_MS
    cluster.start_broker(third)
    leading = replica(cluster, leader).leading
    assert leading is not None
    if not cluster.until(lambda: third in leading.machine.waited_for, 20_000):
        return ["the follower is not proposed"]
    cluster.go_on(1_000)
    slow[leader, third, int(ApiKey.FETCH)] = NEVER_MS
    cluster.lose_power(third)
    cluster.start_broker(third)
    if not cluster.until(lambda: cluster.lives[third].is_up, 20_000):
        return ["a broker does not start"]
    cluster.go_on(2_000)
    del slow[leader, controller, int(ApiKey.PROPOSE_ISR)]
    cluster.network.reset(leader, controller)
    cluster.go_on(6_000)
    return []


def _proposes(cluster: SimCluster, leader: int, joining: int, controller: int) -> bool:
    """Let time pass until a proposal has left and has not arrived."""
    leading = replica(cluster, leader).leading
    assert leading is not None
    machine, requests = leading.machine, cluster.network.requests
    key, count = (leader, controller, int(ApiKey.PROPOSE_ISR)), 0
    end_ms = cluster.loop.now_ms + 20_000
    while cluster.loop.now_ms < end_ms:
        cluster.go_on(0.1)
        if joining not in machine.isr.maximal_isr:
            count = requests[key]
        elif requests[key] > count:
            return True
    return False


def a_log_begins_inside_a_batch(cluster: SimCluster) -> list[str]:
    """Records are deleted up to the middle of a batch; a follower is away that ends before."""
    _, leader, third = make_controller_and_leader_two(cluster)
    cluster.kill(third, "kill")
    if not cluster.until(lambda: third not in state(cluster).isr, 20_000):
        return ["a killed follower stays in the ISR"]
    partition, reader = replica(cluster, leader), cluster.work.consumers[0]
    start = partition.log.log_end_offset

    def long_ones() -> list[Entry]:
        found = entries(partition.log, start, partition.high_watermark)
        return [e for e in found if e.base_offset + 1 < e.next_offset <= reader.position]

    if not cluster.until(lambda: bool(long_ones()), 30_000):
        return ["nobody writes batches of several records"]
    offset = long_ones()[0].base_offset + 1
    cluster.work.history.deletions[TOPIC, 0] = offset
    delete_records_before(partition, offset)
    cluster.start_broker(third)
    joined = cluster.until(lambda: third in state(cluster).isr, 20_000)
    return [] if joined else ["a follower cannot begin where the leader's log does"]


def write(cluster: SimCluster, leader: int, count: int, *, acks: int) -> None:
    """Have a leader take one batch of several records, and wait for its answer."""
    client, history = cluster.work.clients[0], cluster.work.history
    builder = BatchBuilder(BatchOptions())
    for _ in range(count):
        value = f"script:{len(history.sends)}"
        history.send(Send((TOPIC, 0), value, "script", durable=False, once=False))
        builder.append(client.clock.now_ms(), None, value.encode())
    data = PartitionProduceData(index=0, records=builder.build())
    topic = TopicProduceData(name=TOPIC, partition_data=[data])
    request = ProduceRequest(acks=acks, timeout_ms=2_000, topic_data=[topic])
    asking = spawn(client.ask(BrokerId(leader), request, PRODUCE_VERSION, lane="script"))
    assert cluster.until(lambda: asking.done, 5_000)
    response = asking.result()
    assert isinstance(response, ProduceResponse)
    assert response.responses[0].partition_responses[0].error_code == 0


def leave_with_a_tail(cluster: SimCluster, count: int) -> tuple[int, int]:
    """Have a leader take a batch that nobody fetches, and kill it; nobody writes from now on.
    Return it, and who leads after it.
    """
    cluster.go_on(2_000)
    for producer in cluster.work.producers:
        producer.held = True
    cluster.go_on(4_000)
    first, second, third = lead_with_second(cluster)
    for each in (first, third):
        cluster.network.weather.slow[second, each, int(ApiKey.FETCH)] = NEVER_MS
    write(cluster, second, count, acks=1)
    cluster.kill(second, "kill the leader")
    heal_all(cluster)
    elected = cluster.until(lambda: state(cluster).leader not in (second, NO_LEADER), 20_000)
    assert elected, "nobody leads"
    cluster.until(lambda: state(cluster).isr == (first, third), 20_000)
    cluster.go_on(1_000)
    return second, state(cluster).leader


def delete_before(cluster: SimCluster, leader: int, offset: int) -> None:
    """Delete records that everybody has read, and let the followers hear of it."""
    reader = cluster.work.consumers[0]
    assert cluster.until(lambda: reader.position >= offset, 10_000), "nobody reads"
    cluster.work.history.deletions[TOPIC, 0] = offset
    delete_records_before(replica(cluster, leader), offset)
    followers = [each for each in state(cluster).isr if each != leader]
    cluster.until(
        lambda: all(replica(cluster, each).log.log_start_offset == offset for each in followers),
        5_000,
    )


def write_again(cluster: SimCluster) -> None:
    """Let producers go on."""
    for producer in cluster.work.producers:
        producer.held = False


def a_log_begins_where_a_tail_ends(cluster: SimCluster) -> list[str]:
    """A follower comes back that ends, in an epoch that its leader has forgotten, at the offset
    where the leader's log begins; and that lies inside a batch.
    """
    left, leader = leave_with_a_tail(cluster, 3)
    end = replica(cluster, leader).log.log_end_offset + 3
    for count in (2, 3):
        write(cluster, leader, count, acks=-1)
    delete_before(cluster, leader, end)
    cluster.start_broker(left)
    joined = cluster.until(lambda: left in state(cluster).isr, 20_000)
    write_again(cluster)
    return [] if joined else ["a follower does not begin anew where nothing can be compared"]


def those_who_deleted_are_killed(cluster: SimCluster) -> list[str]:
    """Records are deleted, and their epochs are forgotten with them. Both replicas that did so are
    killed before they checkpoint where their logs begin; then the one comes back that had other
    records there.
    """
    left, leader = leave_with_a_tail(cluster, 3)
    end = replica(cluster, leader).log.log_end_offset + 3
    for count in (3, 1, 1, 1):
        write(cluster, leader, count, acks=-1)
    delete_before(cluster, leader, end + 2)
    others = [each for each in cluster.numbers if each != left]
    for each in others:
        cluster.kill(each, "kill")
    for each in others:
        cluster.start_broker(each)
    if not cluster.until(lambda: len(state(cluster).isr) == len(others), 30_000):
        return [f"the ISR is {state(cluster).isr}"]
    cluster.start_broker(left)
    whole(cluster)
    write_again(cluster)
    return []


def a_leader_gives_way(cluster: SimCluster) -> list[str]:
    """A leader's answers do not reach its followers, so writes wait; another is elected, which has
    other records at their offsets.
    """
    first, second, third = lead_with_second(cluster)
    controller = cluster.controller_number()
    assert controller is not None
    for each in (first, third):
        cluster.network.weather.slow[second, each, int(ApiKey.FETCH)] = NEVER_MS
    log = replica(cluster, second).log
    start = log.log_end_offset
    cluster.until(lambda: log.log_end_offset > start + 2, 1_500)
    elect_preferred(cluster, controller)
    moved = cluster.until(lambda: replica(cluster, first).leading is not None, 5_000)
    heal_all(cluster)
    cluster.network.reset(second, first)
    cluster.network.reset(second, third)
    return [] if moved else ["the preferred replica does not lead"]


def a_write_is_lost(cluster: SimCluster) -> list[str]:
    """An election is written, and neither the store hears of it nor the controller that it did
    not; the leader that it names dies.
    """
    first, _, third = lead_with_second(cluster)
    controller = make_controller(cluster, lambda number: number == third)
    cluster.ensemble.cuts.add((controller, "to"))
    elect_preferred(cluster, controller)
    cluster.go_on(300)
    cluster.ensemble.cuts.discard((controller, "to"))
    cluster.lives[controller].store.reset()
    cluster.go_on(1_000)
    cluster.kill(first, "kill")
    cluster.go_on(8_000)
    return []


def a_high_watermark_lags(cluster: SimCluster) -> list[str]:
    """KAFKA-7128: one write is committed, and the leader dies before its follower hears that it is.
    A third broker lacks it, and has all that the follower knows to be committed.
    """
    first, second, third = state(cluster).replicas
    make_controller(cluster, lambda number: number != first)
    if not cluster.until(lambda: state(cluster).leader == first, 60_000):
        return ["the preferred replica does not lead"]
    for producer in cluster.work.producers:
        producer.held = True
    cluster.go_on(3_000)
    cluster.kill(third, "kill")
    if not cluster.until(lambda: third not in state(cluster).isr, 20_000):
        return ["a killed follower stays in the ISR"]
    cut_off(cluster, third, first)
    cluster.start_broker(third)
    if not cluster.until(lambda: cluster.lives[third].is_up, 20_000):
        return ["a broker does not start"]
    log = replica(cluster, first).log
    committed = log.high_watermark
    cluster.network.weather.slow[second, third, int(ApiKey.FETCH)] = NEVER_MS
    cluster.work.producers[0].held = False
    end_ms = cluster.loop.now_ms + 10_000
    while log.high_watermark == committed and cluster.loop.now_ms < end_ms:
        cluster.go_on(0.05)
    cluster.work.producers[0].held = True
    cluster.network.cut(first, second)
    cluster.kill(first, "kill the leader")
    elected = cluster.until(lambda: state(cluster).leader == second, 20_000)
    cluster.go_on(3_000)
    heal_all(cluster)
    for producer in cluster.work.producers:
        producer.held = False
    return [] if elected else ["nobody leads"]


def a_coordinator_is_cut_off(cluster: SimCluster) -> list[str]:
    """A group commits at a coordinator whose records reach nobody, and which dies."""
    committer = cluster.work.committers[0]
    committed = _commits(cluster)
    if not cluster.until(lambda: _commits(cluster) > committed, 20_000):
        return ["no group commits"]
    index = group_partition(committer.group, 2)
    leader = _coordinator_state(cluster, index).leader
    others = [each for each in cluster.numbers if each != leader]
    for each in others:
        cluster.network.cut(leader, each)
    committed = _commits(cluster)
    cluster.until(lambda: _commits(cluster) > committed, 3_000)
    committer.asks_only = True
    cluster.kill(leader, "kill the coordinator")
    heal_all(cluster)
    asked = len(cluster.work.history.group_offsets)
    seen = cluster.until(
        lambda: any(
            each.group == committer.group and each.step is Step.SEEN and each.asked >= asked
            for each in cluster.work.history.group_offsets[asked:]
        ),
        30_000,
    )
    committer.asks_only = False
    return [] if seen else ["nobody answers for the group"]


def a_coordinator_is_left_alone(cluster: SimCluster) -> list[str]:
    """A group commits at a coordinator whose followers have all left the ISR: it refuses, and does
    not load its records again.
    """
    committer = cluster.work.committers[0]
    committed = _commits(cluster)
    if not cluster.until(lambda: _commits(cluster) > committed, 20_000):
        return ["no group commits"]
    index = group_partition(committer.group, 2)
    leader = _coordinator_state(cluster, index).leader
    shard = _shard(cluster, leader, index)
    for each in cluster.numbers:
        if each != leader:
            cluster.kill(each, "kill a follower of the coordinator")
    if not cluster.until(lambda: _coordinator_state(cluster, index).isr == (leader,), 30_000):
        return ["killed followers stay in the ISR"]
    asked = len(cluster.work.history.group_offsets)
    cluster.go_on(10_000)
    tried = {each.step for each in cluster.work.history.group_offsets[asked:]}
    problems = [] if Step.SENT in tried else ["nobody has tried to commit"]
    if Step.SEEN not in tried:
        problems.append("nobody is told what was committed before")
    if _shard(cluster, leader, index) is not shard:
        problems.append(f"broker {leader} has loaded its groups again")
    return problems


def a_coordinator_is_cut_from_the_store(cluster: SimCluster) -> list[str]:
    """Bytes between a coordinator and the metadata store vanish, all else is reached: another
    broker takes commits while the old one is asked what is committed.
    """
    committed = _commits(cluster)
    if not cluster.until(lambda: _commits(cluster) > committed, 20_000):
        return ["no group commits"]
    committer = cluster.work.committers[0]
    index = group_partition(committer.group, 2)
    old = _coordinator_state(cluster, index).leader
    # A commit that the old coordinator cannot have committed would hold its answers back.
    committer.asks_only = True
    cluster.go_on(1_000)
    cluster.ensemble.cuts.update([(old, "to"), (old, "from")])
    if not cluster.until(lambda: _coordinator_state(cluster, index).leader != old, 20_000):
        return ["nobody else is elected"]
    committer.asks_only = False
    committed = _commits(cluster)
    _commit_at_the_elected(cluster, index, committed)
    cluster.ensemble.cuts.clear()
    return [] if _commits(cluster) > committed else ["the new coordinator takes no commits"]


def _commit_at_the_elected(cluster: SimCluster, index: int, committed: int) -> None:
    """Let the first group ask whom the store says to coordinate it, for six seconds at least and
    until it has committed more than it had; a group may rest for longer than that.
    """
    committer = cluster.work.committers[0]
    now_ms = cluster.loop.now_ms
    end_ms, last_ms = now_ms + 6_000, now_ms + 30_000
    while now_ms < end_ms or (_commits(cluster) <= committed and now_ms < last_ms):
        committer.coordinator = BrokerId(_coordinator_state(cluster, index).leader)
        cluster.go_on(20)
        now_ms = cluster.loop.now_ms


def a_session_of_a_coordinator_is_ended_early(cluster: SimCluster) -> list[str]:
    """A coordinator cannot reach the metadata store, and an operator ends its session there: its
    lease is worth nothing, and it cannot know. Nothing that it acknowledges is lost, and once the
    lease has run out it answers nothing any more.
    """
    committed = _commits(cluster)
    if not cluster.until(lambda: _commits(cluster) > committed, 20_000):
        return ["no group commits"]
    committer = cluster.work.committers[0]
    index = group_partition(committer.group, 2)
    old = _coordinator_state(cluster, index).leader
    committer.asks_only = True
    cluster.go_on(1_000)
    cluster.ensemble.cuts.update([(old, "to"), (old, "from")])
    cluster.ensemble.end_early(cluster.lives[old].store.session_id)
    if not cluster.until(lambda: _coordinator_state(cluster, index).leader != old, 20_000):
        return ["nobody else is elected"]
    committer.asks_only = False
    committed, asked = _commits(cluster), len(cluster.work.history.group_offsets)
    _commit_at_the_elected(cluster, index, committed)
    cluster.ensemble.cuts.clear()
    answers = [
        each
        for each in cluster.work.history.group_offsets[asked:]
        if each.group == committer.group and each.broker == old
    ]
    problems = [] if _commits(cluster) > committed else ["the new coordinator takes no commits"]
    return problems + ([] if answers else ["the old coordinator is never believed"])


def _coordinator_state(cluster: SimCluster, index: int) -> PartitionState:
    node = cluster.ensemble.tree.nodes[paths.state(GROUP_METADATA_TOPIC, index)]
    return payloads.read_state("", node.data, replicas=(), version=0)


def _shard(cluster: SimCluster, number: int, index: int) -> object:
    """Return what a broker remembers of the groups of a partition."""
    groups = cluster.lives[number].core.coordinators.find(0).get()
    assert isinstance(groups, GroupCoordinatorRuntime)
    return groups._runtime._drivers[index]._shard


def _commits(cluster: SimCluster) -> int:
    group = cluster.work.committers[0].group
    return sum(
        each.group == group and each.step is Step.ACKNOWLEDGED
        for each in cluster.work.history.group_offsets
    )


def the_last_in_sync_loses_its_power(cluster: SimCluster) -> list[str]:
    """The last of the ISR loses its power, and what it had not flushed. An eligible replica has
    all that is committed; the last of the ISR comes back alone.
    """
    first, second, third = state(cluster).replicas
    cluster.go_on(2_000)
    for each in (first, second):
        cluster.kill(each, "kill")
        if not cluster.until(lambda each=each: each not in state(cluster).isr, 20_000):  # type: ignore[misc]
            return ["a killed broker stays in the ISR"]
    cluster.lose_power(third)
    cluster.start_broker(third)
    cluster.go_on(10_000)
    return []


def two_tails(cluster: SimCluster) -> list[str]:
    """KIP-279: two leaders in turn write what nobody fetches, each in an epoch of its own, and the
    first of them leads again.
    """
    first, second, third = lead_with_second(cluster)
    controller = cluster.controller_number()
    assert controller is not None
    slow = cluster.network.weather.slow
    for each in (first, third):
        slow[second, each, int(ApiKey.FETCH)] = NEVER_MS
    for each in (second, third):
        slow[first, each, int(ApiKey.FETCH)] = NEVER_MS
    cluster.go_on(900)
    elect_preferred(cluster, controller)
    if not cluster.until(lambda: replica(cluster, first).leading is not None, 2_000):
        return ["the preferred replica does not lead"]
    cluster.go_on(900)
    cluster.kill(first, "kill the leader")
    elected = cluster.until(lambda: state(cluster).leader == second, 20_000)
    heal_all(cluster)
    cluster.network.reset(second, third)
    return [] if elected else ["the second replica does not lead"]


def a_move_takes_long(cluster: SimCluster) -> list[str]:
    """A replica moves to a broker that is cut off from the leader, and another leaves the ISR."""
    first, second, third = state(cluster).replicas
    newcomer = next(each for each in cluster.numbers if each not in (first, second, third))
    if not cluster.until(lambda: state(cluster).leader == first, 60_000):
        return ["the preferred replica does not lead"]
    controller = make_controller(cluster, lambda number: number == second)
    cut_off(cluster, first, third, newcomer)
    control = cluster.lives[controller].controller.replicas
    control.move([Move(TopicPartition(TOPIC, 0), [first, second, newcomer])]).on_done(
        lambda _: None
    )
    gone = cluster.until(lambda: third not in state(cluster).isr, 20_000)
    cluster.go_on(2_000)
    return [] if gone else ["a follower that is cut off stays in the ISR"]


def a_replica_moves_in_every_role(cluster: SimCluster) -> list[str]:
    """A follower begins to move to another log directory, is made the leader while it is copied,
    and is killed. It follows and leads once more before the move ends.
    """
    first, second, _ = lead_with_second(cluster)
    partition, controller = replica(cluster, first), cluster.controller_number()
    assert controller is not None
    before = partition.log.log_directory
    wanted = next(each for each in cluster.directories if each != before)
    cluster.move_ms = cluster.lives[first].offload.move_ms = NEVER_MS
    move_log(cluster, first, 0, wanted)
    if not cluster.until(lambda: bool(list(cluster.lives[first].log_manager.future_logs)), 1_000):
        return ["a follower does not begin to move"]
    elect_preferred(cluster, controller)
    if not cluster.until(lambda: replica(cluster, first).leading is not None, 10_000):
        return ["the preferred replica does not lead"]
    cluster.go_on(1_000)
    cluster.kill(first, "kill the leader")
    if not cluster.until(lambda: state(cluster).leader == second, 20_000):
        return ["nobody leads"]
    cluster.move_ms = 500.0
    cluster.start_broker(first)
    whole(cluster)
    elect_preferred(cluster, controller)
    moved = cluster.until(lambda: replica(cluster, first).log.log_directory == wanted, 20_000)
    return [] if moved else ["a move does not end"]


def a_follower_truncates_and_loses_its_power(cluster: SimCluster) -> list[str]:
    """A broker has checkpointed a recovery point when it truncates its log below it. It fetches as
    much as it had, closes segments on the way, and loses its power before the next checkpoint.
    """
    first, second, third = lead_with_second(cluster)
    for each in (first, third):
        cluster.network.weather.slow[second, each, int(ApiKey.FETCH)] = NEVER_MS
    log = replica(cluster, second).log
    start = log.log_end_offset
    cluster.until(lambda: log.log_end_offset > start + 12, 5_000)
    cluster.kill(second, "kill the leader")
    cut_off(cluster, second, first, third)
    cluster.network.weather.slow.clear()
    if not cluster.until(lambda: state(cluster).leader not in (second, NO_LEADER), 20_000):
        return ["nobody leads"]
    cluster.start_broker(second)
    if not cluster.until(lambda: cluster.lives[second].is_up, 20_000):
        return ["a broker does not start"]
    cluster.go_on(4_000)  # the recovery point is checkpointed meanwhile
    kept = cluster.lives[second].log_manager.get(TopicPartition(TOPIC, 0))
    assert kept is not None
    flushed = kept.recovery_point
    leader = replica(cluster, state(cluster).leader).log
    if not cluster.until(lambda: leader.log_end_offset > flushed + 12, 30_000):
        return ["nobody writes"]
    for each in (first, third):
        cluster.network.heal(second, each)
        cluster.network.heal(each, second)
    if not cluster.until(lambda: kept.recovery_point < flushed, 10_000):
        return []  # nothing had to be truncated
    if not cluster.until(lambda: kept.log_end_offset > flushed, 1_500):
        return []
    cluster.lose_power(second)
    cluster.start_broker(second)
    return []


SCRIPTS: dict[Script, Shape] = {
    answers_are_lost: Shape(),
    a_leader_writes_nothing: Shape(),
    a_client_names_its_leader_epoch: Shape(),
    nobody_knows_the_epoch_of_a_tail: Shape(rebalances=False),
    one_writer_is_left_alone: Shape(min_isr=1),
    a_follower_is_cut_off: Shape(),
    the_controller_is_cut_from_a_follower: Shape(),
    a_push_is_late: Shape(min_isr=1, rebalances=False),
    an_old_push_comes_last: Shape(rebalances=False),
    fewer_have_to_be_in_sync: Shape(rebalances=False),
    the_controller_is_deposed: Shape(),
    a_proposal_is_late: Shape(brokers=4, rebalances=False),
    an_answer_is_late: Shape(brokers=4, min_isr=1, rebalances=False),
    a_follower_comes_back_with_less: Shape(),
    a_log_begins_inside_a_batch: Shape(),
    a_log_begins_where_a_tail_ends: Shape(rebalances=False),
    those_who_deleted_are_killed: Shape(flush_policy="ack", rebalances=False),
    a_leader_gives_way: Shape(rebalances=False),
    a_write_is_lost: Shape(rebalances=False),
    a_high_watermark_lags: Shape(),
    a_coordinator_is_cut_off: Shape(groups=True),
    a_coordinator_is_left_alone: Shape(groups=True),
    a_coordinator_is_cut_from_the_store: Shape(asks_everybody=True),
    a_session_of_a_coordinator_is_ended_early: Shape(asks_everybody=True),
    the_last_in_sync_loses_its_power: Shape(),
    two_tails: Shape(rebalances=False),
    a_move_takes_long: Shape(brokers=4),
    a_replica_moves_in_every_role: Shape(directories=2, rebalances=False),
    a_follower_truncates_and_loses_its_power: Shape(segment_bytes=300, rebalances=False),
}
"""Every script, and the cluster that it needs."""
