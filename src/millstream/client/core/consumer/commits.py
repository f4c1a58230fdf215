"""OffsetCommit and OffsetFetch: the committed offsets of a group.

OffsetCommit 2 to 9 (static members from 7), OffsetFetch 1 to 9 (from 8 on several groups in one
request, of which this client asks one); version 10 of both, with topic ids, is not used, because
offsets are committed by name. Kafka: ``ConsumerCoordinator``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from millstream.client.core.consumer.errors import FencedInstanceIdError
from millstream.client.core.consumer.metrics import CoordinatorMetrics
from millstream.client.core.consumer.record import GroupMetadata, OffsetAndMetadata
from millstream.client.core.network import CoordinatorType, Network
from millstream.client.errors import BrokerError, raise_for
from millstream.model.errors import ErrorCode
from millstream.model.topic import TopicPartition
from millstream.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from millstream.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)

_LAST_VERSION_WITH_NAMES: Final = 9
_FIRST_WITH_GROUPS: Final = 8
_FIRST_STABLE: Final = 7

COORDINATOR_MOVED: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT}
)
"""Errors after which the coordinator is looked up again."""


class Commits:
    """The offsets of one group at its coordinator; each call is one request."""

    def __init__(self, network: Network, group_id: str, metrics: CoordinatorMetrics) -> None:
        self._network = network
        self._group_id = group_id
        self._metrics = metrics
        self.whereabouts = network.whereabouts
        """Return for the text of a time-out which brokers it is about."""

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        """Commit as the member of ``group``; BrokerError with the first error."""
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for topic_partition, offset in offsets.items():
            topics.setdefault(topic_partition.topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=topic_partition.partition,
                    committed_offset=offset.offset,
                    committed_leader_epoch=offset.leader_epoch,
                    committed_metadata=offset.metadata,
                )
            )
        request = OffsetCommitRequest(
            group_id=self._group_id,
            generation_id_or_member_epoch=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=[
                OffsetCommitRequestTopic(name=name, partitions=rows)
                for name, rows in topics.items()
            ],
        )
        began = self._network.loop.now_ms()
        answer = await self._network.send_to_coordinator(
            self._group_id, CoordinatorType.GROUP, request, max_version=_LAST_VERSION_WITH_NAMES
        )
        assert isinstance(answer, OffsetCommitResponse)
        self._metrics.commits.add(self._network.loop.now_ms() - began)
        for topic in answer.topics:
            for row in topic.partitions:
                if row.error_code:
                    topic_partition = TopicPartition(topic.name, row.partition_index)
                    self._refuse(
                        ErrorCode.of(row.error_code), f"offset of {topic_partition}", group
                    )

    async def committed(
        self, topic_partitions: Iterable[TopicPartition], group: GroupMetadata | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets, None where nothing was committed.

        ``group`` is the identity of a member whose coordinator checks its epoch (KIP-848).
        BrokerError UNSTABLE_OFFSET_COMMIT while a transaction that commits offsets is open.
        """
        wanted = list(topic_partitions)
        if not wanted:
            return {}
        node_id = await self._network.coordinator(self._group_id, CoordinatorType.GROUP)
        version = await self._network.version_for(
            node_id, OffsetFetchRequest, _LAST_VERSION_WITH_NAMES
        )
        request = self._fetch_request(wanted, version, group)
        answer = await self._network.send_to_coordinator(
            self._group_id, CoordinatorType.GROUP, request, max_version=version
        )
        assert isinstance(answer, OffsetFetchResponse)
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        for name, row in self._rows(answer):
            topic_partition = TopicPartition(name, row.partition_index)
            raise_for(row.error_code, f"committed offset of {topic_partition}")
            found[topic_partition] = (
                OffsetAndMetadata(
                    row.committed_offset, row.metadata or "", row.committed_leader_epoch
                )
                if row.committed_offset >= 0
                else None
            )
        return found

    def _fetch_request(
        self, topic_partitions: list[TopicPartition], version: int, member: GroupMetadata | None
    ) -> OffsetFetchRequest:
        topics: dict[str, list[int]] = {}
        for topic_partition in topic_partitions:
            topics.setdefault(topic_partition.topic, []).append(topic_partition.partition)
        if version >= _FIRST_WITH_GROUPS:
            group = OffsetFetchRequestGroup(
                group_id=self._group_id,
                member_id=None if member is None else member.member_id,
                member_epoch=-1 if member is None else member.generation_id,
                topics=[
                    OffsetFetchRequestTopics(name=name, partition_indexes=numbers)
                    for name, numbers in topics.items()
                ],
            )
            return OffsetFetchRequest(groups=[group], require_stable=True)
        return OffsetFetchRequest(
            group_id=self._group_id,
            topics=[
                OffsetFetchRequestTopic(name=name, partition_indexes=numbers)
                for name, numbers in topics.items()
            ],
            require_stable=version >= _FIRST_STABLE,
        )

    def _rows(
        self, answer: OffsetFetchResponse
    ) -> list[tuple[str, OffsetFetchResponsePartition | OffsetFetchResponsePartitions]]:
        rows: list[tuple[str, OffsetFetchResponsePartition | OffsetFetchResponsePartitions]] = []
        about = f"group {self._group_id!r}"
        self._check(answer.error_code, about)
        for topic in answer.topics:
            rows += [(topic.name, row) for row in topic.partitions]
        for group in answer.groups:
            self._check(group.error_code, about)
            for each in group.topics:
                rows += [(each.name, row) for row in each.partitions]
        return rows

    def _check(self, code: int, about: str) -> None:
        if code:
            self._refuse(ErrorCode.of(code), about, None)

    def _refuse(self, error: ErrorCode, about: str, group: GroupMetadata | None) -> None:
        if error in COORDINATOR_MOVED:
            self._network.forget_coordinator(self._group_id, CoordinatorType.GROUP)
        if error is ErrorCode.FENCED_INSTANCE_ID and group is not None:
            raise FencedInstanceIdError(group.group_instance_id)
        raise BrokerError(error, about)
