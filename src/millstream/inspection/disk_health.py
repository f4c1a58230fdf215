"""Why a disk fills: judged from sizes, settings and time stamps. Pure.

Retention deletes whole segments, never the active one, and only those whose newest record is too
old or that are above the size. So what stays is decided by the settings and by what the producers
wrote as time stamps; both are in the sight.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from millstream.client.core.admin.replicas import LogDirectory
from millstream.client.doctor import Severity
from millstream.config.quantities import counted
from millstream.config.quantities import human_bytes as size
from millstream.inspection.findings import Finding, duration, names, not_told, quoted, ranked
from millstream.model.topic import TopicPartition

_FULL: Final = 0.95
_FILLING: Final = 0.85
_LARGE_SHARE: Final = 0.2
"""Of all bytes in topics: from here on a topic is a reason why the disk fills."""
_FOREIGN_SHARE: Final = 0.3
_FUTURE_MS: Final = 3_600_000
_OVERDUE: Final = 2.0
"""How many times retention.ms a record is old before retention is said to lag behind."""
_CHECK_MS: Final = 600_000
_MIB: Final = 1 << 20
_OFFSETS_BYTES: Final = 1 << 30
_INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


@dataclass(frozen=True, slots=True)
class BrokerDirectory:
    """A log directory and its broker."""

    broker: int
    directory: LogDirectory

    def __str__(self) -> str:
        return f"broker {self.broker}: {self.directory.path}"

    @property
    def kept_bytes(self) -> int:
        """Return what the replicas in it take."""
        return sum(each.size_bytes for each in self.directory.replicas.values())

    @property
    def used_share(self) -> float | None:
        """Return how full the volume is, None where the broker does not tell."""
        total, free = self.directory.total_bytes, self.directory.usable_bytes
        return 1 - free / total if total > 0 and free >= 0 else None


@dataclass(frozen=True, kw_only=True)
class DiskSight:
    """The log directories of a cluster at one moment, and what decides what stays in them."""

    at_ms: int
    directories: tuple[BrokerDirectory, ...]
    topics: Mapping[str, Mapping[str, str]]
    """Settings by topic."""
    brokers: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """Settings by broker."""
    replicas: Mapping[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    """Where replicas belong."""
    oldest_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The time stamp of the first record."""
    newest_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The largest time stamp."""
    moving: tuple[TopicPartition, ...] = ()
    """Partitions that are being reassigned."""
    untold: Mapping[str, str] = field(default_factory=dict)
    """What could not be found out, and why."""

    @cached_property
    def sizes(self) -> dict[TopicPartition, int]:
        """The size of the largest replica of each partition."""
        found: dict[TopicPartition, int] = defaultdict(int)
        for each in self.directories:
            for place, replica in each.directory.replicas.items():
                found[place] = max(found[place], replica.size_bytes)
        return dict(found)

    @cached_property
    def topic_bytes(self) -> dict[str, int]:
        """What all replicas of each topic take, the largest topic first."""
        found: dict[str, int] = defaultdict(int)
        for each in self.directories:
            for place, replica in each.directory.replicas.items():
                found[place.topic] += replica.size_bytes
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def share(self, topic: str) -> float:
        """Return which part of all bytes in topics a topic has."""
        return self.topic_bytes.get(topic, 0) / max(sum(self.topic_bytes.values()), 1)

    def number(self, topic: str, name: str, default: int = -1) -> int:
        """Return a setting of a topic."""
        return int(self.topics.get(topic, {}).get(name, default))

    def policies(self, topic: str) -> set[str]:
        """Return what happens to old records: delete, compact, or both."""
        text = self.topics.get(topic, {}).get("cleanup.policy", "delete")
        return {each.strip() for each in text.split(",") if each.strip()}


def judge_disk(sight: DiskSight) -> list[Finding]:
    """Return why the disks fill, the worst first."""
    found: list[Finding] = []
    for judge in (
        _volumes,
        _limits_beyond_the_disk,
        _kept_for_ever,
        _active_segments,
        _future_time_stamps,
        _compacted,
        _cleaners,
        _offsets_topic,
        _on_the_move,
        _strays,
    ):
        found += judge(sight)
    found += (not_told("disks", what, why) for what, why in sight.untold.items())
    return ranked(found)


def _free_space(sight: DiskSight) -> str:
    """Return the command that frees the most space."""
    largest = next((each for each in sight.topic_bytes if each not in _INTERNAL), "TOPIC")
    return f"millstream topic delete-records {quoted(largest)} --before 7d"


def _volumes(sight: DiskSight) -> Iterator[Finding]:
    for each in sight.directories:
        if each.directory.error is not None:
            yield Finding(
                Severity.BROKEN,
                str(each),
                f"The directory is offline ({each.directory.error.error.name}): its replicas are "
                "neither read nor written.",
                "millstream doctor cluster",
            )
            continue
        share = each.used_share
        if share is None:
            yield not_told(
                str(each), "the size of the volume", "the broker does not tell (before KIP-827)"
            )
            continue
        here: dict[str, int] = defaultdict(int)
        for place, replica in each.directory.replicas.items():
            here[place.topic] += replica.size_bytes
        largest = sorted(here.items(), key=lambda item: -item[1])[:3]
        told = ", ".join(f"{topic} {size(count)}" for topic, count in largest) or "no topic"
        if share >= _FILLING:
            yield Finding(
                Severity.BROKEN if share >= _FULL else Severity.RISK,
                str(each),
                f"The volume is {share:.0%} full, with {size(each.directory.usable_bytes)} left. "
                f"The largest topics in it: {told}.",
                _free_space(sight),
            )
        used = each.directory.total_bytes - each.directory.usable_bytes
        others = used - each.kept_bytes
        if share >= _FILLING and others > _FOREIGN_SHARE * used:
            yield Finding(
                Severity.RISK,
                str(each),
                f"{size(others)} of the {size(used)} on the volume are in no topic: files of other "
                "programs, of other log directories on it, or what recovery kept aside "
                "(*.log.damaged-*), which the protocol does not tell.",
                f"du -ah {quoted(each.directory.path)} | sort -h | tail -n 20",
            )


def _limits_beyond_the_disk(sight: DiskSight) -> Iterator[Finding]:
    for each in sight.directories:
        found = beyond_the_disk(sight, each)
        if found is not None:
            yield found


def beyond_the_disk(sight: DiskSight, each: BrokerDirectory) -> Finding | None:
    """Return a finding where the topics' own limits allow more than the volume holds."""
    total = each.directory.total_bytes
    allowed = 0
    limited: dict[str, int] = defaultdict(int)
    for place in each.directory.replicas:
        limit = sight.number(place.topic, "retention.bytes")
        if limit > 0 and "delete" in sight.policies(place.topic):
            # A segment is deleted once the others alone reach the limit.
            limited[place.topic] += limit + sight.number(place.topic, "segment.bytes", 0)
            allowed = sum(limited.values())
    if total <= 0 or allowed <= total:
        return None
    topic, most = max(limited.items(), key=lambda item: item[1])
    number = sum(place.topic == topic for place in each.directory.replicas)
    return Finding(
        Severity.RISK,
        str(each),
        f"retention.bytes lets the topics here grow to {size(allowed)}, and the volume has "
        f"{size(total)}. {topic} alone may take {size(most)}.",
        f"millstream topic alter {quoted(topic)} -c retention.bytes={total // (2 * number)}",
    )


