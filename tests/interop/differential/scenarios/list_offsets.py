"""ListOffsets: by time, by the special times, by leader epoch."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.batches import BASE_TIMESTAMP, Batch, Record, batch
from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session

SPECIAL = {
    "latest": -1,
    "earliest": -2,
    "max_timestamp": -3,
    "earliest_local": -4,
    "latest_tiered": -5,
    "earliest_pending_upload": -6,
}


def ask(
    s: Session,
    version: int,
    topic: str,
    *timestamps: int,
    partition: int = 0,
    isolation_level: int = 0,
    replica_id: int = -1,
    **more: Any,
) -> None:
    """One request per timestamp."""
    for timestamp in timestamps:
        part = {"partition_index": partition, "timestamp": timestamp} | more
        s.call(
            "ListOffsets",
            version,
            replica_id=replica_id,
            isolation_level=isolation_level,
            topics=[{"name": topic, "partitions": [part]}],
            timeout_ms=5000,
        )


def filled(s: Session) -> str:
    """Three batches: times 0 and 10; 20, 5, 30; 30."""
    topic = s.topic()
    times = ((0, 10), (20, 5, 30), (30,))
    s.fill(
        topic,
        *[
            Batch(records=[Record(timestamp_delta=each) for each in group]).encode()
            for group in times
        ],
    )
    return topic


@scenario(versions="ListOffsets")
def latest_and_earliest(s: Session, version: int) -> None:
    ask(s, version, filled(s), -1, -2)


@scenario(versions="ListOffsets", cases=SPECIAL)
def special_time(s: Session, timestamp: int, version: int) -> None:
    """Each special time came with a version of its own."""
    ask(s, version, filled(s), timestamp)


@scenario(cases=SPECIAL, versions=[1, 11])
def special_time_of_an_empty_partition(s: Session, timestamp: int, version: int) -> None:
    ask(s, version, s.topic(), timestamp)


@scenario(versions="ListOffsets")
def by_time(s: Session, version: int) -> None:
    wanted = [BASE_TIMESTAMP + each for each in (-1, 0, 1, 5, 10, 11, 20, 21, 30, 31)]
    ask(s, version, filled(s), *wanted)


@scenario(cases={"zero": 0, "one": 1, "max": 2**63 - 1, "minus_seven": -7, "min": -(2**63)})
def odd_time(s: Session, timestamp: int) -> None:
    ask(s, 11, filled(s), timestamp)


@scenario(versions="ListOffsets")
def unknown_topic(s: Session, version: int) -> None:
    ask(s, version, s.name("absent"), -1)


@scenario(versions=[1, 4, 6, 11])
def unknown_partition(s: Session, version: int) -> None:
    ask(s, version, s.topic(), -1, -2, 0, partition=6)


@scenario(versions=[2, 5, 11])
def read_committed(s: Session, version: int) -> None:
    ask(s, version, filled(s), -1, -2, BASE_TIMESTAMP + 30, isolation_level=1)


@scenario(versions=[4, 6, 11], cases={"same": 0, "newer": 3, "older": -2})
def current_leader_epoch(s: Session, epoch: int, version: int) -> None:
    ask(s, version, filled(s), -1, -2, BASE_TIMESTAMP, current_leader_epoch=epoch)


@scenario(versions=[1, 5, 11])
def after_delete_records(s: Session, version: int) -> None:
    topic = filled(s)
    part = {"partition_index": 0, "offset": 3}
    s.quiet("DeleteRecords", 1, topics=[{"name": topic, "partitions": [part]}], timeout_ms=5000)
    ask(s, version, topic, -1, -2, BASE_TIMESTAMP, BASE_TIMESTAMP + 20, BASE_TIMESTAMP + 30)
    if version == 11:
        ask(s, version, topic, -3, -4)


@scenario(versions=[1, 11])
def after_deleting_all_records(s: Session, version: int) -> None:
    topic = filled(s)
    part = {"partition_index": 0, "offset": -1}
    s.quiet("DeleteRecords", 1, topics=[{"name": topic, "partitions": [part]}], timeout_ms=5000)
    ask(s, version, topic, -1, -2, BASE_TIMESTAMP, BASE_TIMESTAMP + 30)
    if version == 11:
        ask(s, version, topic, -3)


@scenario(cases={"debug_consumer": -2, "unknown_broker": 7, "itself": 1})
def as_a_replica(s: Session, replica_id: int) -> None:
    ask(s, 5, filled(s), -1, -2, BASE_TIMESTAMP + 5, replica_id=replica_id)


@scenario(cases={"two": 2, "negative": -1})
def odd_isolation_level(s: Session, level: int) -> None:
    ask(s, 5, filled(s), -1, isolation_level=level)


@scenario(versions=[1, 7, 11])
def same_partition_twice(s: Session, version: int) -> None:
    topic = filled(s)
    parts = [{"partition_index": 0, "timestamp": each} for each in (-1, -2)]
    s.call("ListOffsets", version, replica_id=-1, topics=[{"name": topic, "partitions": parts}])


@scenario(versions=[1, 11])
def several_topics(s: Session, version: int) -> None:
    one, two = filled(s), s.topic("two", 2)
    topics = [
        {
            "name": one,
            "partitions": [{"partition_index": each, "timestamp": -1} for each in (0, 4)],
        },
        {"name": s.name("absent"), "partitions": [{"partition_index": 0, "timestamp": -1}]},
        {
            "name": two,
            "partitions": [{"partition_index": each, "timestamp": -2} for each in (0, 1)],
        },
    ]
    s.call("ListOffsets", version, replica_id=-1, topics=topics)


@scenario(versions=[1, 11])
def nothing_asked(s: Session, version: int) -> None:
    s.call("ListOffsets", version, replica_id=-1, topics=[])
    s.call("ListOffsets", version, replica_id=-1, topics=[{"name": s.topic(), "partitions": []}])


@scenario(cases={"empty": "", "slash": "a/b", "too_long": "x" * 250})
def illegal_topic_name(s: Session, name: str) -> None:
    ask(s, 7, name, -1)


@scenario(cases=["gzip", "snappy", "lz4", "zstd"])
def by_time_in_compressed_batches(s: Session, codec: str) -> None:
    topic = s.topic()
    times = ((0, 10, 20), (40, 30, 50))
    s.fill(
        topic,
        *[
            Batch(records=[Record(timestamp_delta=each) for each in group], codec=codec).encode()
            for group in times
        ],
    )
    ask(s, 7, topic, *[BASE_TIMESTAMP + each for each in (0, 5, 20, 25, 35, 50, 51)])
    ask(s, 7, topic, -3)


@scenario(cases={"small": "100", "usual": "4096"})
def by_time_over_many_batches(s: Session, interval: str) -> None:
    topic = s.topic(configs={"index.interval.bytes": interval})
    s.fill(topic, *[batch("x", base_timestamp=BASE_TIMESTAMP + 10 * each) for each in range(30)])
    ask(s, 7, topic, *[BASE_TIMESTAMP + each for each in (-5, 0, 55, 100, 289, 290, 291)])
    ask(s, 7, topic, -3)


@scenario
def by_time_that_runs_backwards(s: Session) -> None:
    topic = s.topic()
    s.fill(topic, *[batch("x", base_timestamp=BASE_TIMESTAMP + each) for each in (50, 20, 80, 10)])
    ask(s, 7, topic, *[BASE_TIMESTAMP + each for each in (0, 10, 30, 60, 80, 90)])
    ask(s, 7, topic, -3)


@scenario(cases={"two_at_the_maximum": (10, 30, 30), "first_is_the_maximum": (40, 20, 30)})
def max_timestamp_names_the_first_of_equals(s: Session, times: tuple[int, ...]) -> None:
    topic = s.topic()
    s.fill(topic, Batch(records=[Record(timestamp_delta=each) for each in times]).encode())
    ask(s, 7, topic, -3)


@scenario
def log_append_time(s: Session) -> None:
    topic = s.topic(configs={"message.timestamp.type": "LogAppendTime"})
    s.fill(topic, batch("a", "b"), batch("c"))
    ask(s, 7, topic, -1, -2, 0)


@scenario
def no_timestamp(s: Session) -> None:
    topic = s.topic()
    s.fill(topic, batch("a", base_timestamp=-1), batch("b", base_timestamp=-1))
    ask(s, 7, topic, 0, -1, -2, -3)
