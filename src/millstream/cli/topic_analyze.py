"""`millstream topic analyze`: rates, sizes, keys and skew, from a sample of the newest records."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final

import typer

from millstream.cli.arguments import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    Timeout,
    bootstrap_servers,
    open_admin,
)
from millstream.cli.client_options import settings_of
from millstream.cli.output import counted, human_bytes, is_for_a_person, print_json, print_rows
from millstream.cli.partition_ends import ends_of
from millstream.cli.topic_records import Topic
from millstream.client import Admin, Consumer
from millstream.client.core.consumer.settings import ConsumerSettings
from millstream.model.topic import TopicPartition

_SAMPLE: Final = 100_000
_POLL_S: Final = 0.5
_HEAVIEST: Final = 5
_PERCENTILES: Final = (50, 95, 99)


@dataclass(slots=True)
class _Sample:
    """What was seen of one partition's newest records."""

    first: int
    """Where the sample begins, and ``end`` where it ends."""
    end: int
    records: int = 0
    key_sizes: list[int] = field(default_factory=list)
    value_sizes: list[int] = field(default_factory=list)
    null_keys: int = 0
    tombstones: int = 0
    times: list[int] = field(default_factory=list)


def analyze(
    topic: Topic,
    records: Annotated[
        int, typer.Option("--records", "-n", min=1, help="How many of the newest records to read.")
    ] = _SAMPLE,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Read a sample of the newest records, and show rates, sizes, keys and skew.

    The sample has the same share of each partition. Offsets used up by compaction or transactions
    count towards the range, but not as records.
    """
    settings = {
        "auto.offset.reset": "earliest",
        **settings_of(ConsumerSettings),
        "bootstrap.servers": bootstrap_servers(bootstrap, timeout),
    }
    with open_admin(bootstrap, timeout) as admin:
        ends = ends_of(admin, topic)
        sizes = _bytes(admin, list(ends))
    share = max(1, math.ceil(records / len(ends)))
    samples = {place: _Sample(max(start, end - share), end) for place, (start, end) in ends.items()}
    keys: Counter[bytes] = Counter()
    with Consumer[bytes, bytes](settings) as consumer:
        _read(consumer, samples, keys)
    found = _described(topic, ends, sizes, samples, keys)
    if as_json:
        print_json(found)
    else:
        _print(found)


def _bytes(admin: Admin, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the size of each partition's largest replica."""
    found: dict[TopicPartition, int] = {}
    for directories in admin.describe_log_dirs(topic_partitions=places).get_all().values():
        for directory in directories:
            for place, replica in directory.replicas.items():
                found[place] = max(found.get(place, 0), replica.size_bytes)
    return found


def _read(
    consumer: Consumer[bytes, bytes],
    samples: dict[TopicPartition, _Sample],
    keys: Counter[bytes],
) -> None:
    open_ones = {place for place, sample in samples.items() if sample.first < sample.end}
    consumer.assign(open_ones)
    for place in open_ones:
        consumer.seek(place, samples[place].first)
    while open_ones:
        for record in consumer.poll(_POLL_S):
            sample = samples[record.topic_partition]
            if record.offset < sample.end:
                _count(sample, record.key, record.value, record.timestamp, keys)
        ended = {each for each in open_ones if consumer.position(each) >= samples[each].end}
        consumer.pause(*ended)
        open_ones -= ended


def _count(
    sample: _Sample, key: bytes | None, value: bytes | None, timestamp: int, keys: Counter[bytes]
) -> None:
    sample.records += 1
    sample.times.append(timestamp)
    sample.value_sizes.append(len(value or b""))
    sample.tombstones += value is None
    if key is None:
        sample.null_keys += 1
    else:
        sample.key_sizes.append(len(key))
        keys[key] += 1


def _described(
    topic: str,
    ends: dict[TopicPartition, tuple[int, int]],
    sizes: dict[TopicPartition, int],
    samples: dict[TopicPartition, _Sample],
    keys: Counter[bytes],
) -> dict[str, object]:
    read = sum(each.records for each in samples.values())
    partitions = []
    for place, (start, end) in ends.items():
        sample = samples[place]
        partitions.append(
            {
                "partition": place.partition,
                "offsets": end - start,
                "bytes": sizes.get(place),
                "read": sample.records,
                "records_per_second": _rate(sample),
            }
        )
    offsets = [end - start for start, end in ends.values()]
    mean = sum(offsets) / len(offsets)
    rates = [rate for rate in map(_rate, samples.values()) if rate is not None]
    with_key = sum(keys.values())
    return {
        "topic": topic,
        "read": read,
        "partitions": partitions,
        "records_per_second": round(sum(rates), 3) if rates else None,
        "skew": round(max(offsets) / mean, 3) if mean else None,
        "value_bytes": _sizes(each for sample in samples.values() for each in sample.value_sizes),
        "key_bytes": _sizes(each for sample in samples.values() for each in sample.key_sizes),
        "null_keys": sum(each.null_keys for each in samples.values()),
        "tombstones": sum(each.tombstones for each in samples.values()),
        "distinct_keys": len(keys),
        "heaviest_keys": [
            {"key": key.decode(errors="backslashreplace"), "share": round(count / with_key, 4)}
            for key, count in keys.most_common(_HEAVIEST)
        ],
    }


def _rate(sample: _Sample) -> float | None:
    """Return the records a second between the sample's first and last timestamp, if they differ."""
    if sample.records < 2:
        return None
    span_ms = max(sample.times) - min(sample.times)
    return round((sample.records - 1) * 1000 / span_ms, 3) if span_ms > 0 else None


def _sizes(values: Iterable[int]) -> dict[str, int] | None:
    ordered = sorted(values)
    if not ordered:
        return None
    found = {
        f"p{each}": ordered[min(len(ordered) - 1, len(ordered) * each // 100)]
        for each in _PERCENTILES
    }
    return {**found, "max": ordered[-1]}


def _print(found: dict[str, object]) -> None:
    rows = found["partitions"]
    assert isinstance(rows, list)
    headings = {key: key.replace("_", " ") for key in rows[0]}
    if not is_for_a_person():
        named = [{"topic": str(found["topic"]), **row} for row in rows]
        print_rows(named, {"topic": "topic"} | headings)
        return
    print_rows(rows, headings)
    read = found["read"]
    assert isinstance(read, int)
    print(f"{found['topic']}: read {counted(read, 'record')}")
    if not read:
        return
    if found["records_per_second"] is not None:
        print(f"rate         {found['records_per_second']:,} records a second in the sample")
    print(f"skew         the largest partition has {found['skew']} times the mean")
    print(f"values       {_size_text(found['value_bytes'])}, {found['tombstones']:,} tombstones")
    print(f"keys         {_size_text(found['key_bytes'])}, {found['null_keys']:,} null")
    print(f"distinct     {found['distinct_keys']:,} keys in the sample")
    heaviest = found["heaviest_keys"]
    assert isinstance(heaviest, list)
    for each in heaviest:
        print(f"  {each['share']:.2%}  {each['key']}")


def _size_text(sizes: object) -> str:
    if not isinstance(sizes, dict):
        return "none"
    return ", ".join(f"{name} {human_bytes(size)}" for name, size in sizes.items())
