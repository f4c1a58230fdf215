"""What a cluster tells of its log directories: the look that :mod:`disk_health` judges."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Final

from millstream.client.admin import Admin
from millstream.client.core.admin.configs import Resource, ResourceType, Setting
from millstream.client.core.admin.offsets import MAX_TIMESTAMP
from millstream.client.errors import ClientError
from millstream.inspection.disk_health import BrokerDirectory, DiskSight
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicPartition

_OF_BROKERS: Final = ("log.cleaner.enable",)
_OF_TOPICS: Final = (
    "cleanup.policy",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.ms",
)
_FROM_THE_BEGINNING: Final = 0
"""As a time: the first record with one, and with it its time."""


def look_at_disks(admin: Admin) -> DiskSight:
    """Return what the brokers tell of their log directories now."""
    untold: dict[str, str] = {}
    directories: list[BrokerDirectory] = []
    for broker, outcome in sorted(admin.describe_log_dirs().items()):
        if outcome.error is None:
            directories += (BrokerDirectory(broker, each) for each in outcome.get())
        else:
            untold[f"directories of broker {broker}"] = str(outcome.error)
    names = admin.list_topics(include_internal=True)
    kept = sorted({place for each in directories for place in each.directory.replicas})
    living = [place for place in kept if place.topic in set(names)]
    return DiskSight(
        at_ms=int(time.time() * 1000),
        directories=tuple(directories),
        topics=topic_settings(admin, names, _OF_TOPICS, untold),
        brokers={
            broker: {name: each.value or "" for name, each in settings.items()}
            for broker, settings in broker_settings(admin, untold, _OF_BROKERS).items()
        },
        replicas={p: each.replicas for p, each in admin.describe_partitions().items()},
        oldest_ms=_times(admin, living, _FROM_THE_BEGINNING, "the age of records", untold),
        newest_ms=_times(admin, living, MAX_TIMESTAMP, "the largest time stamp", untold),
        moving=_moving(admin, untold),
        untold=untold,
    )


def topic_settings(
    admin: Admin, topics: Iterable[str], names: Sequence[str] | None, untold: dict[str, str]
) -> dict[str, dict[str, str]]:
    """Return settings by topic and name; of a topic that is refused none."""
    resources = [Resource(ResourceType.TOPIC, name) for name in topics]
    found: dict[str, dict[str, str]] = {}
    for resource, outcome in admin.describe_configs(dict.fromkeys(resources, names)).items():
        if outcome.error is None:
            settings = outcome.get()
            found[resource.name] = {e.name: e.value for e in settings if e.value is not None}
        else:
            untold[f"settings of {resource}"] = str(outcome.error)
    return found


def broker_settings(
    admin: Admin, untold: dict[str, str], names: Sequence[str] | None = None
) -> dict[int, dict[str, Setting]]:
    """Return settings by broker and name; of a broker that does not answer none."""
    ids = [each.broker_id for each in admin.describe_cluster().brokers]
    found: dict[int, dict[str, Setting]] = {}
    for broker in ids:
        resource = Resource(ResourceType.BROKER, str(broker))
        try:
            settings = admin.describe_configs({resource: names})[resource].get()
        except (KafkaError, ClientError) as error:
            untold[f"settings of broker {broker}"] = str(error)
            continue
        found[broker] = {each.name: each for each in settings}
    return found


def _times(
    admin: Admin,
    places: Sequence[TopicPartition],
    which: int,
    what: str,
    untold: dict[str, str],
) -> dict[TopicPartition, int]:
    try:
        outcomes = admin.list_offsets(dict.fromkeys(places, which))
    except (KafkaError, ClientError) as error:
        untold[what] = str(error)
        return {}
    found: dict[TopicPartition, int] = {}
    for place, outcome in outcomes.items():
        if outcome.error is not None:
            if outcome.error.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                untold[f"{what} in {place}"] = str(outcome.error)
            continue
        value = outcome.get()
        if value is not None and value.timestamp >= 0:
            found[place] = value.timestamp
    return found


def _moving(admin: Admin, untold: dict[str, str]) -> tuple[TopicPartition, ...]:
    try:
        return tuple(admin.list_partition_reassignments())
    except (KafkaError, ClientError) as error:
        untold["reassignments"] = str(error)
        return ()
