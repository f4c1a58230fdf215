"""Scripts about brokers that others cannot reach, although clients and the metadata store can.

They are played as those of ``scripts`` are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.unit.sim.scripts import (
    Script,
    Shape,
    lead_with_second,
    make_controller,
    make_controller_and_leader_two,
    state,
    whole,
)

from millstream.model.leadership import PartitionState
from millstream.sim.broker import SESSION_TIMEOUT_MS
from millstream.sim.cluster import SimCluster

MOVED_MS = 3_000.0
"""Within so long another replica has to lead."""
LONG_MS = 12_000.0
PAUSES = 6
PAUSE_MS = 0.6 * SESSION_TIMEOUT_MS
"""So long a leader may be paused without losing its session."""


def _while_unreachable(cluster: SimCluster, number: int, *, resets: bool) -> Callable[[], None]:
    """Let no other broker reach one; return what ends that."""
    others = [each for each in cluster.numbers if each != number]
    cluster.network.make_unreachable(others, number, resets=resets)
    return partial(cluster.network.make_reachable, others, number)


def _followers_cannot_reach_their_leader(cluster: SimCluster, *, resets: bool) -> list[str]:
    first, leader, third = lead_with_second(cluster)
    before = state(cluster)
    end = _while_unreachable(cluster, leader, resets=resets)
    moved = cluster.until(lambda: state(cluster).leader != leader, MOVED_MS)
    if not moved:
        end()
        return ["nobody leads instead of a leader that is out of reach"]
    problems = []
    moment_ms = cluster.loop.now_ms
    if not cluster.until(lambda: not cluster.work.waits_since(moment_ms), MOVED_MS):
        problems.append("writes are not acknowledged by the new leader")
    if set(state(cluster).isr) != {first, leader, third}:
        problems.append(f"the ISR is {state(cluster).isr}")
    changes = _changes_of_leader(cluster, LONG_MS)
    end()
    changes += _changes_of_leader(cluster, LONG_MS)
    if changes:
        problems.append(f"the leader changed {changes} times more")
    if state(cluster).leader_epoch != before.leader_epoch + 1 + changes:
        problems.append("more epochs than leaders")
    return problems


def a_listener_swallows(cluster: SimCluster) -> list[str]:
    """Fetches to a leader vanish: the first follower leads within three seconds, and the old leader
    follows it. Nothing changes when the listener is well again.
    """
    return _followers_cannot_reach_their_leader(cluster, resets=False)


def a_listener_resets(cluster: SimCluster) -> list[str]:
    """The same where connections to the leader are reset."""
    return _followers_cannot_reach_their_leader(cluster, resets=True)


def a_follower_is_ill(cluster: SimCluster) -> list[str]:
    """One follower reaches nobody, the other one reaches the leader: no leader changes."""
    first, leader, _ = lead_with_second(cluster)
    others = [each for each in cluster.numbers if each != first]
    for each in others:
        cluster.network.make_unreachable([first], each, resets=False)
    changes = _changes_of_leader(cluster, LONG_MS)
    for each in others:
        cluster.network.make_reachable([first], each)
    return [] if state(cluster).leader == leader and not changes else ["the leader has changed"]


def a_leader_is_paused(cluster: SimCluster) -> list[str]:
    """A leader is paused again and again for less than its session lasts: no leader changes, not
    even when it has just woken up.
    """
    whole(cluster)
    leader = state(cluster).leader
    changes = 0
    for number in range(PAUSES):
        cluster.lives[leader].clock.pause()
        changes += _changes_of_leader(cluster, PAUSE_MS)
        cluster.lives[leader].clock.resume()
        changes += _changes_of_leader(cluster, PAUSE_MS + 71 * number)
    return [] if state(cluster).leader == leader and not changes else ["the leader has changed"]


def a_link_is_cut_both_ways(cluster: SimCluster) -> list[str]:
    """Leader and follower do not reach each other, and no third replica is in sync: another leader
    would be no better.
    """
    first, leader, third = lead_with_second(cluster)
    cluster.kill(third, "kill the third")
    if not cluster.until(lambda: third not in state(cluster).isr, 20_000):
        return [f"the ISR is {state(cluster).isr}"]
    cluster.network.make_unreachable([first], leader, resets=False)
    cluster.network.make_unreachable([leader], first, resets=False)
    changes = _changes_of_leader(cluster, LONG_MS)
    cluster.network.make_reachable([first], leader)
    cluster.network.make_reachable([leader], first)
    return [f"the leader has changed {changes} times"] if changes > 1 else []


def a_controller_is_not_let_in(cluster: SimCluster) -> list[str]:
    """Nobody can open another connection to a leader, and the controller dies: the leader reads
    from the store who its heir is and what that has decided, and writes go on.
    """
    controller, leader, third = make_controller_and_leader_two(cluster)
    whole(cluster)
    cluster.network.closed_to.add((third, leader))
    cluster.kill(controller, "kill the controller")
    make_controller(cluster, lambda number: number == third)
    moment_ms = cluster.loop.now_ms
    answered = cluster.until(lambda: not cluster.work.waits_since(moment_ms), LONG_MS)
    cluster.network.closed_to.discard((third, leader))
    return [] if answered else ["a leader that does not hear the controller takes no writes"]


def _changes_of_leader(cluster: SimCluster, for_ms: float) -> int:
    """Let time pass; return how often the leader of the first partition changes meanwhile."""
    seen: list[PartitionState] = [state(cluster)]
    end_ms = cluster.loop.now_ms + for_ms

    def look() -> bool:
        now = state(cluster)
        if now.leader != seen[-1].leader:
            seen.append(now)
        return cluster.loop.now_ms >= end_ms

    cluster.until(look, for_ms + 1_000)
    return len(seen) - 1


SCRIPTS: dict[Script, Shape] = {
    a_listener_swallows: Shape(rebalances=False, leaves_unreachable=True),
    a_listener_resets: Shape(rebalances=False, leaves_unreachable=True),
    a_follower_is_ill: Shape(rebalances=False, leaves_unreachable=True),
    a_controller_is_not_let_in: Shape(rebalances=False, leaves_unreachable=True),
    a_leader_is_paused: Shape(rebalances=False, leaves_unreachable=True),
    a_link_is_cut_both_ways: Shape(min_isr=1, rebalances=False, leaves_unreachable=True),
}
