"""Records what a micro-batch has written, for its replay.

A task of a streaming query marks its records with a header and, before it writes to a topic for the
first time, notes where the topic ended::

    <checkpoint>/millstream-sink/<batch>/<task>-<topic>.json      {"0": 120, "1": 77}

A task that finds its note is a replay: its records, if any, are after those offsets. It reads them,
counts them by content, and writes the remaining rows. Spark gives a replayed batch the same input;
rows may come in another order, so contents are compared and not positions.

The last records of an earlier attempt may be in the leader's log but above the high watermark. So a
replay gets the log end offsets of the leaders, and waits until consumers can read up to them.
`sink_claims` ensures that no other attempt writes meanwhile.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from millstream.client.cluster import Cluster
from millstream.client.errors import TimedOutError, raise_for
from millstream.client.offsets import LATEST, end_offsets
from millstream.model.errors import MillstreamError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from millstream.spark.kafka_settings import KafkaSettings
from millstream.spark.lakehouse.formats.raw import HEADERS
from millstream.spark.ranges import OffsetRange
from millstream.spark.reader import ReadRules, read_range

MARK: Final = "millstream.batch"
"""The name of the header with the micro-batch that wrote a record."""

_WRITTEN: Final = pa.schema(
    [("key", pa.binary()), ("value", pa.binary()), ("partition", pa.int32()), ("headers", HEADERS)]
)
_POLL_TIMEOUT_MS: Final = 60_000
_CONSUMER: Final = -1


def mark_of(query: str, batch: int, task: int) -> bytes:
    """Return the header's value for one task of one micro-batch."""
    return hashlib.blake2b(f"{query}/{batch}/{task}".encode(), digest_size=12).digest()


def digest(
    key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]
) -> bytes:
    """Return a digest of the content of a record, without its mark."""
    content = hashlib.blake2b(digest_size=16)
    for part in (key, value):
        content.update(b"-" if part is None else b"%d:" % len(part) + part)
    for name, text in headers:
        if name != MARK:
            content.update(f"/{name}=".encode() + (b"-" if text is None else b"+" + text))
    return content.digest()


class WrittenRows:
    """The records that earlier attempts wrote, by content and partition."""

    def __init__(self) -> None:
        self._found: dict[bytes, Counter[int]] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, content: bytes, partition: int) -> None:
        """Add a record."""
        self._found.setdefault(content, Counter())[partition] += 1

    def take(self, content: bytes, partition: int | None) -> bool:
        """Tell whether a row has been written, consuming one record for it. A row without a
        partition may be in any partition.
        """
        left = self._found.get(content, Counter())
        topic_partition = next(iter(left), None) if partition is None else partition
        if topic_partition is None or left[topic_partition] <= 0:
            return False
        left[topic_partition] -= 1
        if not left[topic_partition]:
            del left[topic_partition]
        return True


class Journal:
    """The notes of one task."""

    def __init__(self, directory: Path, batch: int, task: int) -> None:
        self._directory = directory
        self._batch = batch
        self._task = task

    def begin(self, cluster: Cluster, topic: str) -> dict[TopicPartition, Offset] | None:
        """Note the ends of a topic; return the earlier note instead if there is one."""
        path = self._directory / str(self._batch) / f"{self._task}-{topic}.json"
        if path.exists():
            try:
                noted = json.loads(path.read_text())
                return {TopicPartition(topic, int(number)): end for number, end in noted.items()}
            except (ValueError, AttributeError) as error:
                raise MillstreamError(
                    f"{path} is damaged ({error}): what this micro-batch has written is not known"
                ) from None
        topic_partitions = [each.topic_partition for each in cluster.topic(topic).partitions]
        ends = end_offsets(cluster, topic_partitions, which=LATEST)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        with temporary.open("w") as file:
            json.dump(
                {str(topic_partition.partition): end for topic_partition, end in ends.items()}, file
            )
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
        return None

    @staticmethod
    def forget_before(directory: Path, batch: int) -> None:
        """Remove the notes of batches that are never replayed."""
        for path in directory.glob("[0-9]*") if directory.is_dir() else ():
            if path.name.isdecimal() and int(path.name) < batch:
                shutil.rmtree(path, ignore_errors=True)


def written_since(
    cluster: Cluster,
    settings: KafkaSettings,
    noted: dict[TopicPartition, Offset],
    mark: bytes,
) -> WrittenRows:
    """Return the records after ``noted`` that have ``mark``."""
    found = WrittenRows()
    topic = next(iter(noted)).topic
    cluster.forget()
    topic_partitions = [each.topic_partition for each in cluster.topic(topic).partitions]
    ends = _settled_ends(cluster, topic_partitions)
    rules = ReadRules(settings, False, _POLL_TIMEOUT_MS)
    for topic_partition, end in ends.items():
        start = noted.get(topic_partition, 0)
        if end <= start:
            continue
        for batch in read_range(OffsetRange(topic_partition, start, end), rules, _WRITTEN):
            for row in batch.to_pylist():
                headers = [(each["key"], each["value"]) for each in row["headers"] or ()]
                if (MARK, mark) in headers:
                    found.add(digest(row["key"], row["value"], headers), row["partition"])
    return found


def _settled_ends(
    cluster: Cluster, topic_partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, Offset]:
    """Return the high watermarks, once they have reached the leaders' present log ends.

    TimedOutError if the replicas do not catch up.
    """
    goals = log_ends(cluster, topic_partitions)
    deadline = time.monotonic() + _POLL_TIMEOUT_MS / 1000
    while True:
        ends = end_offsets(cluster, topic_partitions, which=LATEST)
        if all(ends[topic_partition] >= goal for topic_partition, goal in goals.items()):
            return ends
        if time.monotonic() > deadline:
            raise TimedOutError(
                f"replicas do not catch up: {ends} is readable, the logs end {goals}"
            )
        time.sleep(0.1)


def log_ends(
    cluster: Cluster, topic_partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, Offset]:
    """Return where the leaders' logs end, replicated or not: the end of the current epoch.

    KafkaError names the partition without an answer.
    """
    found: dict[TopicPartition, Offset] = {}

    def ask() -> None:
        missing = [
            topic_partition for topic_partition in topic_partitions if topic_partition not in found
        ]
        for leader, asked in cluster.by_leader(missing):
            found.update(_ask_leader(cluster, leader, asked))

    cluster.retrying(ask)
    return found


def _ask_leader(
    cluster: Cluster, leader: int, topic_partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, Offset]:
    topics = [
        OffsetForLeaderTopic(
            topic=each.topic_partition.topic,
            partitions=[
                OffsetForLeaderPartition(
                    partition=each.topic_partition.partition,
                    current_leader_epoch=each.leader_epoch,
                    leader_epoch=each.leader_epoch,
                )
            ],
        )
        for topic in sorted({topic_partition.topic for topic_partition in topic_partitions})
        for each in cluster.topic(topic).partitions
        if each.topic_partition in topic_partitions
    ]
    request = OffsetForLeaderEpochRequest(replica_id=_CONSUMER, topics=topics)
    response = cluster.connection_to(leader).call(request, OffsetForLeaderEpochResponse)
    found = {}
    for topic in response.topics:
        for row in topic.partitions:
            topic_partition = TopicPartition(topic.topic, row.partition)
            raise_for(row.error_code, f"the log end of {topic_partition}")
            found[topic_partition] = row.end_offset
    return found
