"""OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete, and the expiration of offsets.

Each plans the records that change the offsets; nothing changes before they are replayed. Kafka:
``OffsetMetadataManager``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from millstream.coordinator.group.group import Group
from millstream.coordinator.group.groups import Groups
from millstream.coordinator.group.offsets import (
    NO_EXPIRY,
    CommittedOffset,
    OffsetKey,
    OffsetStore,
)
from millstream.coordinator.group.records import offset_commit_record, offset_tombstone
from millstream.coordinator.group.settings import GroupSettings
from millstream.coordinator.result import CoordinatorRecord, Instant, Result
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import ZERO_TOPIC_ID, TopicId
from millstream.protocol.messages.coordinator_records import OffsetCommitKey, OffsetCommitValue
from millstream.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from millstream.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from millstream.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from millstream.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

NO_OFFSET = -1
NO_LEADER_EPOCH = -1
_NEVER = 2**63 - 1
_FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND = 9


class OffsetRequests:
    """Serves the offset requests over one shard, for groups of any kind.

    ``member_committed`` is called with a group and the id of the member whose session a commit
    renews.
    """

    def __init__(
        self,
        settings: GroupSettings,
        groups: Groups,
        offsets: OffsetStore,
        member_committed: Callable[[Group, str, Instant], None],
    ) -> None:
        self._settings = settings
        self._groups = groups
        self._offsets = offsets
        self._member_committed = member_committed

    # OffsetCommit

    def commit(
        self, request: OffsetCommitRequest, version: int, now: Instant
    ) -> Result[OffsetCommitResponse]:
        """Store offsets of partitions that exist; topics carry their name and, if known, id."""
        self._validate_commit(request, version, now)
        expires_ms = NO_EXPIRY
        if request.retention_time_ms != NO_EXPIRY:
            # Some clients send the largest value of the field, and the sum would exceed an int64.
            expires_ms = min(now.wall_ms + request.retention_time_ms, _NEVER)
        records: list[CoordinatorRecord] = []
        topics = []
        for topic in request.topics:
            partitions = []
            for partition in topic.partitions:
                error = self._refusal_of(request, topic.topic_id, partition)
                if error is ErrorCode.NONE:
                    key = OffsetKey(request.group_id, topic.name, partition.partition_index)
                    records.append(_commit_record(key, topic.topic_id, partition, now, expires_ms))
                partitions.append(
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=error.code
                    )
                )
            topics.append(
                OffsetCommitResponseTopic(
                    name=topic.name, topic_id=topic.topic_id, partitions=partitions
                )
            )
        return Result(OffsetCommitResponse(topics=topics), records)

    def _validate_commit(self, request: OffsetCommitRequest, version: int, now: Instant) -> None:
        group = self._groups.get(request.group_id)
        generation_id = request.generation_id_or_member_epoch
        if group is None:
            if generation_id >= 0:
                if version >= _FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND:
                    raise KafkaError(
                        ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found."
                    )
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
            self._groups.check_room()
            return
        member_id = group.validate_commit(request, version)
        if member_id is not None:
            self._member_committed(group, member_id, now)

    def _refusal_of(
        self,
        request: OffsetCommitRequest,
        topic_id: TopicId,
        partition: OffsetCommitRequestPartition,
    ) -> ErrorCode:
        if self._is_too_large(partition.committed_metadata):
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        group = self._groups.get(request.group_id)
        if group is None:
            return ErrorCode.NONE
        epoch = request.generation_id_or_member_epoch
        index = partition.partition_index
        return group.refuses_commit(request.member_id, epoch, topic_id, index) or ErrorCode.NONE

    def _is_too_large(self, metadata: str | None) -> bool:
        if metadata is None:
            return False
        size = len(metadata)
        if not metadata.isascii():
            size = len(metadata.encode("utf-16-be", "surrogatepass")) // 2
        return size > self._settings.offset_metadata_max_bytes

    # TxnOffsetCommit

    def commit_transactional(
        self, request: TxnOffsetCommitRequest, topic_ids: Mapping[str, TopicId], now: Instant
    ) -> Result[TxnOffsetCommitResponse]:
        """Store offsets of partitions that exist as part of a transaction: they are pending until
        its marker. ``topic_ids`` has the id of each topic.
        """
        self._validate_transactional(request)
        records: list[CoordinatorRecord] = []
        topics = []
        for topic in request.topics:
            partitions = []
            for partition in topic.partitions:
                topic_id = topic_ids[topic.name]
                error = self._transactional_refusal_of(request, topic_id, partition)
                if error is ErrorCode.NONE:
                    key = OffsetKey(request.group_id, topic.name, partition.partition_index)
                    records.append(_commit_record(key, topic_id, partition, now, NO_EXPIRY))
                partitions.append(
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=error.code
                    )
                )
            topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions))
        return Result(TxnOffsetCommitResponse(topics=topics), records)

    def _transactional_refusal_of(
        self,
        request: TxnOffsetCommitRequest,
        topic_id: TopicId,
        partition: TxnOffsetCommitRequestPartition,
    ) -> ErrorCode:
        if self._is_too_large(partition.committed_metadata):
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        group, epoch = self._groups.get(request.group_id), request.generation_id
        if group is None or epoch < 0:
            return ErrorCode.NONE
        index = partition.partition_index
        if group.refuses_commit(request.member_id, epoch, topic_id, index) is None:
            return ErrorCode.NONE
        return ErrorCode.ILLEGAL_GENERATION

    def _validate_transactional(self, request: TxnOffsetCommitRequest) -> None:
        group = self._groups.get(request.group_id)
        if group is not None:
            group.validate_transactional_commit(request)
        elif request.generation_id >= 0:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        else:
            self._groups.check_room()

    # OffsetFetch

    def fetch(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> Result[OffsetFetchResponseGroup]:
        """Return offsets of the partitions asked for, or of all when ``topics`` is null.

        With ``require_stable`` a partition in an open transaction is UNSTABLE_OFFSET_COMMIT. A
        group that does not exist, or is none of consumers, has no offsets.
        """
        group_id = request.group_id
        group = self._groups.get(group_id)
        stored = self._offsets.of_group(group_id)
        if group is not None:
            try:
                group.validate_fetch(request)
            except KafkaError as error:
                if error.error is not ErrorCode.GROUP_ID_NOT_FOUND:
                    raise
                stored = {}
        topics = []
        for topic in _topics_to_fetch(request, stored):
            partitions = []
            for index in topic.partition_indexes:
                if require_stable and self._offsets.is_unstable(
                    OffsetKey(group_id, topic.name, index)
                ):
                    partitions.append(_no_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT))
                else:
                    committed = stored.get(topic.name, {}).get(index)
                    partitions.append(_fetched(index, committed, topic.topic_id))
            topics.append(
                OffsetFetchResponseTopics(
                    name=topic.name, topic_id=topic.topic_id, partitions=partitions
                )
            )
        return Result(OffsetFetchResponseGroup(group_id=group_id, topics=topics))

    # OffsetDelete

    def delete(self, request: OffsetDeleteRequest) -> Result[OffsetDeleteResponse]:
        """Delete offsets of partitions of topics that no member of the group subscribes to."""
        group = self._groups.require(request.group_id)
        group.validate_delete_offsets()
        records: list[CoordinatorRecord] = []
        topics = []
        for topic in request.topics:
            error = ErrorCode.NONE
            if group.is_subscribed_to(topic.name):
                error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                records += self._tombstones(request.group_id, topic)
            topics.append(
                OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetDeleteResponsePartition(
                            partition_index=partition.partition_index, error_code=error.code
                        )
                        for partition in topic.partitions
                    ],
                )
            )
        response = OffsetDeleteResponse(error_code=ErrorCode.NONE.code, topics=topics)
        return Result(response, records)

    def _tombstones(
        self, group_id: str, topic: OffsetDeleteRequestTopic
    ) -> Iterable[CoordinatorRecord]:
        for partition in topic.partitions:
            key = OffsetKey(group_id, topic.name, partition.partition_index)
            if self._offsets.get(key) is not None or self._offsets.is_unstable(key):
                yield offset_tombstone(*key)

    # Deletion and expiration

    def forget_group(self, group_id: str) -> list[CoordinatorRecord]:
        """Return a tombstone for each offset of a group, those of open transactions too."""
        keys = {
            OffsetKey(group_id, topic, partition): None
            for topic, partitions in self._offsets.of_group(group_id).items()
            for partition in partitions
        }
        keys.update(dict.fromkeys(self._offsets.unstable_keys(group_id)))
        return [offset_tombstone(*key) for key in keys]

    def forget_topic(self, name: str, topic_id: TopicId) -> list[CoordinatorRecord]:
        """Return a tombstone for each offset in a topic that was deleted, those of open
        transactions too.

        An offset with another topic id belongs to a later topic of the same name.
        """
        keys = {
            OffsetKey(group_id, name, partition): None
            for group_id in self._offsets.group_ids()
            for partition, committed in self._offsets.of_group(group_id).get(name, {}).items()
            if committed.topic_id in (ZERO_TOPIC_ID, topic_id)
        }
        keys.update(
            (key, None)
            for key, pending in self._offsets.pending()
            if key.topic == name and pending.topic_id in (ZERO_TOPIC_ID, topic_id)
        )
        return [offset_tombstone(*key) for key in keys]

    def expire(self, group: Group, now: Instant) -> tuple[list[CoordinatorRecord], bool]:
        """Return tombstones for a group's expired offsets, and True if those are all of its
        offsets. Offsets of topics with a subscription are kept.
        """
        group_id = group.group_id
        stored = self._offsets.of_group(group_id)
        no_transaction = not self._offsets.unstable_keys(group_id)
        if not stored:
            return [], no_transaction
        since_ms = group.retention_counts_from()
        if since_ms is None:
            return [], False
        records = []
        all_gone = no_transaction
        for topic, partitions in stored.items():
            if group.is_subscribed_to(topic):
                all_gone = False
                continue
            for partition, committed in partitions.items():
                key = OffsetKey(group_id, topic, partition)
                over = self._is_over(committed, since_ms(committed), now)
                if over and not self._offsets.is_unstable(key):
                    records.append(offset_tombstone(*key))
                else:
                    all_gone = False
        return records, all_gone

    def _is_over(self, committed: CommittedOffset, since_ms: int, now: Instant) -> bool:
        if committed.expire_timestamp_ms != NO_EXPIRY:
            return now.wall_ms >= committed.expire_timestamp_ms
        return now.wall_ms - since_ms >= self._settings.offsets_retention_ms


def _commit_record(
    key: OffsetKey,
    topic_id: TopicId,
    partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    now: Instant,
    expires_ms: int,
) -> CoordinatorRecord:
    return offset_commit_record(
        OffsetCommitKey(group=key.group_id, topic=key.topic, partition=key.partition),
        OffsetCommitValue(
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=partition.committed_metadata or "",
            commit_timestamp=now.wall_ms,
            expire_timestamp=expires_ms,
            topic_id=topic_id,
        ),
    )


def _topics_to_fetch(
    request: OffsetFetchRequestGroup, stored: Mapping[str, Mapping[int, CommittedOffset]]
) -> list[OffsetFetchRequestTopics]:
    if request.topics is not None:
        return request.topics
    return [
        OffsetFetchRequestTopics(name=topic, partition_indexes=list(partitions))
        for topic, partitions in stored.items()
    ]


def _fetched(
    index: int, committed: CommittedOffset | None, topic_id: TopicId
) -> OffsetFetchResponsePartitions:
    if committed is None or _is_of_another_topic(committed.topic_id, topic_id):
        return _no_offset(index, ErrorCode.NONE)
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=ErrorCode.NONE.code,
    )


def _is_of_another_topic(committed: TopicId, asked: TopicId) -> bool:
    """True when both ids are known and differ: the topic was deleted and created again."""
    return committed != asked and ZERO_TOPIC_ID not in (committed, asked)


def _no_offset(index: int, error: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=NO_OFFSET,
        committed_leader_epoch=NO_LEADER_EPOCH,
        metadata="",
        error_code=error.code,
    )
