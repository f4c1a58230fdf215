"""Describes which partitions are at risk, and why, in sentences. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from millstream.client.replicas import ClusterView, Replicas
from millstream.model.topic import TopicPartition

_NAMED = 5


class Severity(IntEnum):
    """The severity; the largest is shown first."""

    NOTE = 0
    RISK = 1
    """Nothing fails now; the next failure will hurt."""
    BROKEN = 2
    """Reads, writes or acknowledgements fail now."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence and its severity."""

    severity: Severity
    sentence: str


_NO_CONTROLLER: Final = Finding(
    Severity.BROKEN,
    "There is no controller: topics cannot be changed and leaders cannot be elected. Look whether "
    "ZooKeeper answers.",
)


def diagnose(
    view: ClusterView,
    moves: Iterable[TopicPartition] | None = (),
    limited: Iterable[int] = (),
) -> list[Finding]:
    """Return the problems, the worst first; empty if there are none.

    ``moves`` are the ongoing reassignments, None if no controller answered; ``limited``
    are the brokers that have rate limits on replication.
    """
    found = [*_brokers_down(view), *_leaderless(view), *_in_sync(view), *_placing(view)]
    if moves is None or view.controller_id not in view.brokers:
        found.insert(0, _NO_CONTROLLER)
    moving = [str(each) for each in moves or ()]
    if moving:
        found.append(Finding(Severity.NOTE, f"{_names(moving)}: on the way to other brokers."))
    if held := sorted(limited):
        found.append(
            Finding(
                Severity.NOTE,
                f"Replication is limited on {_brokers(held)}: replicas may take long to catch up. "
                "When nothing moves any more, lift it: millstream cluster reassign --verify.",
            )
        )
    return sorted(found, key=lambda each: -each.severity)


def _brokers_down(view: ClusterView) -> Iterator[Finding]:
    known = {each for partition in view.partitions for each in partition.replicas}
    for broker_id in sorted(known - view.brokers.keys()):
        kept = [each for each in view.partitions if broker_id in each.replicas]
        yield Finding(
            Severity.RISK,
            f"Broker {broker_id} is down; {_count(kept)} {'has' if len(kept) == 1 else 'have'} a "
            f"replica on it. {_without_it(kept, len(view.brokers))}",
        )


def _without_it(kept: list[Replicas], live: int) -> str:
    """Return what to do: replicas are moved only where the brokers that are alive are enough."""
    move = "millstream cluster reassign --execute."
    stuck = [each for each in kept if len(each.replicas) > live]
    if not stuck:
        return f"Start it, or move the replicas: {move}"
    most = max(len(each.replicas) for each in stuck)
    if len(stuck) < len(kept):
        return (
            f"Start it, or move those that fit on the other brokers: {move} {_named(stuck)} would "
            f"need {most}, and {_alive(live)}."
        )
    return (
        f"Start it, or let another broker join: {most} replicas need as many brokers, and "
        f"{_alive(live)}. Fewer replicas: millstream topic alter TOPIC --replication-factor {live}."
    )


def _alive(live: int) -> str:
    return f"{live} {'is' if live == 1 else 'are'} alive"


def _leaderless(view: ClusterView) -> Iterator[Finding]:
    for each in view.partitions:
        if each.leader in view.brokers:
            continue
        holders = each.isr or each.elr
        if holders:
            yield Finding(
                Severity.BROKEN,
                f"{each.topic_partition} has no leader: all of its records are with "
                f"{_brokers(holders)}. Start {'one of them' if len(holders) > 1 else 'it'}.",
            )
        elif each.last_known_elr:
            yield Finding(
                Severity.BROKEN,
                f"{each.topic_partition} has no leader, and no broker is known to have all of its "
                f"records. Start {_brokers(each.last_known_elr)}: then the longest log will lead.",
            )
        else:
            yield Finding(
                Severity.BROKEN,
                f"{each.topic_partition} has no leader: start {_brokers(each.replicas)}.",
            )


def _in_sync(view: ClusterView) -> Iterator[Finding]:
    led = [each for each in view.partitions if each.leader in view.brokers]
    below = [each for each in led if len(each.isr) < each.min_insync_replicas]
    if below:
        yield Finding(
            Severity.BROKEN,
            f"{_named(below)}: writes with acks=all are refused, for fewer replicas are in sync "
            "than min.insync.replicas asks for.",
        )
    edge = [
        each
        for each in led
        if each not in below
        and len(each.replicas) > 1
        and len(each.isr) == each.min_insync_replicas
        and len(each.isr) < len(each.replicas)
    ]
    if edge:
        yield Finding(
            Severity.RISK,
            f"{_named(edge)}: the loss of one more broker stops writes with acks=all.",
        )
    behind = [
        each for each in led if len(each.isr) < len(each.replicas) and each not in (*below, *edge)
    ]
    if behind:
        yield Finding(
            Severity.RISK, f"{_named(behind)}: not all replicas are in sync; one is missing."
        )


def _placing(view: ClusterView) -> Iterator[Finding]:
    if len(view.brokers) < 2:
        return
    single = [each for each in view.partitions if len(each.replicas) == 1]
    if single:
        yield Finding(
            Severity.RISK,
            f"{_named(single)}: with one replica, its broker's disk is all there is of it.",
        )
    strict = [
        each
        for each in view.partitions
        if len(each.replicas) > 1 and each.min_insync_replicas == len(each.replicas)
    ]
    if strict:
        yield Finding(
            Severity.RISK,
            f"{_named(strict)}: min.insync.replicas is as high as the number of replicas, so "
            "every stop of a broker stops writes with acks=all.",
        )
    racks = {each.rack for each in view.brokers.values()} - {None}
    if len(racks) > 1:
        huddled = [each for each in view.partitions if _in_one_rack(each, view)]
        if huddled:
            yield Finding(
                Severity.RISK,
                f"{_named(huddled)}: all replicas stand in one rack, though there are "
                f"{len(racks)}.",
            )
    elsewhere = [
        each
        for each in view.partitions
        if each.leader in view.brokers
        and each.leader != each.replicas[0]
        and each.replicas[0] in each.isr
    ]
    if elsewhere:
        yield Finding(
            Severity.NOTE,
            f"{_named(elsewhere)}: not led by the preferred replica. Leaders go back by "
            "themselves, or at once with: millstream cluster elect-leaders.",
        )


def _in_one_rack(partition: Replicas, view: ClusterView) -> bool:
    racks = [view.brokers[each].rack for each in partition.replicas if each in view.brokers]
    return len(partition.replicas) > 1 and len(set(racks)) == 1 and None not in racks


def _named(partitions: Iterable[Replicas]) -> str:
    return _names([str(each.topic_partition) for each in partitions])


def _names(names: list[str]) -> str:
    if len(names) <= _NAMED:
        return ", ".join(names)
    left = len(names) - _NAMED
    return f"{', '.join(names[:_NAMED])} and {left} more partition{'' if left == 1 else 's'}"


def _count(partitions: list[Replicas]) -> str:
    return "1 partition" if len(partitions) == 1 else f"{len(partitions)} partitions"


def _brokers(ids: Iterable[int]) -> str:
    named = sorted(ids)
    if len(named) == 1:
        return f"broker {named[0]}"
    return f"brokers {', '.join(map(str, named[:-1]))} and {named[-1]}"
