"""ListOffsets and OffsetForLeaderEpoch: the beginning, the end and the point of divergence of
partitions.

ListOffsets 1 to 11: −1 is the end (with read_committed the last stable offset), −2 for the
beginning, anything else for the first record at or after that time. OffsetForLeaderEpoch 2 to 4
(KIP-320): the end of the largest epoch at or below one. Both go to the leaders. Kafka:
``OffsetFetcher``, ``OffsetsForLeaderEpochClient``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeVar

from millstream.client.core.consumer.record import OffsetAndTimestamp
from millstream.client.core.consumer.settings import ConsumerSettings
from millstream.client.core.metadata import MetadataView
from millstream.client.core.network import Network
from millstream.client.core.waiting import retrying, within
from millstream.client.errors import BrokerError, ClientError, is_retriable
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.offsets import NO_OFFSET, LeaderEpoch, Offset
from millstream.model.topic import TopicPartition
from millstream.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from millstream.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

T = TypeVar("T")
A = TypeVar("A")

_CONSUMER: Final = -1


class OffsetLookup:
    """Sends offset requests to leaders."""

    def __init__(
        self, network: Network, metadata: MetadataView, settings: ConsumerSettings
    ) -> None:
        self._network = network
        self._metadata = metadata
        self._settings = settings

    async def find(
        self, timestamps: Mapping[TopicPartition, int], *, timeout_ms: float
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the offset of each partition from ListOffsets, None if no record is recent enough.

        Retries temporary errors until ``timeout_ms`` have passed, then raises the last error, or
        TimedOutError if a response is still outstanding.
        """
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        network, settings = self._network, self._settings

        async def ask() -> None:
            missing = {
                topic_partition: at
                for topic_partition, at in timestamps.items()
                if topic_partition not in found
            }
            for topic_partition in {each.topic: each for each in missing}.values():
                if self._metadata.known(topic_partition.topic) is None:
                    await self._metadata.topic(topic_partition.topic, timeout_ms)
            await self.find_once(missing, found)

        failures: list[Exception] = []
        asking = retrying(
            network.loop,
            ask,
            timeout_ms=timeout_ms,
            first_ms=settings.retry_backoff_ms,
            most_ms=settings.retry_backoff_max_ms,
            failures=failures,
        )
        where = network.whereabouts
        await within(network.loop, spawn(asking), timeout_ms, "offsets", failures, where=where)
        return found

    async def find_once(
        self,
        timestamps: Mapping[TopicPartition, int],
        found: dict[TopicPartition, OffsetAndTimestamp | None],
    ) -> None:
        """Send one request to every leader; put the results into ``found`` and raise the first
        error.
        """

        async def ask(node_id: int, topic_partitions: list[TopicPartition]) -> None:
            request = self._list_offsets(
                {
                    topic_partition: timestamps[topic_partition]
                    for topic_partition in topic_partitions
                }
            )
            answer = await self._network.call(node_id, request, ListOffsetsResponse)
            _read_offsets(answer, found)

        await self._of_leaders(timestamps, ask)

    async def ends_of_epochs(
        self,
        epochs: Mapping[TopicPartition, tuple[LeaderEpoch, LeaderEpoch]],
        found: dict[TopicPartition, tuple[LeaderEpoch, Offset]],
    ) -> None:
        """Request the ends of epochs from the leaders; each value is (current leader epoch,
        requested epoch).

        Puts (epoch, end offset) into ``found``, both −1 if the leader does not know the epoch, and
        raises the first error.
        """

        async def ask(node_id: int, topic_partitions: list[TopicPartition]) -> None:
            request = _epoch_request(
                {topic_partition: epochs[topic_partition] for topic_partition in topic_partitions}
            )
            answer = await self._network.call(node_id, request, OffsetForLeaderEpochResponse)
            _read_epochs(answer, found)

        await self._of_leaders(epochs, ask)

    async def _of_leaders(
        self,
        topic_partitions: Iterable[TopicPartition],
        ask: Callable[[int, list[TopicPartition]], Awaitable[None]],
    ) -> None:
        """Run ``ask`` for all leaders at once; update metadata after an error."""
        nodes: dict[int, list[TopicPartition]] = {}
        failure: Exception | None = None
        for topic_partition in topic_partitions:
            leader = self._metadata.leader(topic_partition)
            if leader < 0:
                failure = BrokerError(
                    ErrorCode.LEADER_NOT_AVAILABLE, f"offsets of {topic_partition}"
                )
                if self._is_missing(topic_partition):
                    failure = BrokerError(
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(topic_partition)
                    )
            else:
                nodes.setdefault(leader, []).append(topic_partition)

        async def one(node_id: int, asked: list[TopicPartition]) -> None:
            await ask(node_id, asked)

        waiting: list[Deferred[None]] = [
            spawn(one(node_id, asked)) for node_id, asked in nodes.items()
        ]
        for each in waiting:
            try:
                await each
            except (ClientError, KafkaError) as error:
                failure = error if failure is None or is_retriable(failure) else failure
        if failure is not None:
            self._metadata.request_update()
            raise failure

    def _is_missing(self, topic_partition: TopicPartition) -> bool:
        topic = self._metadata.known(topic_partition.topic)
        return topic is not None and topic_partition.partition >= len(topic.partitions)

    def _list_offsets(self, timestamps: Mapping[TopicPartition, int]) -> ListOffsetsRequest:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for topic_partition, timestamp in timestamps.items():
            partition = self._metadata.partition(topic_partition)
            row = ListOffsetsPartition(
                partition_index=topic_partition.partition,
                current_leader_epoch=-1 if partition is None else partition.leader_epoch,
                timestamp=timestamp,
            )
            topics.setdefault(topic_partition.topic, []).append(row)
        return ListOffsetsRequest(
            replica_id=_CONSUMER,
            isolation_level=int(self._settings.read_committed),
            topics=[ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()],
            timeout_ms=int(self._settings.request_timeout_ms),
        )


