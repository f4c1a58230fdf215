"""Fetches undecoded batches from any number of partitions.

A :class:`Fetcher` keeps at most one request in flight to each leader, on connections of its own.
A caller that wants the broker to work while it decodes calls ``request`` before it processes the
result of ``receive``. Batches are not decoded here: see ``records``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from millstream.client.cluster import Cluster
from millstream.client.connection import Connection
from millstream.client.core.consumer.fetched import end_of_batches
from millstream.client.errors import (
    TRANSIENT,
    ConnectionFailedError,
    OffsetOutOfRangeError,
    TopicRecreatedError,
    raise_for,
)
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.offsets import NO_LEADER_EPOCH, LeaderEpoch, Offset
from millstream.model.topic import ZERO_TOPIC_ID, TopicId, TopicPartition
from millstream.protocol.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from millstream.records.batch import Batch, iter_batches
from millstream.records.isolation import CommittedOnly

_LAST_VERSION_WITH_NAMES: Final = 12
_NO_SESSION_EPOCH: Final = -1
_ANSWER_SLACK_MS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """The sizes and the wait time of a fetch, under Kafka's names."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 * 1024 * 1024
    max_partition_bytes: int = 1024 * 1024
    read_committed: bool = False
    overwrites: bool = False
    """The result of ``receive`` becomes invalid at the next ``receive``, which reuses its
    memory.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The data of one partition in one response.

    ``data`` is whole batches and perhaps the beginning of one more; the first batch may start
    before ``fetch_offset``. ``next_offset`` is where the next fetch begins.
    """

    topic_partition: TopicPartition
    data: memoryview
    fetch_offset: Offset
    next_offset: Offset
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    aborted_transactions: Sequence[AbortedTransaction] = field(default=())
    last_epoch: LeaderEpoch = NO_LEADER_EPOCH
    """The leader epoch of the last whole batch."""

    def batches(self) -> Iterator[Batch]:
        """Yield the data batches, without markers and, for read_committed, without aborted
        transactions.
        """
        aborted = self.aborted_transactions
        keep = CommittedOnly((each.producer_id, each.first_offset) for each in aborted)
        return filter(keep, iter_batches(self.data))


