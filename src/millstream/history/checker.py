"""What clients saw of a log, and what of it must not be.

Jepsen's checker of Kafka histories restated: every value is written once, so an offset has one
value for ever, a value at two offsets was written twice, and what was acknowledged must be read.
A committed offset never goes back, whoever is asked: what a broker tells of a group never lies
before a commit that was acknowledged, or an answer that any broker gave, before it was asked. The
same checker serves simulated and real clusters; it knows nothing of either.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import accumulate
from typing import TypeAlias

PartitionKey: TypeAlias = tuple[str, int]
"""Topic and partition."""
Value: TypeAlias = Hashable


class Outcome(Enum):
    """What became of a send."""

    OPEN = "open"
    """Nobody knows: it timed out, or the connection broke."""
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    """It is certain that it was not written."""


@dataclass(slots=True)
class Send:
    """One value that a process sent."""

    partition: PartitionKey
    value: Value
    process: str
    durable: bool
    """True for acks=all: what is acknowledged must stay."""
    once: bool
    """True for an idempotent producer."""
    outcome: Outcome = Outcome.OPEN
    offset: int = -1


@dataclass(frozen=True, slots=True)
class Poll:
    """One record that a process read; a ``fresh`` one followed a seek or a restart."""

    partition: PartitionKey
    process: str
    offset: int
    value: Value
    fresh: bool = False


class Step(Enum):
    """What happened to a group's offset."""

    SENT = "sent"
    ACKNOWLEDGED = "acknowledged"
    SEEN = "seen"
    """A client asked, or a member began to read there."""


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """One step of the offset that a group committed for a partition, 0 where it has none."""

    group: str
    partition: PartitionKey
    offset: int
    step: Step
    at: float
    """When it was known, or sent, by a clock that all clients share."""
    asked: float = 0.0
    """Of SEEN: when it was asked for."""
    broker: int | None = None
    """Of SEEN: who answered, where the client chose whom to ask."""


