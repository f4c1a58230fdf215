"""Dead letters in a topic besides their table, for consumers that read it.

A record is sent to the topic unchanged: key, value, timestamp, headers. Added are the headers of
Kafka Connect's dead letter queue (KIP-298)::

    __connect.errors.topic              its position
    __connect.errors.partition
    __connect.errors.offset
    __connect.errors.connector.name     the load's app id
    __connect.errors.stage              VALUE_CONVERTER
    __connect.errors.exception.message  why it could not be read

The table is authoritative: it is committed first, and the topic's progress is in its ledger under
``<app_id>:topic``. If a load crashes between sending dead letters and recording that, they are sent
again: delivery is at least once, and the headers identify duplicates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millstream.client import Producer
from millstream.model.errors import ConfigError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.spark.lakehouse.dead_letter_commits import topic_ledger
from millstream.spark.lakehouse.ledger import position_key
from millstream.spark.lakehouse.table import Table
from millstream.spark.security_options import security_settings

PREFIX: Final = "__connect.errors."
_STAGE: Final = b"VALUE_CONVERTER"
_COLUMNS: Final = [
    *("key", "value", "headers", "topic", "partition", "offset", "timestamp", "reason")
]
_CHUNK: Final = 10_000


class DeadLetterTopic:
    """The topic of one load's dead letters."""

    def __init__(
        self, topic: str, dead_letters: Table, app_id: str, source: Mapping[str, str]
    ) -> None:
        options = {name.lower(): text for name, text in source.items()}
        self._bootstrap_servers = options.get("kafka.bootstrap.servers", "").strip()
        if not self._bootstrap_servers:
            raise ConfigError(f"the topic {topic} for dead letters needs kafka.bootstrap.servers")
        self._security = security_settings(
            {name.removeprefix("kafka."): text for name, text in options.items()}
        )
        self._topic = topic
        self._dead_letters = dead_letters
        self._app_id = app_id
        self._ledger_id = topic_ledger(app_id)

    def send(self, paths: Iterable[str] | None = None) -> int:
        """Send the dead letters of these files, or of all files, that are not in the topic yet;
        return their number.

        Raises the errors of producing; they are then sent the next time.
        """
        if not self._dead_letters.exists():
            return 0
        files = self._dead_letters.files() if paths is None else list(paths)
        topic_partitions = self._topic_partitions(files)
        known = self._dead_letters.ledger(self._ledger_id, map(position_key, topic_partitions))
        ends: dict[TopicPartition, Offset] = {}
        count = 0
        with Producer(self._security, bootstrap_servers=self._bootstrap_servers) as producer:
            futures = []
            for dead_letter in self._read(files):
                topic_partition = TopicPartition(dead_letter["topic"], dead_letter["partition"])
                if dead_letter["offset"] < known.get(position_key(topic_partition), 0):
                    continue
                futures.append(self._send(producer, dead_letter))
                ends[topic_partition] = max(ends.get(topic_partition, 0), dead_letter["offset"] + 1)
                if len(futures) >= _CHUNK:
                    count += _settle(futures)
            count += _settle(futures)
        if ends:
            changed = {position_key(topic_partition): end for topic_partition, end in ends.items()}
            expected = {key: known[key] for key in changed if key in known}
            self._dead_letters.commit(self._ledger_id, changed, [], expected=expected)
        return count

    def _topic_partitions(self, files: Iterable[str]) -> list[TopicPartition]:
        found = set()
        for path in files:
            rows = self._table(path, ["topic", "partition"]).group_by(["topic", "partition"])
            for row in rows.aggregate([]).to_pylist():
                found.add(TopicPartition(row["topic"], row["partition"]))
        return sorted(found)

    def _read(self, files: Iterable[str]) -> Iterator[dict[str, Any]]:
        for path in files:
            for batch in self._table(path, _COLUMNS).to_batches(max_chunksize=_CHUNK):
                yield from batch.to_pylist()

    def _table(self, path: str, columns: list[str]) -> pa.Table:
        table = pq.ParquetFile((self._dead_letters.data_directory / path).open_input()).read(
            columns=columns
        )
        # Files that other libraries wrote may hold views, which cannot be grouped by.
        topics = table["topic"].cast(pa.string())
        table = table.set_column(table.schema.get_field_index("topic"), "topic", topics)
        if "timestamp" in columns:
            milliseconds = pc.divide(table["timestamp"].cast(pa.int64()), 1000)
            index = table.schema.get_field_index("timestamp")
            table = table.set_column(index, "timestamp", milliseconds)
        return table

    def _send(self, producer: Producer, dead_letter: Mapping[str, Any]) -> Any:
        why = {
            "topic": dead_letter["topic"].encode(),
            "partition": b"%d" % dead_letter["partition"],
            "offset": b"%d" % dead_letter["offset"],
            "connector.name": self._app_id.encode(),
            "stage": _STAGE,
            "exception.message": dead_letter["reason"].encode(),
        }
        headers = [(each["key"], each["value"]) for each in dead_letter["headers"] or ()]
        headers += [(PREFIX + name, text) for name, text in why.items()]
        timestamp_ms = dead_letter["timestamp"]
        return producer.send(
            self._topic,
            dead_letter["value"],
            dead_letter["key"],
            timestamp_ms=timestamp_ms if timestamp_ms is not None and timestamp_ms >= 0 else None,
            headers=headers,
        )


def _settle(futures: list[Any]) -> int:
    """Wait for sends and raise the first error; return their number and forget them."""
    for future in futures:
        future.result()
    count = len(futures)
    futures.clear()
    return count