def _kept_for_ever(sight: DiskSight) -> Iterator[Finding]:
    for topic, count in sight.topic_bytes.items():
        if topic in _INTERNAL or topic not in sight.topics:
            continue
        forever = (
            sight.number(topic, "retention.ms") < 0 and sight.number(topic, "retention.bytes") < 0
        )
        if "delete" in sight.policies(topic) and forever:
            share = sight.share(topic)
            yield Finding(
                Severity.RISK if share >= _LARGE_SHARE else Severity.NOTE,
                topic,
                f"Retention deletes nothing: retention.ms and retention.bytes are both -1. The "
                f"topic has {size(count)}, {share:.0%} of all that topics take.",
                f"millstream topic alter {quoted(topic)} -c retention.ms=604800000",
            )


def _active_segments(sight: DiskSight) -> Iterator[Finding]:
    """Records that retention would delete and that lie in a segment that is still written to."""
    for topic in sight.topics:
        keep_ms = sight.number(topic, "retention.ms")
        if keep_ms < 0 or "delete" not in sight.policies(topic) or topic in _INTERNAL:
            continue
        segment_bytes = sight.number(topic, "segment.bytes", 1 << 30)
        overdue = [
            place
            for place, oldest in sight.oldest_ms.items()
            if place.topic == topic
            and 0 < oldest < sight.at_ms - _OVERDUE * keep_ms - _CHECK_MS
            and sight.newest_ms.get(place, 0) <= sight.at_ms + _FUTURE_MS
            and _MIB < sight.sizes.get(place, 0) <= 2 * segment_bytes
        ]
        if not overdue:
            continue
        age = sight.at_ms - min(sight.oldest_ms[place] for place in overdue)
        held = sum(sight.sizes[place] for place in overdue)
        segment_ms = sight.number(topic, "segment.ms", 604_800_000)
        yield Finding(
            Severity.RISK,
            topic,
            f"{names(sorted(overdue))}: records are {duration(age)} old, with retention.ms of "
            f"{duration(keep_ms)}: they lie with newer ones in a segment that is written to until "
            f"it has {size(segment_bytes)} or is {duration(segment_ms)} old ({size(held)}).",
            f"millstream topic alter {quoted(topic)} -c segment.ms={max(keep_ms // 4, 60_000)}",
        )
    for topic in sight.topic_bytes:
        limit, segment = (
            sight.number(topic, "retention.bytes"),
            sight.number(topic, "segment.bytes", 1 << 30),
        )
        if 0 < limit < segment and "delete" in sight.policies(topic):
            yield Finding(
                Severity.NOTE,
                topic,
                f"retention.bytes is {size(limit)}, and a segment has up to {size(segment)}: "
                "nothing is deleted before a segment is full.",
                f"millstream topic alter {quoted(topic)} -c segment.bytes={max(limit // 4, _MIB)}",
            )


