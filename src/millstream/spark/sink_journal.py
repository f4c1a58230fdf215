"""What a micro-batch has written already, for when it is written again.

A task of a streaming query marks its records with a header and, before it writes to a topic for the
first time, notes where the topic ended::

    <checkpoint>/millstream-sink/<batch>/<task>-<topic>.json      {"0": 120, "1": 77}

A task that finds its note there is a replay: its records, if any, lie behind those offsets. It
reads them, counts them by content, and writes what is left. Spark gives a replayed batch the same
input; rows may come in another order, so it is content that is compared and not positions.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from millstream.client.cluster import Cluster
from millstream.client.offsets import LATEST, end_offsets
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.spark.kafka_settings import KafkaSettings
from millstream.spark.lakehouse.formats.raw import HEADERS
from millstream.spark.ranges import OffsetRange
from millstream.spark.reader import ReadRules, read_range

MARK: Final = "millstream.batch"
"""The name of the header that says which micro-batch wrote a record."""

_WRITTEN: Final = pa.schema(
    [("key", pa.binary()), ("value", pa.binary()), ("partition", pa.int32()), ("headers", HEADERS)]
)
_POLL_TIMEOUT_MS: Final = 60_000


def mark_of(query: str, batch: int, task: int) -> bytes:
    """Return the header's value for one task of one micro-batch."""
    return hashlib.blake2b(f"{query}/{batch}/{task}".encode(), digest_size=12).digest()


def digest(
    key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]
) -> bytes:
    """Return what stands for the content of a record, its mark left out."""
    content = hashlib.blake2b(digest_size=16)
    for part in (key, value):
        content.update(b"-" if part is None else b"%d:" % len(part) + part)
    for name, text in headers:
        if name != MARK:
            content.update(f"/{name}=".encode() + (b"-" if text is None else b"+" + text))
    return content.digest()


class Journal:
    """The notes of one task."""

    def __init__(self, directory: Path, batch: int, task: int) -> None:
        self._directory = directory
        self._batch = batch
        self._task = task

    def begin(self, cluster: Cluster, topic: str) -> dict[TopicPartition, Offset] | None:
        """Note where a topic ends; return the earlier note instead when there is one."""
        path = self._directory / str(self._batch) / f"{self._task}-{topic}.json"
        if path.exists():
            noted = json.loads(path.read_text())
            return {TopicPartition(topic, int(number)): end for number, end in noted.items()}
        places = [each.topic_partition for each in cluster.topic(topic).partitions]
        ends = end_offsets(cluster, places, which=LATEST)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        with temporary.open("w") as file:
            json.dump({str(place.partition): end for place, end in ends.items()}, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
        return None

    @staticmethod
    def forget_before(directory: Path, batch: int) -> None:
        """Remove the notes of batches that are never written again."""
        for path in directory.glob("[0-9]*") if directory.is_dir() else ():
            if path.name.isdecimal() and int(path.name) < batch:
                shutil.rmtree(path, ignore_errors=True)


def written_since(
    cluster: Cluster,
    settings: KafkaSettings,
    noted: dict[TopicPartition, Offset],
    mark: bytes,
) -> Counter[bytes]:
    """Return the content of the records behind ``noted`` that bear ``mark``, with their numbers."""
    found: Counter[bytes] = Counter()
    topic = next(iter(noted)).topic
    cluster.forget()
    places = [each.topic_partition for each in cluster.topic(topic).partitions]
    ends = end_offsets(cluster, places, which=LATEST)
    rules = ReadRules(settings, False, _POLL_TIMEOUT_MS)
    for place, end in ends.items():
        start = noted.get(place, 0)
        if end <= start:
            continue
        for batch in read_range(OffsetRange(place, start, end), rules, _WRITTEN):
            for row in batch.to_pylist():
                headers = [(each["key"], each["value"]) for each in row["headers"] or ()]
                if (MARK, mark) in headers:
                    found[digest(row["key"], row["value"], headers)] += 1
    return found
