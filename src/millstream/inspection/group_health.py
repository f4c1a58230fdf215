"""Why a group rebalances, or does not read on: judged from one look at it. Pure.

What several looks tell together is in :mod:`millstream.inspection.group_changes`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from millstream.client.core.admin.group_descriptions import CLASSIC, CONSUMER, GroupDescription
from millstream.client.core.admin.producers import ActiveProducer
from millstream.client.doctor import Severity
from millstream.config.quantities import counted
from millstream.inspection.findings import Finding, names, not_told, quoted, ranked
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition

_ASSIGNORS: Final = {
    CLASSIC: frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"}),
    CONSUMER: frozenset({"uniform", "range"}),
}
"""What Apache Kafka's clients and brokers bring along."""
_REBALANCING: Final = frozenset({"PreparingRebalance", "CompletingRebalance"})
_CONSUMERS: Final = frozenset({"", "consumer"})
_OF_A_LOAD: Final = re.compile(r"millstream-.+-[0-9a-f]{8}")
"""The groups that loads show their progress in, unless they are told another name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCommits:
    """Open transactions in the partition that keeps the group's offsets."""

    topic_partition: TopicPartition
    producers: tuple[ActiveProducer, ...] = ()
    holds_back: bool = False
    """True when offsets of this very group wait for one of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSight:
    """A group at one moment. Of partitions that could not be looked up nothing is known."""

    at_ms: int
    description: GroupDescription
    committed: Mapping[TopicPartition, Offset]
    starts: Mapping[TopicPartition, Offset]
    ends: Mapping[TopicPartition, Offset]
    """High watermarks."""
    stable: Mapping[TopicPartition, Offset]
    """Last stable offsets."""
    partitions: Mapping[str, int | None]
    """How many partitions the topics have that the group reads, None for one that is not there."""
    leaderless: tuple[TopicPartition, ...] = ()
    pending: PendingCommits | None = None
    max_size: int | None = None
    """``group.max.size`` of the coordinator."""
    session_ms: tuple[int, int] | None = None
    """The bounds within which classic members may choose ``session.timeout.ms``."""
    untold: Mapping[str, str] = field(default_factory=dict)
    """What could not be found out, and why."""

    @property
    def name(self) -> str:
        """The group."""
        return self.description.group

    @property
    def lag(self) -> dict[TopicPartition, int]:
        """How many offsets are left to read, by partition."""
        return {
            each: max(self.ends[each] - offset, 0)
            for each, offset in self.committed.items()
            if each in self.ends
        }

    @property
    def owned(self) -> set[TopicPartition]:
        """Partitions that a member has."""
        return {each for member in self.description.members for each in member.partitions}

    @property
    def read_topics(self) -> set[str]:
        """Topics that a member subscribes to or has a partition of."""
        subscribed = {topic for member in self.description.members for topic in member.topics}
        return subscribed | {each.topic for each in self.owned}


def judge_group(sight: GroupSight) -> list[Finding]:
    """Return what is wrong with a group, the worst first."""
    found: list[Finding] = []
    for judge in (
        _state,
        _offsets,
        _unread,
        _idle_members,
        _protocols,
        _pending_commits,
        _held_readers,
        _limits,
    ):
        found += judge(sight)
    found += (not_told(sight.name, what, why) for what, why in sight.untold.items())
    return ranked(found)


def _watch(sight: GroupSight) -> str:
    return f"millstream doctor group {quoted(sight.name)} --watch 30s"


def _is_of_a_load(described: GroupDescription) -> bool:
    """Tell whether a group has the name of a load's, and offsets that no member committed."""
    is_alone = not described.members and not described.protocol_type
    return is_alone and _OF_A_LOAD.fullmatch(described.group) is not None


