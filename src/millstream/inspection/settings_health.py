"""Whether settings are wise: judged from those of brokers and topics. Pure.

A default is judged like any other value: what it does to the user's records is the same. The
findings of brokers are in :mod:`millstream.inspection.broker_settings_health`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from millstream.client.core.admin.configs import Setting
from millstream.client.doctor import Severity
from millstream.config.quantities import human_bytes as size
from millstream.inspection.findings import Finding, names, quoted

_MIB: Final = 1 << 20
_LARGE_RECORD: Final = 16 * _MIB
_SMALL_SEGMENT: Final = _MIB
_DAY_MS: Final = 86_400_000
_FEW_RECORDS: Final = 1_000
_INTERNAL: Final = "__"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """A topic as far as its settings can be unwise."""

    partitions: int
    replicas: int
    """The smallest number of replicas that a partition has."""
    values: Mapping[str, str]

    def number(self, name: str, default: int) -> int:
        """Return a setting."""
        return int(self.values.get(name) or default)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsSight:
    """The settings of a cluster."""

    topics: Mapping[str, TopicSettings]
    brokers: Mapping[int, Mapping[str, Setting]]
    untold: Mapping[str, str] = field(default_factory=dict)
    """What could not be found out, and why."""

    def value(self, broker: int, name: str) -> str | None:
        """Return a setting of a broker, None where it does not tell."""
        setting = self.brokers[broker].get(name)
        return None if setting is None else setting.value

    def number(self, name: str) -> int | None:
        """Return the smallest value of a setting among the brokers."""
        found = [self.value(each, name) for each in self.brokers]
        return min((int(each) for each in found if each), default=None)


def judge_topics(sight: SettingsSight) -> Iterator[Finding]:
    """Yield what is unwise in topics: one finding for all that have the same."""
    for judge in (
        _replicas,
        _min_insync_replicas,
        _unclean_elections,
        _flushes,
        _large_records,
        _segments,
        _time_stamps,
    ):
        yield from judge(sight)


_Test = Callable[[TopicSettings], bool]


def _having(sight: SettingsSight, test: _Test, *, internal: bool = False) -> list[str]:
    """Return the topics for which a test holds; those that brokers keep for themselves only when
    asked for.
    """
    return sorted(
        name
        for name, each in sight.topics.items()
        if (internal or not name.startswith(_INTERNAL)) and test(each)
    )


def _alter(topics: list[str], change: str) -> str:
    return f"millstream topic alter {quoted(topics[0])} {change}"


def _replicas(sight: SettingsSight) -> Iterator[Finding]:
    brokers = len(sight.brokers)
    single = _having(sight, lambda each: each.replicas == 1, internal=True)
    if single and brokers > 1:
        yield Finding(
            Severity.RISK,
            "replication factor",
            f"{names(single)}: with one replica, the loss of its broker's disk is the loss of the "
            "records.",
            _alter(single, f"--replication-factor {min(brokers, 3)}"),
        )
    elif single:
        yield Finding(
            Severity.NOTE,
            "replication factor",
            "There is one broker, and its disk has the only copy of every record.",
            "millstream serve --brokers 3",
        )


def _min_insync_replicas(sight: SettingsSight) -> Iterator[Finding]:
    def least(each: TopicSettings) -> int:
        return each.number("min.insync.replicas", 1)

    # One broker cannot keep two replicas, and it takes its own topics' setting as what there is.
    internal = len(sight.brokers) > 1
    above = _having(sight, lambda each: least(each) > each.replicas, internal=internal)
    if above:
        replicas = sight.topics[above[0]].replicas
        yield Finding(
            Severity.RISK,
            "min.insync.replicas",
            f"{names(above)}: it is above the number of replicas. Brokers before Apache Kafka 4.0 "
            "refuse every write with acks=all, later ones take the number of replicas.",
            _alter(above, f"-c min.insync.replicas={max(replicas - 1, 1)}"),
        )
    equal = _having(sight, lambda each: least(each) == each.replicas > 1, internal=True)
    if equal:
        replicas = sight.topics[equal[0]].replicas
        yield Finding(
            Severity.RISK,
            "min.insync.replicas",
            f"{names(equal)}: it is the number of replicas, so every restart of a broker stops "
            "writes with acks=all.",
            _alter(equal, f"-c min.insync.replicas={replicas - 1}"),
        )
    alone = _having(sight, lambda each: least(each) == 1 and each.replicas > 2)
    if alone:
        yield Finding(
            Severity.RISK,
            "min.insync.replicas",
            f"{names(alone)}: it is 1, so acks=all may be satisfied by the leader alone, and what "
            "it acknowledged then is lost with its disk.",
            _alter(alone, "-c min.insync.replicas=2"),
        )


def _unclean_elections(sight: SettingsSight) -> Iterator[Finding]:
    found = _having(
        sight,
        lambda each: each.values.get("unclean.leader.election.enable") == "true",
        internal=True,
    )
    if found:
        yield Finding(
            Severity.RISK,
            "unclean.leader.election.enable",
            f"{names(found)}: when all replicas in sync are away, one that lacks acknowledged "
            "records becomes the leader, and they are gone.",
            _alter(found, "-c unclean.leader.election.enable=false"),
        )


def _flushes(sight: SettingsSight) -> Iterator[Finding]:
    single = _having(
        sight,
        lambda each: each.replicas == 1 and each.values.get("flush.policy", "ack") != "ack",
    )
    if single:
        yield Finding(
            Severity.RISK,
            "flush.policy",
            f"{names(single)}: records are acknowledged before they are on the disk, and no other "
            "broker has them: a power cut loses them.",
            _alter(single, "-c flush.policy=ack"),
        )
    often = _having(
        sight,
        lambda each: (
            each.number("flush.messages", _FEW_RECORDS) < _FEW_RECORDS
            and each.values.get("flush.policy", "interval") == "interval"
        ),
    )
    if often:
        yield Finding(
            Severity.NOTE,
            "flush.messages",
            f"{names(often)}: the disk is flushed every few records, which makes writes slow. "
            "Replicas protect records better.",
            f"millstream topic alter {quoted(often[0])} --delete-config flush.messages",
        )


def _large_records(sight: SettingsSight) -> Iterator[Finding]:
    def largest(each: TopicSettings) -> int:
        return each.number("max.message.bytes", _MIB)

    request = sight.number("socket.request.max.bytes")
    if request is not None:
        beyond = _having(sight, lambda each: largest(each) > request)
        if beyond:
            yield Finding(
                Severity.BROKEN,
                "max.message.bytes",
                f"{names(beyond)}: it is above socket.request.max.bytes ({size(request)}), so the "
                "largest records that it allows reach no broker.",
                _alter(beyond, f"-c max.message.bytes={request // 2}"),
            )
    fetch = sight.number("replica.fetch.max.bytes")
    huge = _having(sight, lambda each: largest(each) > _LARGE_RECORD)
    if huge:
        told = "" if fetch is None else f", {size(fetch)} of a follower (replica.fetch.max.bytes)"
        yield Finding(
            Severity.RISK,
            "max.message.bytes",
            f"{names(huge)}: batches up to {size(largest(sight.topics[huge[0]]))} are allowed, and "
            f"fetches are made for 1 MB of a partition{told}: each such batch travels alone, and "
            "every reader needs the memory.",
            _alter(huge, f"-c max.message.bytes={_LARGE_RECORD}"),
        )


def _segments(sight: SettingsSight) -> Iterator[Finding]:
    small = _having(sight, lambda each: each.number("segment.bytes", 1 << 30) < _SMALL_SEGMENT)
    if small:
        yield Finding(
            Severity.RISK,
            "segment.bytes",
            f"{names(small)}: segments of less than 1 MiB make very many files, each with its "
            "indexes.",
            _alter(small, "-c segment.bytes=67108864"),
        )
    long = _having(
        sight,
        lambda each: (
            0 < each.number("retention.ms", -1) < each.number("segment.ms", 7 * _DAY_MS) // 4
            and "delete" in (each.values.get("cleanup.policy") or "delete")
        ),
    )
    if long:
        keep_ms = sight.topics[long[0]].number("retention.ms", -1)
        yield Finding(
            Severity.NOTE,
            "segment.ms",
            f"{names(long)}: retention.ms is much shorter than segment.ms, and a segment is "
            "deleted as a whole: records stay longer than retention.ms says.",
            _alter(long, f"-c segment.ms={max(keep_ms // 4, 60_000)}"),
        )


def _time_stamps(sight: SettingsSight) -> Iterator[Finding]:
    name = "message.timestamp.after.max.ms"
    far = _having(
        sight,
        lambda each: (
            name in each.values
            and each.number(name, 0) > 365 * _DAY_MS
            and each.number("retention.ms", -1) > 0
            and each.values.get("message.timestamp.type", "CreateTime") == "CreateTime"
        ),
    )
    if far:
        yield Finding(
            Severity.NOTE,
            name,
            f"{names(far)}: a producer whose clock is wrong can write time stamps of the far "
            "future, whose segments retention never deletes.",
            _alter(far, f"-c {name}=3600000"),
        )
