"""What happened to a group while it was watched: judged from several looks at it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from millstream.client.core.admin.group_descriptions import GroupMember
from millstream.client.doctor import Severity
from millstream.config.quantities import counted
from millstream.inspection.findings import Finding, duration, names, quoted, ranked
from millstream.inspection.group_health import GroupSight
from millstream.model.topic import TopicPartition

_GROWN: Final = 0.05
"""A lag that grew by less of itself stays the same."""


def judge_changes(sights: Sequence[GroupSight]) -> list[Finding]:
    """Return what changed between looks at a group, the worst first; one look tells nothing."""
    if len(sights) < 2:
        return []
    found: list[Finding] = []
    for judge in (_members, _states, _moves, _lag, _stuck):
        found += judge(sights)
    return ranked(found)


def _identity(member: GroupMember) -> tuple[str, str]:
    return member.client_id, member.instance_id or member.host


def _described(member: GroupMember) -> str:
    return f"{member.client_id} at {member.host}"


def _members(sights: Sequence[GroupSight]) -> Iterator[Finding]:
    left: Counter[tuple[str, str]] = Counter()
    came: Counter[tuple[str, str]] = Counter()
    names_of: dict[tuple[str, str], str] = {}
    for before, after in pairwise(sights):
        earlier = {each.member_id: each for each in before.description.members}
        later = {each.member_id: each for each in after.description.members}
        for members, other, counter in ((earlier, later, left), (later, earlier, came)):
            for member_id in members.keys() - other.keys():
                identity = _identity(members[member_id])
                counter[identity] += 1
                names_of[identity] = _described(members[member_id])
    name = sights[-1].name
    for identity in sorted(left.keys() | came.keys()):
        told = names_of[identity]
        if left[identity] and came[identity]:
            yield Finding(
                Severity.RISK,
                name,
                f"{told} left and came back ({left[identity]} times): it was started again, did "
                "not poll within max.poll.interval.ms, or sent no heartbeat within "
                "session.timeout.ms. group.instance.id lets a member come back without a "
                "rebalance; fewer records (max.poll.records) make the time between polls shorter.",
                f"millstream group describe {quoted(name)}",
            )
        elif left[identity]:
            yield Finding(
                Severity.RISK,
                name,
                f"{told} left: it was closed, or removed because it did not poll or send "
                f"heartbeats in time.",
                f"millstream group describe {quoted(name)}",
            )
        else:
            yield Finding(
                Severity.NOTE,
                name,
                f"{told} joined, and partitions were assigned again.",
                f"millstream group describe {quoted(name)}",
            )


def _states(sights: Sequence[GroupSight]) -> Iterator[Finding]:
    states = [sights[0].description.state]
    for sight in sights[1:]:
        if sight.description.state != states[-1]:
            states.append(sight.description.state)
    last = sights[-1]
    grown = last.description.group_epoch - sights[0].description.group_epoch
    watched = duration(last.at_ms - sights[0].at_ms)
    if len(states) > 1:
        yield Finding(
            Severity.RISK,
            last.name,
            f"The state changed within {watched}: {', then '.join(states)}.",
            f"millstream group describe {quoted(last.name)}",
        )
    if grown > 0:
        yield Finding(
            Severity.RISK,
            last.name,
            f"The group's epoch grew by {grown} within {watched}: members, subscriptions or "
            "topics changed so often.",
            f"millstream group describe {quoted(last.name)}",
        )
    coordinators = {each.description.coordinator for each in sights}
    if len(coordinators) > 1:
        yield Finding(
            Severity.RISK,
            last.name,
            f"The coordinator moved to {last.description.coordinator}: every member looked it up "
            "again.",
            "millstream doctor cluster",
        )


def _moves(sights: Sequence[GroupSight]) -> Iterator[Finding]:
    def owners(sight: GroupSight) -> dict[TopicPartition, str]:
        return {
            each: member.member_id
            for member in sight.description.members
            for each in member.partitions
        }

    moved: Counter[TopicPartition] = Counter()
    for before, after in pairwise(sights):
        earlier, later = owners(before), owners(after)
        moved.update(each for each in earlier.keys() & later.keys() if earlier[each] != later[each])
    if moved:
        yield Finding(
            Severity.NOTE,
            sights[-1].name,
            f"{names(sorted(moved))}: moved from one member to another "
            f"({counted(sum(moved.values()), 'move')}).",
            f"millstream group describe {quoted(sights[-1].name)}",
        )


def _lag(sights: Sequence[GroupSight]) -> Iterator[Finding]:
    first, last = sights[0], sights[-1]
    both = first.lag.keys() & last.lag.keys()
    before, after = (sum(sight.lag[each] for each in both) for sight in (first, last))
    seconds = max(last.at_ms - first.at_ms, 1) / 1000
    if after - before <= _GROWN * before or after <= before or not last.description.members:
        return
    read = sum(last.committed[each] - first.committed[each] for each in both)
    written = sum(last.ends[each] - first.ends[each] for each in both)
    members = len(last.description.members)
    number = sum(last.partitions.get(topic) or 0 for topic in last.read_topics)
    topic = sorted(last.read_topics)[0] if last.read_topics else "TOPIC"
    more = (
        f"millstream topic alter {quoted(topic)} --partitions {2 * max(number, 1)}"
        if members >= number
        else f"millstream consume {quoted(topic)} --group {quoted(last.name)}"
    )
    yield Finding(
        Severity.RISK,
        last.name,
        f"The lag grows, from {before:,} to {after:,} records: {written / seconds:,.0f} a second "
        f"are written, and {read / seconds:,.0f} committed by {counted(members, 'member')}. "
        + ("More members need more partitions." if members >= number else "Add members."),
        more,
    )


def _stuck(sights: Sequence[GroupSight]) -> Iterator[Finding]:
    """Members that send heartbeats and commit nothing, with records left to read."""
    first, last = sights[0], sights[-1]
    still = sorted(
        each
        for each in last.owned & first.owned
        if last.lag.get(each)
        and first.lag.get(each)
        and last.committed[each] == first.committed.get(each)
    )
    if not still:
        return
    holders = [
        _described(member)
        for member in last.description.members
        if set(member.partitions) & set(still)
    ]
    yield Finding(
        Severity.BROKEN,
        last.name,
        f"{names(still)}: nothing was committed within {duration(last.at_ms - first.at_ms)}, "
        f"although records wait and {names(holders)} sends heartbeats. It hangs in its work, or "
        "commits rarely; after max.poll.interval.ms it is taken out, and the group rebalances.",
        f"millstream group describe {quoted(last.name)}",
    )
