"""Faults in an order that chance seldom finds: each says which rule it needs.

A script is played by a cluster of three brokers and one partition, and must end without a problem
(``test_scripts``); ``test_mutations`` plays it again without the rule.
"""

from __future__ import annotations

from collections.abc import Callable

from millstream.controller import paths, payloads
from millstream.model.broker import BrokerId
from millstream.model.leadership import NO_LEADER, PartitionState
from millstream.model.metadata_store import Node
from millstream.protocol.api import ApiKey
from millstream.sim.cluster import Report, SimCluster
from millstream.sim.faults import Swarm
from millstream.sim.workload import TOPIC

Script = Callable[[SimCluster], list[str]]
ACKNOWLEDGED_MS = 30_000


def play(script: Script, seed: int, *, min_isr: int = 2) -> Report:
    """Play a script in the first cluster from ``seed`` on that has the shape it needs."""
    while True:
        cluster = SimCluster(seed, swarm=Swarm.of("elect"))
        shape = (len(cluster.numbers), cluster.work.partition_count, cluster.min_isr)
        if shape == (3, 1, min_isr):
            return _play(cluster, script)
        seed += 1


def _play(cluster: SimCluster, script: Script) -> Report:
    return cluster.play(lambda: script(cluster))


def state(cluster: SimCluster) -> PartitionState:
    tree = cluster.ensemble.tree.nodes
    node = tree[paths.state(TOPIC, 0)]
    replicas = payloads.read_topic("", tree[paths.topic(TOPIC)].data).replicas[0]
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


SCRIPTS: tuple[tuple[Script, int], ...] = (
    (answers_are_lost, 2),
    (a_leader_writes_nothing, 2),
    (one_writer_is_left_alone, 1),
    (a_follower_is_cut_off, 2),
    (the_controller_is_cut_from_a_follower, 2),
)
"""Every script, and the ``min.insync.replicas`` that it needs."""
