"""What the doctor says of disks, finding by finding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest
from tests.unit.inspection.sayings import the_one

from millstream.client.core.admin.replicas import LogDirectory, ReplicaOnDisk
from millstream.client.doctor import Severity
from millstream.inspection.disk_health import BrokerDirectory, DiskSight, judge_disk
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicPartition

P0: Final = TopicPartition("t", 0)
Q0: Final = TopicPartition("q", 0)
GIB: Final = 1 << 30
DAY: Final = 86_400_000
NOW: Final = 1_000 * DAY
SETTINGS: Final = {
    "cleanup.policy": "delete",
    "retention.ms": str(7 * DAY),
    "retention.bytes": "-1",
    "segment.bytes": str(GIB),
    "segment.ms": str(7 * DAY),
}


def on_disk(size: int, *, future: bool = False) -> ReplicaOnDisk:
    return ReplicaOnDisk(size_bytes=size, offset_lag=0, is_future=future)


def directory(
    replicas: dict[TopicPartition, ReplicaOnDisk], *, total: int = 100 * GIB, free: int = 50 * GIB
) -> BrokerDirectory:
    return BrokerDirectory(
        1, LogDirectory(path="/d", total_bytes=total, usable_bytes=free, replicas=replicas)
    )


WELL: Final = DiskSight(
    at_ms=NOW,
    directories=(directory({P0: on_disk(10 * GIB), Q0: on_disk(10 * GIB)}),),
    topics={"t": SETTINGS, "q": SETTINGS},
    brokers={1: {"log.cleaner.enable": "true"}},
    replicas={P0: (1,), Q0: (1,)},
    oldest_ms={P0: NOW - 6 * DAY},
    newest_ms={P0: NOW},
)


def test_a_disk_that_is_well() -> None:
    assert judge_disk(WELL) == []


def of_t(**changed: str) -> dict[str, Any]:
    names = {name.replace("_", "."): value for name, value in changed.items()}
    return {"topics": {"t": SETTINGS | names, "q": SETTINGS}}


COMPACT: Final = {"cleanup_policy": "compact"}
OFFSETS: Final = TopicPartition("__consumer_offsets", 4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "severity", "says", "mends"),
    [
        (
            {
                "directories": (
                    BrokerDirectory(
                        1,
                        LogDirectory(
                            path="/d",
                            total_bytes=-1,
                            usable_bytes=-1,
                            error=KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "x"),
                        ),
                    ),
                )
            },
            Severity.BROKEN,
            "offline (KAFKA_STORAGE_ERROR)",
            "doctor cluster",
        ),
        (
            {"directories": (directory({P0: on_disk(GIB)}, total=-1, free=-1),)},
            Severity.NOTE,
            "the size of the volume could not be found out",
            "cluster api-versions",
        ),
        (
            {"directories": (directory({P0: on_disk(80 * GIB)}, free=10 * GIB),)},
            Severity.RISK,
            "90% full, with 10.7 GB left. The largest topics in it: t 85.9 GB",
            "delete-records t --before 7d",
        ),
        (
            {"directories": (directory({P0: on_disk(80 * GIB)}, free=1 * GIB),)},
            Severity.BROKEN,
            "99% full",
            "delete-records t --before 7d",
        ),
        (
            {"directories": (directory({P0: on_disk(20 * GIB)}, free=10 * GIB),)},
            Severity.RISK,
            "on the volume are in no topic",
            "du -ah /d",
        ),
        (
            of_t(retention_bytes=str(100 * GIB)),
            Severity.RISK,
            "retention.bytes lets the topics here grow to 108.4 GB, and the volume has 107.4 GB",
            f"topic alter t -c retention.bytes={50 * GIB}",
        ),
        (
            of_t(retention_ms="-1"),
            Severity.RISK,
            "Retention deletes nothing",
            "topic alter t -c retention.ms=604800000",
        ),
        (
            {
                **of_t(retention_ms=str(3_600_000), segment_bytes=str(20 * GIB)),
                "oldest_ms": {P0: NOW - 3 * DAY},
            },
            Severity.RISK,
            "t-0: records are 3 d old, with retention.ms of 1 h",
            "topic alter t -c segment.ms=900000",
        ),
        (
            of_t(retention_bytes="1000000"),
            Severity.NOTE,
            "nothing is deleted before a segment is full",
            "topic alter t -c segment.bytes=1048576",
        ),
        (
            {"newest_ms": {P0: NOW + 30 * DAY}},
            Severity.RISK,
            "time-stamped 30 d in the future",
            "message.timestamp.after.max.ms=3600000",
        ),
        (
            of_t(**COMPACT),
            Severity.NOTE,
            "compacted only, and has 50%",
            "cleanup.policy=compact,delete",
        ),
        (
            of_t(**COMPACT, min_cleanable_dirty_ratio="0.95"),
            Severity.RISK,
            "The cleaner comes late: min.cleanable.dirty.ratio is 0.95",
            "min.cleanable.dirty.ratio=0.5",
        ),
        (
            of_t(**COMPACT, segment_bytes=str(20 * GIB)),
            Severity.NOTE,
            "all of it is in the segment that is written to",
            "topic alter t -c segment.bytes=67108864",
        ),
        (
            {"brokers": {1: {"log.cleaner.enable": "false"}}},
            Severity.RISK,
            "log.cleaner.enable is false",
            "log.cleaner.enable=true",
        ),
        (
            {
                "directories": (directory({OFFSETS: on_disk(3 * GIB)}),),
                "replicas": {OFFSETS: (1,)},
            },
            Severity.RISK,
            "A partition of __consumer_offsets has 3.2 GB",
            "doctor transactions __consumer_offsets",
        ),
        (
            {"directories": (directory({P0: on_disk(GIB, future=True)}),)},
            Severity.NOTE,
            "t-0: moved to another directory, which takes 1.1 GB twice",
            "log-dirs describe",
        ),
        ({"moving": (P0,)}, Severity.NOTE, "t-0: moved to other brokers", "reassign --verify"),
        (
            {"replicas": {P0: (1,), Q0: (2,)}},
            Severity.NOTE,
            "q-0: 1 replica with 10.7 GB that do not belong here",
            "log-dirs describe",
        ),
        (
            {"untold": {"reassignments": "not served"}},
            Severity.NOTE,
            "reassignments could not be found out",
            "cluster api-versions",
        ),
    ],
)
def test_each_finding(changed: dict[str, Any], severity: Severity, says: str, mends: str) -> None:
    the_one(judge_disk(replace(WELL, **changed)), severity, says, mends)


def test_what_kept_its_time_is_not_overdue() -> None:
    """A segment with a record of the future is told of as that, and not as an active one."""
    found = judge_disk(
        replace(
            WELL,
            topics={"t": SETTINGS | {"retention.ms": "3600000", "segment.bytes": str(20 * GIB)}},
            oldest_ms={P0: NOW - 3 * DAY},
            newest_ms={P0: NOW + DAY},
        )
    )
    assert ["future" in each.sentence for each in found] == [True]