def _future_time_stamps(sight: DiskSight) -> Iterator[Finding]:
    by_topic: dict[str, list[TopicPartition]] = defaultdict(list)
    for place, newest in sorted(sight.newest_ms.items()):
        if newest > sight.at_ms + _FUTURE_MS and sight.number(place.topic, "retention.ms") >= 0:
            by_topic[place.topic].append(place)
    for topic, places in by_topic.items():
        ahead = max(sight.newest_ms[place] for place in places) - sight.at_ms
        yield Finding(
            Severity.RISK,
            topic,
            f"{names(places)}: a record is time-stamped {duration(ahead)} in the future, and its "
            "segment stays for so much longer. A producer's clock is wrong, or its unit is.",
            f"millstream topic alter {quoted(topic)} -c message.timestamp.after.max.ms=3600000",
        )


def _compacted(sight: DiskSight) -> Iterator[Finding]:
    for topic, settings in sight.topics.items():
        if sight.policies(topic) != {"compact"} or topic in _INTERNAL:
            continue
        share = sight.share(topic)
        if share >= _LARGE_SHARE:
            yield Finding(
                Severity.NOTE,
                topic,
                f"The topic is compacted only, and has {share:.0%} of all that topics take: one "
                "record of each key stays for ever. Write null values for keys that are no longer"
                " needed, "
                "or delete what is old as well.",
                f"millstream topic alter {quoted(topic)} -c cleanup.policy=compact,delete",
            )
        ratio = float(settings.get("min.cleanable.dirty.ratio", "0.5"))
        lag_ms = sight.number(topic, "min.compaction.lag.ms", 0)
        if ratio > 0.8 or lag_ms > 7 * 86_400_000:
            yield Finding(
                Severity.RISK,
                topic,
                f"The cleaner comes late: min.cleanable.dirty.ratio is {ratio:g} and "
                f"min.compaction.lag.ms {lag_ms}.",
                f"millstream topic alter {quoted(topic)} -c min.cleanable.dirty.ratio=0.5 "
                "-c min.compaction.lag.ms=0",
            )
        full = sight.number(topic, "segment.bytes", 1 << 30)
        small = [p for p, b in sight.sizes.items() if p.topic == topic and _MIB < b < full]
        if small and share >= _LARGE_SHARE:
            yield Finding(
                Severity.NOTE,
                topic,
                f"{names(sorted(small))}: all of it is in the segment that is written to, which "
                f"the cleaner leaves alone until it has {size(full)}.",
                f"millstream topic alter {quoted(topic)} -c segment.bytes=67108864",
            )


