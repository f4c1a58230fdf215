"""What a cluster tells of a group: the look that :mod:`group_health` judges."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Final

from millstream.client.admin import Admin
from millstream.client.core.admin.configs import Resource, ResourceType
from millstream.client.core.admin.group_descriptions import GroupDescription
from millstream.client.core.admin.offsets import EARLIEST, LATEST
from millstream.client.errors import ClientError
from millstream.coordinator.group.partitioner import group_partition
from millstream.inspection.group_health import GroupSight, PendingCommits
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition

OFFSETS_TOPIC: Final = "__consumer_offsets"
_LIMITS: Final = ("group.max.size", "group.min.session.timeout.ms", "group.max.session.timeout.ms")
_LEADERLESS: Final = frozenset({ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR})


def watch_group(admin: Admin, group: str, seconds: float, every: float) -> Iterator[GroupSight]:
    """Yield a look at a group at once, and further ones until so many seconds have passed."""
    deadline = time.monotonic() + seconds
    yield look_at_group(admin, group)
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(every, left))
        yield look_at_group(admin, group)


def look_at_group(admin: Admin, group: str) -> GroupSight:
    """Return what the brokers tell of a group now.

    KafkaError GROUP_ID_NOT_FOUND where there is none, and of what else its coordinator refuses.
    """
    described = admin.describe_groups([group])[group].get()
    committed = {
        each: found.offset for each, found in admin.list_group_offsets([group])[group].get().items()
    }
    if described.state == "Dead" and not committed:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group!r}")
    untold: dict[str, str] = {}
    partitions = _partition_counts(admin, described, committed, untold)
    places = sorted(
        each
        for each in {*committed, *(one for m in described.members for one in m.partitions)}
        if (partitions.get(each.topic) or 0) > each.partition
    )
    starts, _ = _offsets(admin, places, EARLIEST)
    ends, leaderless = _offsets(admin, places, LATEST)
    stable, _ = _offsets(admin, places, LATEST, read_committed=True)
    max_size, session_ms = _limits(admin, described.coordinator, untold)
    return GroupSight(
        at_ms=int(time.time() * 1000),
        description=described,
        committed=committed,
        starts=starts,
        ends=ends,
        stable=stable,
        partitions=partitions,
        leaderless=tuple(leaderless),
        pending=_pending_commits(admin, group, untold),
        max_size=max_size,
        session_ms=session_ms,
        untold=untold,
    )


def _partition_counts(
    admin: Admin,
    described: GroupDescription,
    committed: Iterable[TopicPartition],
    untold: dict[str, str],
) -> dict[str, int | None]:
    topics = {each.topic for each in committed}
    for member in described.members:
        topics |= {*member.topics, *(each.topic for each in member.partitions)}
    found: dict[str, int | None] = {}
    for topic, outcome in admin.describe_topics(sorted(topics)).items():
        if outcome.error is None:
            found[topic] = len(outcome.get().partitions)
        elif outcome.error.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            found[topic] = None
        else:
            untold[f"partitions of {topic}"] = str(outcome.error)
    return found


def _offsets(
    admin: Admin, places: Iterable[TopicPartition], which: int, *, read_committed: bool = False
) -> tuple[dict[TopicPartition, Offset], list[TopicPartition]]:
    """Return the ends that leaders tell, and the partitions without a leader."""
    found: dict[TopicPartition, Offset] = {}
    leaderless: list[TopicPartition] = []
    asked = admin.list_offsets(dict.fromkeys(places, which), read_committed=read_committed)
    for each, outcome in asked.items():
        if outcome.error is None:
            value = outcome.get()
            found[each] = 0 if value is None else value.offset
        elif outcome.error.error in _LEADERLESS:
            leaderless.append(each)
    return found, sorted(leaderless)


def _limits(
    admin: Admin, coordinator: str, untold: dict[str, str]
) -> tuple[int | None, tuple[int, int] | None]:
    """Return the largest group and the bounds of sessions, as the coordinator has them."""
    ids = [b.broker_id for b in admin.describe_cluster().brokers if str(b.address) == coordinator]
    if not ids:
        return None, None
    resource = Resource(ResourceType.BROKER, str(ids[0]))
    try:
        settings = admin.describe_configs({resource: list(_LIMITS)})[resource].get()
    except (KafkaError, ClientError) as error:
        untold["limits of the coordinator"] = str(error)
        return None, None
    values = {
        each.name: int(each.value)
        for each in settings
        if each.name in _LIMITS and each.value is not None
    }
    size, least, most = (values.get(name) for name in _LIMITS)
    return size, None if least is None or most is None else (least, most)


def _pending_commits(admin: Admin, group: str, untold: dict[str, str]) -> PendingCommits | None:
    """Look for open transactions where the group's offsets are kept.

    Whether they hold offsets of this group is asked for only if there are some, for the answer
    takes as long as calls may take.
    """
    topic = admin.describe_topics([OFFSETS_TOPIC])[OFFSETS_TOPIC]
    if topic.error is not None:
        return None
    place = TopicPartition(OFFSETS_TOPIC, group_partition(group, len(topic.get().partitions)))
    try:
        producers = admin.describe_producers([place])[place].get()
    except (KafkaError, ClientError) as error:
        untold["open transactions that commit offsets"] = str(error)
        return None
    opened = tuple(each for each in producers if each.transaction_start_offset >= 0)
    if not opened:
        return PendingCommits(topic_partition=place)
    refused = admin.list_group_offsets([group], require_stable=True)[group].error
    return PendingCommits(
        topic_partition=place,
        producers=opened,
        holds_back=refused is not None and refused.error is ErrorCode.UNSTABLE_OFFSET_COMMIT,
    )