def _state(sight: GroupSight) -> Iterator[Finding]:
    described = sight.description
    waiting = sum(sight.lag.values())
    if _is_of_a_load(described):
        if waiting:
            yield Finding(
                Severity.NOTE,
                sight.name,
                f"The group shows how far a load is: {counted(waiting, 'record')} wait to be "
                "loaded. A load is no member; if it does not run, start it again, and it goes on "
                "where its table ends.",
                f"millstream group describe {quoted(sight.name)}",
            )
    elif not described.members:
        topics = sorted({each.topic for each in sight.committed})
        topic = quoted(topics[0]) if topics else "TOPIC"
        yield Finding(
            Severity.RISK if waiting else Severity.NOTE,
            sight.name,
            f"The group has no members ({described.state}), and "
            f"{counted(waiting, 'record')} wait to be read.",
            f"millstream consume {topic} --group {quoted(sight.name)}",
        )
    elif described.state in _REBALANCING:
        yield Finding(
            Severity.RISK,
            sight.name,
            f"The group rebalances ({described.state}): no member gets partitions until all "
            "members have rejoined, for which each has max.poll.interval.ms.",
            _watch(sight),
        )
    elif described.assignment_epoch < described.group_epoch:
        yield Finding(
            Severity.RISK,
            sight.name,
            f"The assignment is of epoch {described.assignment_epoch}, and the group is at epoch "
            f"{described.group_epoch}: partitions are being reassigned.",
            _watch(sight),
        )
    for member in described.members:
        kept = sorted(set(member.partitions) - set(member.target))
        if kept and described.type == CONSUMER:
            yield Finding(
                Severity.RISK,
                sight.name,
                f"Member {member.client_id} ({member.member_id}) at {member.host} has yet to give "
                f"up {names(kept)}: others wait for it. It gives them up at its next poll.",
                _watch(sight),
            )


def _position_of_a_load(
    place: TopicPartition, offset: Offset, start: Offset | None, end: Offset | None
) -> Iterator[Finding]:
    """Judge where a load is. It goes on where its table ends, so resetting the group is no help."""
    load = f"millstream load {quoted(place.topic)} --to"
    if end is not None and offset > end:
        yield Finding(
            Severity.BROKEN,
            str(place),
            f"A load is at offset {offset}, beyond the end {end}: the topic was deleted and created"
            " again, or records were lost. It refuses to go on; load the topic into another table.",
            f"{load} NEW_TABLE",
        )
    elif start is not None and offset < start:
        yield Finding(
            Severity.RISK,
            str(place),
            f"A load is at offset {offset}, before the start {start}: "
            f"{counted(start - offset, 'record')} were deleted before it read them. It refuses to "
            "go on unless it may leave them out.",
            f"{load} TABLE --option failOnDataLoss=false",
        )


def _offsets(sight: GroupSight) -> Iterator[Finding]:
    reset = f"millstream group reset-offsets {quoted(sight.name)}"
    is_of_a_load = _is_of_a_load(sight.description)
    for each, offset in sorted(sight.committed.items()):
        if each.topic in sight.partitions and sight.partitions[each.topic] is None:
            continue
        topic = quoted(f"{each.topic}:{each.partition}")
        end, start = sight.ends.get(each), sight.starts.get(each)
        if is_of_a_load:
            yield from _position_of_a_load(each, offset, start, end)
        elif end is not None and offset > end:
            yield Finding(
                Severity.BROKEN,
                str(each),
                f"The committed offset {offset} is beyond the end {end}: the topic was deleted and"
                f" created again, or records were lost. auto.offset.reset of the members decides "
                f"where they continue.",
                f"{reset} --topic {topic} --to latest --execute",
            )
        elif start is not None and offset < start:
            yield Finding(
                Severity.RISK,
                str(each),
                f"The committed offset {offset} is before the start {start}: "
                f"{counted(start - offset, 'record')} were deleted before the group read them.",
                f"{reset} --topic {topic} --to earliest --execute",
            )
    gone = sorted({topic for topic, number in sight.partitions.items() if number is None})
    for topic in gone:
        if any(each.topic == topic for each in sight.committed):
            yield Finding(
                Severity.NOTE,
                topic,
                "The group has committed offsets of a topic that no longer exists.",
                f"millstream group delete-offsets {quoted(sight.name)} --topic {quoted(topic)}",
            )
        if topic in sight.read_topics:
            yield Finding(
                Severity.BROKEN,
                topic,
                "Members subscribe to this topic, and it does not exist.",
                f"millstream topic create {quoted(topic)}",
            )


def _unread(sight: GroupSight) -> Iterator[Finding]:
    if sight.leaderless:
        yield Finding(
            Severity.BROKEN,
            sight.name,
            f"{names(sight.leaderless)}: without a leader nothing can be read.",
            "millstream doctor cluster",
        )
    if not sight.description.members or sight.description.state in _REBALANCING:
        return
    wanted = {
        TopicPartition(topic, index)
        for topic in sight.read_topics
        for index in range(sight.partitions.get(topic) or 0)
    }
    missing = sorted(wanted - sight.owned)
    if missing and sight.description.protocol_type in _CONSUMERS:
        yield Finding(
            Severity.BROKEN,
            sight.name,
            f"{names(missing)}: no member has {'it' if len(missing) == 1 else 'them'}, although "
            "the group reads the topic.",
            _watch(sight),
        )
    left = sorted({each.topic for each, lag in sight.lag.items() if lag} - sight.read_topics)
    for topic in left:
        if sight.partitions.get(topic) is not None:
            yield Finding(
                Severity.NOTE,
                topic,
                "The group has committed offsets of this topic, and no member reads it now.",
                f"millstream group delete-offsets {quoted(sight.name)} --topic {quoted(topic)}",
            )