def _cleaners(sight: DiskSight) -> Iterator[Finding]:
    off = [
        broker
        for broker, settings in sorted(sight.brokers.items())
        if settings.get("log.cleaner.enable", "true") == "false"
    ]
    if off:
        yield Finding(
            Severity.RISK,
            f"broker {names(off)}",
            "log.cleaner.enable is false: compacted topics, __consumer_offsets among them, grow "
            "for ever.",
            "millstream serve --override log.cleaner.enable=true",
        )


def _offsets_topic(sight: DiskSight) -> Iterator[Finding]:
    for topic in sorted(_INTERNAL & sight.topic_bytes.keys()):
        largest = max(b for place, b in sight.sizes.items() if place.topic == topic)
        if largest >= _OFFSETS_BYTES:
            yield Finding(
                Severity.RISK,
                topic,
                f"A partition of {topic} has {size(largest)}; it should have a few hundred MB at "
                "most. The cleaner does not come, or a transaction that hangs in it stops it.",
                f"millstream doctor transactions {topic}",
            )


def _on_the_move(sight: DiskSight) -> Iterator[Finding]:
    future = [
        (each, place, replica)
        for each in sight.directories
        for place, replica in each.directory.replicas.items()
        if replica.is_future
    ]
    if future:
        held = sum(replica.size_bytes for _, _, replica in future)
        yield Finding(
            Severity.NOTE,
            str(future[0][0]),
            f"{names([place for _, place, _ in future])}: moved to another directory, which takes "
            f"{size(held)} twice until it is done.",
            "millstream log-dirs describe",
        )
    if sight.moving:
        held = sum(sight.sizes.get(place, 0) for place in sight.moving)
        yield Finding(
            Severity.NOTE,
            "reassignment",
            f"{names(sorted(sight.moving))}: moved to other brokers; until it is done "
            f"{size(held)} are kept in both places.",
            "millstream cluster reassign --verify",
        )


def _strays(sight: DiskSight) -> Iterator[Finding]:
    if not sight.replicas:
        return
    for each in sight.directories:
        strays = sorted(
            place
            for place in each.directory.replicas
            if place not in sight.moving and each.broker not in sight.replicas.get(place, ())
        )
        if strays:
            held = sum(each.directory.replicas[place].size_bytes for place in strays)
            yield Finding(
                Severity.NOTE,
                str(each),
                f"{names(strays)}: {counted(len(strays), 'replica')} with {size(held)} that do "
                "not belong here: of topics that were deleted, or moved away, just now or while "
                "the broker was down.",
                "millstream log-dirs describe",
            )
