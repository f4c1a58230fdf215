"""Ways in which a broker of three fails, and what a stock client sees of each."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from bench.load.trickle import (
    CommitTrickle,
    Trickle,
    WriteTrickle,
    committed_offset,
    read_back,
)
from bench.peers.cluster_view import ClusterView
from bench.peers.subject import SubjectFailedError
from bench.peers.trio import addresses, bring_back

TOPIC, PARTITIONS = "gaps", 6
CALM_S = 0.5
"""How long writes run before a failure, and after it."""
SHORT_PAUSE_S, LONG_PAUSE_S = 3.0, 13.0
"""Below and above the session of both: 9 s by default."""


class Failure(Enum):
    """What is done to whom; the value is said in tables."""

    LEADER = "kill -9 of the leader"
    CONTROLLER = "kill -9 of the controller"
    BOTH = "kill -9 of leader and controller in one"
    COORDINATOR = "kill -9 of the group coordinator (commits)"
    SHORT_PAUSE = f"leader paused for {SHORT_PAUSE_S:g} s"
    LONG_PAUSE = f"leader paused for {LONG_PAUSE_S:g} s"
    ROLLING = "rolling restart"


@dataclass(frozen=True)
class Seen:
    """What a client saw: seconds to the first answer to what it asked after the failure, the
    longest time between two answers, acknowledged things that are lost, elections that happened.
    """

    first_s: float
    gap_s: float
    lost: int
    elections: int = 0


def observe(view: ClusterView, failure: Failure) -> Seen:
    """Let a failure happen under a trickle of writes, and heal the cluster afterwards."""
    view.heal(TOPIC)
    if failure is Failure.COORDINATOR:
        return _kill_coordinator(view)
    bootstrap = addresses(view.nodes)
    partition, victim = _choose(view, failure)
    epoch = view.leader_epoch(TOPIC, partition)
    with WriteTrickle(bootstrap, TOPIC, partition, partitions=PARTITIONS) as trickle:
        trickle.wait_for_answer(0.0)
        time.sleep(CALM_S)
        begun = time.perf_counter()
        first_s = _bring_about(failure, view, victim, trickle)
        time.sleep(CALM_S)
    _check(trickle)
    view.wait_until(lambda: view.is_whole(TOPIC), "all replicas are in sync again")
    acknowledged = trickle.acknowledged
    return Seen(
        first_s,
        acknowledged.largest_gap(begun),
        len(acknowledged.values - read_back(bootstrap, TOPIC, partition)),
        view.leader_epoch(TOPIC, partition) - epoch,
    )


def _choose(view: ClusterView, failure: Failure) -> tuple[int, int]:
    """Return the partition that is written to, and the broker that fails."""
    controller = view.controller()
    for partition, leader in view.leaders(TOPIC).items():
        if failure is Failure.BOTH and leader == controller:
            return partition, leader
        if failure is Failure.CONTROLLER and leader != controller:
            return partition, controller
        if failure not in (Failure.BOTH, Failure.CONTROLLER) and leader != controller:
            return partition, leader
    raise SubjectFailedError(f"no partition is led as {failure.value} needs it")


def _check(trickle: Trickle) -> None:
    if trickle.failure is not None:
        raise trickle.failure


def _bring_about(failure: Failure, view: ClusterView, victim: int, trickle: Trickle) -> float:
    """Let a failure happen, and return after how many seconds the first write was answered."""
    if failure is Failure.SHORT_PAUSE:
        return _pause(view, victim, trickle, SHORT_PAUSE_S)
    if failure is Failure.LONG_PAUSE:
        return _pause(view, victim, trickle, LONG_PAUSE_S)
    if failure is Failure.ROLLING:
        return _restart_all(view, trickle)
    return _kill(view, victim, trickle)


def _kill(view: ClusterView, victim: int, trickle: Trickle) -> float:
    killed = time.perf_counter()
    view.nodes[victim].kill()
    first_s = trickle.wait_for_answer(killed)
    time.sleep(CALM_S)  # what comes back is another load; its effect is not this failure's
    bring_back(view.nodes[victim])
    return first_s


def _pause(view: ClusterView, victim: int, trickle: Trickle, pause_s: float) -> float:
    pid = view.nodes[victim].pid
    paused = time.perf_counter()
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(pause_s)
    finally:
        os.kill(pid, signal.SIGCONT)
    return trickle.wait_for_answer(paused)


def _restart_all(view: ClusterView, trickle: Trickle) -> float:
    longest = 0.0
    for node in view.nodes.values():
        stopped = time.perf_counter()
        node.stop()
        longest = max(longest, trickle.wait_for_answer(stopped))
        bring_back(node)
        view.wait_until(lambda: view.is_whole(TOPIC), "all replicas are in sync again")
    return longest


def _kill_coordinator(view: ClusterView) -> Seen:
    """Kill the coordinator of a group that commits; its last commit must not be forgotten."""
    bootstrap = addresses(view.nodes)
    controller = view.controller()
    group = _group_with(view, lambda coordinator: coordinator != controller)
    victim = view.coordinator(group)
    with CommitTrickle(bootstrap, group, TOPIC) as trickle:
        trickle.wait_for_answer(0.0)
        time.sleep(CALM_S)
        begun = time.perf_counter()
        first_s = _kill(view, victim, trickle)
        time.sleep(CALM_S)
    _check(trickle)
    forgotten = committed_offset(bootstrap, group, TOPIC) < trickle.last_committed
    return Seen(first_s, trickle.acknowledged.largest_gap(begun), int(forgotten))


def _group_with(view: ClusterView, fits: Callable[[int], bool]) -> str:
    for number in range(100):
        group = f"commits-{number}"
        if fits(view.coordinator(group)):
            return group
    raise SubjectFailedError("no group is coordinated as wanted")