def _read_offsets(
    answer: ListOffsetsResponse, found: dict[TopicPartition, OffsetAndTimestamp | None]
) -> None:
    failure: BrokerError | None = None
    for topic in answer.topics:
        for row in topic.partitions:
            topic_partition = TopicPartition(topic.name, row.partition_index)
            if row.error_code:
                failure = failure or BrokerError(
                    ErrorCode.of(row.error_code), f"offsets of {topic_partition}"
                )
            elif row.offset == NO_OFFSET:
                found[topic_partition] = None
            else:
                found[topic_partition] = OffsetAndTimestamp(
                    row.offset, row.timestamp, row.leader_epoch
                )
    if failure is not None:
        raise failure


def _epoch_request(
    epochs: Mapping[TopicPartition, tuple[LeaderEpoch, LeaderEpoch]],
) -> OffsetForLeaderEpochRequest:
    topics: dict[str, list[OffsetForLeaderPartition]] = {}
    for topic_partition, (current, asked) in epochs.items():
        topics.setdefault(topic_partition.topic, []).append(
            OffsetForLeaderPartition(
                partition=topic_partition.partition,
                current_leader_epoch=current,
                leader_epoch=asked,
            )
        )
    return OffsetForLeaderEpochRequest(
        replica_id=_CONSUMER,
        topics=[OffsetForLeaderTopic(topic=name, partitions=rows) for name, rows in topics.items()],
    )


def _read_epochs(
    answer: OffsetForLeaderEpochResponse,
    found: dict[TopicPartition, tuple[LeaderEpoch, Offset]],
) -> None:
    failure: BrokerError | None = None
    for topic in answer.topics:
        for row in topic.partitions:
            topic_partition = TopicPartition(topic.topic, row.partition)
            if row.error_code:
                failure = failure or BrokerError(
                    ErrorCode.of(row.error_code), f"leader epochs of {topic_partition}"
                )
            else:
                found[topic_partition] = (row.leader_epoch, row.end_offset)
    if failure is not None:
        raise failure