class Kind(Enum):
    """The kinds of anomalies."""

    LOST = "lost"
    DUPLICATE = "duplicate"
    ABORTED_READ = "aborted read"
    """What was refused, or aborted, was read all the same."""
    WRONG_VALUE = "wrong value"
    REORDERED = "reordered"
    BACKWARD_POLL = "backward poll"
    SKIPPED = "skipped"
    GROUP_OFFSET_BACK = "group offset back"
    GROUP_OFFSET_AHEAD = "group offset ahead"
    """A group would begin where none of its members had got to: records are left out."""
    GONE = "read and then gone"
    END_BACK = "end moved back"
    """A leader told a high watermark below one that was told before."""
    TORN = "torn transaction"
    """Of one transaction some records are there, and others are not."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """Something that must not be, in one sentence."""

    kind: Kind
    text: str


@dataclass
class History:
    """Everything that clients did, in the order in which they learned of it."""

    sends: dict[Value, Send] = field(default_factory=dict)
    polls: list[Poll] = field(default_factory=list)
    group_offsets: list[GroupOffset] = field(default_factory=list)
    deletions: dict[PartitionKey, int] = field(default_factory=dict)
    """Up to where somebody asked for records to be deleted."""
    expiring: set[PartitionKey] = field(default_factory=set)
    """Partitions that delete by themselves what is old."""

    def deleted_up_to(self, partition: PartitionKey) -> float:
        """Return before which offset records may be missing."""
        return math.inf if partition in self.expiring else self.deletions.get(partition, 0)

    def send(self, send: Send) -> Send:
        """Note that a value is about to be sent."""
        assert send.value not in self.sends, "values are unique"
        self.sends[send.value] = send
        return send

    def acknowledged(self) -> Iterable[Send]:
        """Yield the sends that must stay."""
        return (
            each
            for each in self.sends.values()
            if each.outcome is Outcome.ACKNOWLEDGED and each.durable
        )


def check(
    history: History, final: Mapping[PartitionKey, Mapping[int, Value]] | None = None
) -> list[str]:
    """Return what is wrong, one sentence each; ``judge`` tells the kinds apart."""
    return [each.text for each in judge(history, final)]


def judge(
    history: History, final: Mapping[PartitionKey, Mapping[int, Value]] | None = None
) -> list[Anomaly]:
    """Return every anomaly.

    ``final`` is what the partitions hold in the end, by offset, where all of it was read; without
    it the polls must have reached the end.
    """
    seen = _values_by_offset(history, final)
    problems = [
        Anomaly(
            Kind.WRONG_VALUE,
            f"{partition} offset {offset} had {len(values)} values: {sorted(map(str, values))[:3]}",
        )
        for (partition, offset), values in seen.items()
        if len(values) > 1
    ]
    offsets: dict[Value, set[tuple[PartitionKey, int]]] = defaultdict(set)
    for (partition, offset), values in seen.items():
        for value in values:
            offsets[value].add((partition, offset))
    problems += _check_values(history, offsets, final)
    problems += (Anomaly(Kind.LOST, text) for text in _check_acknowledged(history, offsets, final))
    problems += (Anomaly(Kind.REORDERED, text) for text in _check_order(history, offsets))
    problems += _check_polls(history)
    problems += _check_group_offsets(history)
    return problems


def find_gone(history: History, final: Mapping[PartitionKey, Mapping[int, Value]]) -> list[Anomaly]:
    """Return what was read and is not there in the end, where nothing was deleted meanwhile.

    For histories whose readers all see what the last one sees: what a reader of open transactions
    saw may be missing for one of committed records.
    """
    found: dict[tuple[PartitionKey, int], Anomaly] = {}
    for poll in history.polls:
        key = poll.partition, poll.offset
        if poll.offset < history.deleted_up_to(poll.partition) or key in found:
            continue
        if final.get(poll.partition, {}).get(poll.offset) != poll.value:
            text = (
                f"{poll.process} read {poll.value!r} at {poll.offset} of {poll.partition}, and it "
                "is gone"
            )
            found[key] = Anomaly(Kind.GONE, text)
    return list(found.values())


def find_torn(
    transactions: Iterable[Iterable[Value]],
    final: Mapping[PartitionKey, Mapping[int, Value]],
) -> list[Anomaly]:
    """Return the transactions of which a reader of committed records gets only a part.

    Each is given as the values that it wrote and that were acknowledged to be written.
    """
    there = {value for values in final.values() for value in values.values()}
    found: list[Anomaly] = []
    for each in transactions:
        values = set(each)
        missing = values - there
        if missing and missing != values:
            text = f"of a transaction of {len(values)} records {sorted(map(str, missing))[:3]} lack"
            found.append(Anomaly(Kind.TORN, text))
    return found


def find_moved_back(ends: Iterable[tuple[PartitionKey, int]]) -> list[Anomaly]:
    """Return the high watermarks, in the order in which they were told, that were told too low."""
    highest: dict[PartitionKey, int] = {}
    found: list[Anomaly] = []
    for partition, end in ends:
        before = highest.get(partition, 0)
        if end < before:
            found.append(
                Anomaly(Kind.END_BACK, f"{partition} ended at {before}, and then at {end}")
            )
        highest[partition] = max(before, end)
    return found


def _values_by_offset(
    history: History, final: Mapping[PartitionKey, Mapping[int, Value]] | None
) -> dict[tuple[PartitionKey, int], set[Value]]:
    seen: dict[tuple[PartitionKey, int], set[Value]] = defaultdict(set)
    for poll in history.polls:
        seen[poll.partition, poll.offset].add(poll.value)
    for partition, values in (final or {}).items():
        for offset, value in values.items():
            seen[partition, offset].add(value)
    return seen


def _check_values(
    history: History,
    offsets: Mapping[Value, set[tuple[PartitionKey, int]]],
    final: Mapping[PartitionKey, Mapping[int, Value]] | None,
) -> Iterator[Anomaly]:
    for value, positions in offsets.items():
        send = history.sends.get(value)
        if send is None:
            text = f"{value!r} was read at {sorted(positions)} and never sent"
            yield Anomaly(Kind.WRONG_VALUE, text)
        elif send.outcome is Outcome.REFUSED:
            yield Anomaly(
                Kind.ABORTED_READ, f"{value!r} was refused, and read at {sorted(positions)}"
            )
        elif any(partition != send.partition for partition, _ in positions):
            text = f"{value!r} was sent to {send.partition} and read at {sorted(positions)}"
            yield Anomaly(Kind.WRONG_VALUE, text)
        elif send.once and len(positions) > 1 and len(_not_deleted(history, positions, final)) > 1:
            text = f"{value!r} of an idempotent producer is at {sorted(positions)}"
            yield Anomaly(Kind.DUPLICATE, text)


def _not_deleted(
    history: History,
    positions: set[tuple[PartitionKey, int]],
    final: Mapping[PartitionKey, Mapping[int, Value]] | None,
) -> list[tuple[PartitionKey, int]]:
    """Return the positions that still exist. What is deleted may be written again: a replica that
    begins after it does not know who wrote it (KIP-360).
    """
    begins = {
        partition: min((final or {}).get(partition, ()), default=math.inf)
        for partition, _ in positions
    }
    return [
        (partition, offset)
        for partition, offset in positions
        if offset >= min(begins[partition], history.deleted_up_to(partition))
    ]


def _check_acknowledged(
    history: History,
    offsets: Mapping[Value, set[tuple[PartitionKey, int]]],
    final: Mapping[PartitionKey, Mapping[int, Value]] | None,
) -> Iterable[str]:
    """What is deleted was read before, or has expired."""
    highest: dict[PartitionKey, int] = defaultdict(lambda: -1)
    for poll in history.polls:
        highest[poll.partition] = max(highest[poll.partition], poll.offset)
    for send in history.acknowledged():
        positions = offsets.get(send.value, set())
        if final is not None:
            values = final.get(send.partition, {})
            at = send.offset
            if at < 0:
                was_deleted = positions and history.deleted_up_to(send.partition) > 0
                if send.value not in values.values() and not was_deleted:
                    yield f"{send.value!r} was acknowledged and is lost"
            elif at < min(values, default=math.inf) and at < history.deleted_up_to(send.partition):
                if (send.partition, at) not in positions and send.partition not in history.expiring:
                    yield f"{send.value!r}, acknowledged at {at}, was deleted and never read"
            elif values.get(at) != send.value:
                yield f"{send.value!r}, acknowledged at {at}, is lost: {values.get(at)!r} is there"
        elif not positions and (send.offset < 0 or send.offset <= highest[send.partition]):
            yield f"{send.value!r} was acknowledged at {send.offset} and never read"


def _check_order(
    history: History, offsets: Mapping[Value, set[tuple[PartitionKey, int]]]
) -> Iterable[str]:
    """What one idempotent producer sent to one partition stands in its order."""
    last: dict[tuple[PartitionKey, str], int] = {}
    for send in history.sends.values():
        positions = offsets.get(send.value)
        if not send.once or not positions:
            continue
        offset = min(offset for _, offset in positions)
        key = (send.partition, send.process)
        if offset < last.get(key, -1):
            yield f"{send.value!r} of {send.process} stands before what it sent earlier"
        last[key] = offset


def _check_polls(history: History) -> Iterator[Anomaly]:
    """Each process reads forward, and leaves nothing out that others saw in between."""
    known: dict[PartitionKey, set[int]] = defaultdict(set)
    for poll in history.polls:
        known[poll.partition].add(poll.offset)
    at: dict[tuple[PartitionKey, str], int] = {}
    for poll in history.polls:
        key = (poll.partition, poll.process)
        before = at.get(key)
        at[key] = poll.offset
        if before is None or poll.fresh:
            continue
        if poll.offset <= before:
            text = f"{poll.process} read {poll.partition} backwards: {before}, then {poll.offset}"
            yield Anomaly(Kind.BACKWARD_POLL, text)
        skipped = [each for each in range(before + 1, poll.offset) if each in known[poll.partition]]
        if skipped:
            text = f"{poll.process} skipped {skipped[:5]} of {poll.partition}"
            yield Anomaly(Kind.SKIPPED, text)


def _check_group_offsets(history: History) -> Iterator[Anomaly]:
    """Whoever asks is told no less than was acknowledged or told before, and no more than sent."""
    steps: dict[tuple[str, PartitionKey], list[GroupOffset]] = defaultdict(list)
    for each in history.group_offsets:
        steps[each.group, each.partition].append(each)
    for (group, partition), of_one in steps.items():
        sent = _Rising(each for each in of_one if each.step is Step.SENT)
        known = _Rising(each for each in of_one if each.step is not Step.SENT)
        for each in of_one:
            if each.step is not Step.SEEN:
                continue
            floor, ceiling = known.before(each.asked), sent.before(each.at)
            if each.offset < floor:
                text = f"{group} at {partition} had committed {floor}, and was told {each.offset}"
                if each.broker is not None:
                    text += f" by broker {each.broker}"
                yield Anomaly(Kind.GROUP_OFFSET_BACK, text)
            if each.offset > ceiling:
                text = f"{group} at {partition} sent at most {ceiling}, and was told {each.offset}"
                yield Anomaly(Kind.GROUP_OFFSET_AHEAD, text)


class _Rising:
    """The highest offset of some steps, by time."""

    def __init__(self, steps: Iterable[GroupOffset]) -> None:
        ordered = sorted(steps, key=lambda each: each.at)
        self._times = [each.at for each in ordered]
        self._highest = list(accumulate((each.offset for each in ordered), max))

    def before(self, moment: float) -> int:
        index = bisect_left(self._times, moment)
        return self._highest[index - 1] if index else 0