def _idle_members(sight: GroupSight) -> Iterator[Finding]:
    members = sight.description.members
    number = sum(sight.partitions.get(topic) or 0 for topic in sight.read_topics)
    idle = [each for each in members if not each.partitions]
    if idle and 0 < number < len(members) and sight.description.protocol_type in _CONSUMERS:
        topic = sorted(sight.read_topics)[0]
        yield Finding(
            Severity.NOTE,
            sight.name,
            f"{counted(len(members), 'member')} share {counted(number, 'partition')}: "
            f"{len(idle)} of them can have none.",
            f"millstream topic alter {quoted(topic)} --partitions {len(members)}",
        )


def _protocols(sight: GroupSight) -> Iterator[Finding]:
    described = sight.description
    spoken = {each.protocol for each in described.members} - {""}
    if len(spoken) > 1:
        classic = [each.client_id for each in described.members if each.protocol == CLASSIC]
        yield Finding(
            Severity.NOTE,
            sight.name,
            f"Members speak both protocols: {names(classic)} the classic one. Until all speak the "
            "other one, a member that joins classically has all of those rebalance.",
            f"millstream group describe {quoted(sight.name)}",
        )
    known = _ASSIGNORS.get(described.type, frozenset())
    if described.protocol_type not in _CONSUMERS:
        yield Finding(
            Severity.NOTE,
            sight.name,
            f"The members are no consumers ({described.protocol_type}): what they share among "
            "themselves cannot be read here.",
            f"millstream group describe {quoted(sight.name)}",
        )
    elif described.assignor and described.assignor not in known:
        yield Finding(
            Severity.NOTE,
            sight.name,
            f"The assignor {described.assignor} is not one of Apache Kafka's: it may leave "
            "partitions unassigned on purpose.",
            f"millstream group describe {quoted(sight.name)}",
        )


def _pending_commits(sight: GroupSight) -> Iterator[Finding]:
    pending = sight.pending
    if pending is None or not pending.producers:
        return
    ids = names([each.producer_id for each in pending.producers])
    if pending.holds_back:
        yield Finding(
            Severity.BROKEN,
            sight.name,
            f"An open transaction (producer {ids}) holds committed offsets of this group in "
            f"{pending.topic_partition}: a member that starts now waits for it.",
            f"millstream doctor transactions {pending.topic_partition.topic}",
        )


def _held_readers(sight: GroupSight) -> Iterator[Finding]:
    held = {
        each: sight.ends[each] - sight.stable[each]
        for each in sight.lag
        if each in sight.stable and sight.stable[each] < sight.ends[each]
    }
    stuck = sorted(each for each in held if sight.committed[each] >= sight.stable[each])
    if stuck:
        yield Finding(
            Severity.RISK,
            sight.name,
            f"{names(stuck)}: the group has read up to the last stable offset. Members that read "
            f"committed records only wait for an open transaction, with "
            f"{counted(sum(held[each] for each in stuck), 'record')} behind it.",
            f"millstream doctor transactions {quoted(stuck[0].topic)}",
        )


def _limits(sight: GroupSight) -> Iterator[Finding]:
    number = len(sight.description.members)
    if sight.max_size is not None and number >= sight.max_size:
        yield Finding(
            Severity.BROKEN,
            sight.name,
            f"The group has {counted(number, 'member')}, and group.max.size is {sight.max_size}: "
            "further ones are refused.",
            f"millstream serve --override group.max.size={2 * number}",
        )
    if sight.session_ms is not None and number and sight.description.type == CLASSIC:
        least, most = sight.session_ms
        if most < 45_000:
            yield Finding(
                Severity.RISK,
                sight.name,
                f"group.max.session.timeout.ms is {most}, below the 45,000 that clients ask for: "
                f"members that ask for more than {most} or less than {least} are refused.",
                "millstream serve --override group.max.session.timeout.ms=1800000",
            )