class Fetcher:
    """Reads partitions from given offsets on; ``positions`` holds the next offset of each.

    ``topic_ids`` are the topics that the positions are of, where that matters: another topic of the
    same name is a TopicRecreatedError. Each fetch states the leader epoch that the metadata has, so
    neither an older nor a newer leader answers it (KIP-320).

    Positions may be changed, added and removed between ``receive`` and ``request``, and so may
    ``max_partition_bytes``.
    """

    def __init__(
        self,
        cluster: Cluster,
        positions: Mapping[TopicPartition, Offset],
        settings: FetchSettings | None = None,
    ) -> None:
        self.positions = dict(positions)
        self.topic_ids: dict[str, TopicId] = {}
        self._cluster = cluster
        self._settings = settings or FetchSettings()
        self.max_partition_bytes = self._settings.max_partition_bytes
        self._connections: dict[int, Connection] = {}
        self._in_flight: dict[int, dict[TopicPartition, Offset]] = {}

    def poll(self) -> list[Fetched]:
        """Fetch from every leader and return the data; empty if nothing arrived in time."""
        self.request()
        return self.receive()

    def request(self) -> None:
        """Send a fetch to each leader without a request in flight."""
        busy = {topic_partition for asked in self._in_flight.values() for topic_partition in asked}
        idle = [
            topic_partition for topic_partition in self.positions if topic_partition not in busy
        ]

        def send() -> None:
            for leader, topic_partitions in self._cluster.by_leader(idle):
                if leader not in self._in_flight:
                    self._send(leader, topic_partitions)

        self._cluster.retrying(send)

    def receive(self) -> list[Fetched]:
        """Wait for the outstanding responses; advance the positions past their data.

        Raises OffsetOutOfRangeError and permanent KafkaErrors. After a temporary one the list is
        empty or partial, and the next request goes to the new leader.
        """
        fetched: list[Fetched] = []
        for leader, asked in list(self._in_flight.items()):
            connection = self._connections[leader]
            timeout_ms = self._settings.max_wait_ms + _ANSWER_SLACK_MS
            try:
                response = connection.receive(FetchResponse, timeout_ms=timeout_ms)
            except ConnectionFailedError:
                self._drop(leader)
                self._pause()
                continue
            finally:
                self._in_flight.pop(leader, None)
            raise_for(response.error_code, "fetch")
            fetched += self._read(response, asked)
        return fetched

    def close(self) -> None:
        """Close the fetcher's connections."""
        for leader in list(self._connections):
            self._drop(leader)

    def _send(self, leader: int, topic_partitions: Iterable[TopicPartition]) -> None:
        connection = self._connections.get(leader)
        if connection is None or not connection.is_open:
            connection = self._cluster.dedicated_connection_to(
                leader, overwrites=self._settings.overwrites
            )
            self._connections[leader] = connection
        settings = self._settings
        topics: dict[str, FetchTopic] = {}
        for topic_partition in topic_partitions:
            if topic_partition.topic not in topics:
                topic_id = self._topic_id(topic_partition.topic)
                topics[topic_partition.topic] = FetchTopic(
                    topic=topic_partition.topic, topic_id=topic_id, partitions=[]
                )
            topics[topic_partition.topic].partitions.append(
                FetchPartition(
                    partition=topic_partition.partition,
                    current_leader_epoch=self._cluster.partition(topic_partition).leader_epoch,
                    fetch_offset=self.positions[topic_partition],
                    partition_max_bytes=self.max_partition_bytes,
                )
            )
        have_ids = all(topic.topic_id != ZERO_TOPIC_ID for topic in topics.values())
        request = FetchRequest(
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            isolation_level=int(settings.read_committed),
            session_epoch=_NO_SESSION_EPOCH,
            topics=list(topics.values()),
        )
        version = connection.version_for(
            FetchRequest, None if have_ids else _LAST_VERSION_WITH_NAMES
        )
        connection.send(request, version=version)
        self._in_flight[leader] = {
            topic_partition: self.positions[topic_partition] for topic_partition in topic_partitions
        }

    def _topic_id(self, name: str) -> TopicId:
        topic_id = self._cluster.topic(name).topic_id
        wanted = self.topic_ids.get(name, ZERO_TOPIC_ID)
        if ZERO_TOPIC_ID not in (wanted, topic_id) and wanted != topic_id:
            raise TopicRecreatedError(
                f"topic {name} was deleted and created again while it was read"
            )
        return topic_id

    def _read(
        self, response: FetchResponse, asked: Mapping[TopicPartition, Offset]
    ) -> list[Fetched]:
        names: dict[TopicId, str] = {
            self._cluster.topic(topic_partition.topic).topic_id: topic_partition.topic
            for topic_partition in asked
        }
        fetched: list[Fetched] = []
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for row in topic.partitions:
                topic_partition = TopicPartition(name, row.partition_index)
                if self._is_usable(topic_partition, row, asked):
                    each = _read_partition(topic_partition, row, asked[topic_partition])
                    self.positions[topic_partition] = each.next_offset
                    fetched.append(each)
        return fetched

    def _is_usable(
        self,
        topic_partition: TopicPartition,
        row: PartitionData,
        asked: Mapping[TopicPartition, Offset],
    ) -> bool:
        """Return False for an error after which the fetch is only repeated; raise permanent
        errors.
        """
        if topic_partition not in asked or topic_partition not in self.positions:
            return False
        error = ErrorCode.of(row.error_code)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            raise OffsetOutOfRangeError(topic_partition, asked[topic_partition])
        if error in TRANSIENT:
            self._pause()
            return False
        raise_for(row.error_code, f"fetch from {topic_partition}")
        return True

    def _pause(self) -> None:
        self._cluster.forget()
        time.sleep(self._cluster.settings.retry_backoff_ms / 1000)

    def _drop(self, leader: int) -> None:
        connection = self._connections.pop(leader, None)
        if connection is not None:
            connection.close()


def _read_partition(
    topic_partition: TopicPartition, row: PartitionData, fetch_offset: Offset
) -> Fetched:
    data = row.records if isinstance(row.records, memoryview) else memoryview(b"")
    end = end_of_batches(data)
    if end is None and len(data):
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch at offset {fetch_offset} of {topic_partition} does not fit into one answer",
        )
    return Fetched(
        topic_partition=topic_partition,
        data=data,
        fetch_offset=fetch_offset,
        next_offset=fetch_offset if end is None else end[0],
        high_watermark=row.high_watermark,
        last_stable_offset=row.last_stable_offset,
        log_start_offset=row.log_start_offset,
        aborted_transactions=row.aborted_transactions or (),
        last_epoch=NO_LEADER_EPOCH if end is None else end[1],
    )
