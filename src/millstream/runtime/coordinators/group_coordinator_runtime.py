"""The coordinator of groups that this broker runs: requests about groups, brought to their shards.

A group lives in the partition of ``__consumer_offsets`` that its id hashes to. Kafka:
``GroupCoordinatorService``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from millstream.config.broker import BrokerConfig
from millstream.coordinator.group.coordinator import GroupCoordinator
from millstream.coordinator.group.join_group import Caller
from millstream.coordinator.group.partitioner import group_partition
from millstream.coordinator.group.settings import (
    ConsumerSettings,
    ConsumerTimes,
    GroupSettings,
    MigrationPolicy,
)
from millstream.coordinator.group.share.settings import ShareGroupSettings, ShareTimes
from millstream.coordinator.result import Instant, Result, TransactionEnd
from millstream.model.clock import Clock, TimerHandle
from millstream.model.deferred import Deferred
from millstream.model.topic import GROUP_METADATA_TOPIC, TopicId
from millstream.protocol.messages.consumer_group_describe import (
    DescribedGroup as ConsumerDescribedGroup,
)
from millstream.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from millstream.protocol.messages.delete_groups import DeletableGroupResult
from millstream.protocol.messages.describe_groups import DescribedGroup
from millstream.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from millstream.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from millstream.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from millstream.protocol.messages.list_groups import ListedGroup
from millstream.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from millstream.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from millstream.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
)
from millstream.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from millstream.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from millstream.records.builder import BatchOptions
from millstream.records.compression import Codec
from millstream.runtime.coordinators.coordinator_runtime import CoordinatorRuntime
from millstream.runtime.coordinators.group_configs import GroupConfigs
from millstream.runtime.coordinators.outlets import Outlets, RequestSender
from millstream.runtime.coordinators.topics_view import TopicsView
from millstream.runtime.metadata.metadata_cache import MetadataCache, TopicImage
from millstream.runtime.offload import Offload
from millstream.runtime.replicas.partition import Partition
from millstream.runtime.replicas.partitions import Partitions
from millstream.runtime.replicas.transaction_verification import (
    TransactionalProducer,
    TransactionSupport,
)

R = TypeVar("R")

_MINUTE_MS: Final = 60_000


class GroupCoordinatorRuntime:
    """Brings requests about groups to their shards. ``new_id`` makes unique texts.

    Every method answers with a Deferred that fails with a KafkaError when the coordinator is not
    here, is loading, or could not write. ``send_request`` sends requests to other brokers.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock,
        offload: Offload,
        partitions: Partitions,
        metadata: MetadataCache,
        new_id: Callable[[], str],
        send_request: RequestSender,
        group_configs: GroupConfigs | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._metadata = metadata
        self._new_id = new_id
        self._settings = GroupSettings(
            min_session_timeout_ms=config.group_min_session_timeout_ms,
            max_session_timeout_ms=config.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            max_size=config.group_max_size,
            offset_metadata_max_bytes=config.offset_metadata_max_bytes,
            offsets_retention_ms=config.offsets_retention_minutes * _MINUTE_MS,
            consumer=_consumer_settings(config, group_configs),
            share=_share_settings(config, group_configs),
        )
        self._topics = TopicsView(metadata)
        self._runtime: CoordinatorRuntime[GroupCoordinator] = CoordinatorRuntime(
            GROUP_METADATA_TOPIC,
            self._new_shard,
            partitions=partitions,
            clock=clock,
            offload=offload,
            options=BatchOptions(codec=Codec(config.offsets_topic_compression_codec)),
            commit_timeout_ms=config.offsets_commit_timeout_ms,
            outlets=Outlets(clock, send_request),
        )
        self._expiry_timer: TimerHandle | None = None

    # Life

    def start(self) -> None:
        """Begin to load what is there, and to look for expired offsets from time to time."""
        self._runtime.start()
        self._schedule_expiry()

    def stop(self) -> None:
        """Answer everybody who waits, and end."""
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
            self._expiry_timer = None
        self._runtime.stop()

    def active_shards(self) -> Iterator[GroupCoordinator]:
        """Yield the coordinators of the partitions that are loaded and served here."""
        return self._runtime.active_shards()

    def describe_shards(self) -> Iterator[str]:
        """Yield the partitions that do not serve, or have something to wait for."""
        return self._runtime.describe_shards()

    def topic_changed(self, image: TopicImage, *, created: bool) -> None:
        """See :meth:`CoordinatorRuntime.topic_changed`."""
        self._runtime.topic_changed(image, created=created)

    def topic_deleted(self, image: TopicImage) -> None:
        """See :meth:`CoordinatorRuntime.topic_deleted`; groups forget their offsets in it."""
        self._runtime.topic_deleted(image)

    def partition_for(self, group_id: str) -> int:
        """Return the partition of ``__consumer_offsets`` that keeps a group."""
        image = self._metadata.topic(GROUP_METADATA_TOPIC)
        count = (
            self._config.offsets_topic_num_partitions if image is None else len(image.partitions)
        )
        return group_partition(group_id, count)

    # Members

    def join_group(self, request: JoinGroupRequest, caller: Caller) -> Deferred[JoinGroupResponse]:
        """Answer once the generation that the member joins has begun."""
        reply: Deferred[JoinGroupResponse] = Deferred()
        new_id = self._new_id()
        return self._write(
            request.group_id,
            lambda shard, now: shard.join_group(request, caller, new_id, reply, now),
            reply,
        )

    def sync_group(self, request: SyncGroupRequest) -> Deferred[SyncGroupResponse]:
        """Answer once the leader's assignment is stored."""
        reply: Deferred[SyncGroupResponse] = Deferred()
        return self._write(
            request.group_id, lambda shard, now: shard.sync_group(request, reply, now), reply
        )

    def heartbeat(self, request: HeartbeatRequest) -> Deferred[HeartbeatResponse]:
        """Renew a member's session."""
        return self._read(request.group_id, lambda shard, now: shard.heartbeat(request, now))

    def leave_group(self, request: LeaveGroupRequest) -> Deferred[LeaveGroupResponse]:
        """Remove members; ``request.members`` names them in every version."""
        return self._write(request.group_id, lambda shard, now: shard.leave_group(request, now))

    def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller
    ) -> Deferred[ConsumerGroupHeartbeatResponse]:
        """Let a member of a consumer group join, follow its assignment, or leave."""
        new_id = self._new_id()
        return self._write(
            request.group_id,
            lambda shard, now: shard.consumer_group_heartbeat(request, caller, new_id, now),
        )

    # Offsets

    def commit_offsets(
        self, request: OffsetCommitRequest, version: int
    ) -> Deferred[OffsetCommitResponse]:
        """Store offsets of partitions that exist."""
        return self._write(
            request.group_id, lambda shard, now: shard.commit_offsets(request, version, now)
        )

    def commit_transactional_offsets(
        self, request: TxnOffsetCommitRequest, version: int, topic_ids: Mapping[str, TopicId]
    ) -> Deferred[TxnOffsetCommitResponse]:
        """Store offsets of partitions that exist in a transaction, once the transaction coordinator
        has said that the group's partition belongs to it, or has added it (version 5 and later).
        """
        producer = TransactionalProducer(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            TransactionSupport.of_txn_offset_commit(version),
        )
        return self._runtime.write_transactional(
            self.partition_for(request.group_id),
            producer,
            lambda shard, now: shard.commit_transactional_offsets(request, topic_ids, now),
        )

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> Deferred[OffsetFetchResponseGroup]:
        """Return what a group committed."""
        return self._read(
            request.group_id,
            lambda shard, _: shard.fetch_offsets(request, require_stable=require_stable),
        )

    def delete_offsets(self, request: OffsetDeleteRequest) -> Deferred[OffsetDeleteResponse]:
        """Forget offsets of partitions that no member reads."""
        return self._write(request.group_id, lambda shard, _: shard.delete_offsets(request))

    def end_transaction(self, index: int, end: TransactionEnd) -> Deferred[None]:
        """Apply and append the marker of a transaction that has committed offsets in a partition of
        ``__consumer_offsets``.
        """
        return self._runtime.end_transaction(index, end)

    # Administration

    def describe_group(self, group_id: str, version: int) -> Deferred[DescribedGroup]:
        """Return a group's state and members."""
        return self._read(group_id, lambda shard, _: shard.describe_group(group_id, version))

    def describe_consumer_group(self, group_id: str) -> Deferred[ConsumerDescribedGroup]:
        """Return a consumer group's epochs, members and assignments."""
        return self._read(group_id, lambda shard, _: shard.describe_consumer_group(group_id))

    def list_groups(
        self, *, states: list[str], types: list[str]
    ) -> list[Deferred[list[ListedGroup]]]:
        """Return the groups of every shard here."""
        return self._runtime.read_all(
            lambda shard, _: shard.list_groups(states=states, types=types)
        )

    def delete_group(self, group_id: str) -> Deferred[DeletableGroupResult]:
        """Forget a group without members, and its offsets."""
        return self._write(group_id, lambda shard, _: shard.delete_group(group_id))

    # Any operation

    def write(
        self, group_id: str, operation: Callable[[GroupCoordinator, Instant], Result[R]]
    ) -> Deferred[R]:
        """Run an operation that may make records on the shard of a group."""
        return self._write(group_id, operation)

    def read(
        self, group_id: str, operation: Callable[[GroupCoordinator, Instant], Result[R]]
    ) -> Deferred[R]:
        """Run an operation that makes no records on the shard of a group."""
        return self._read(group_id, operation)

    # Inner workings

    def _write(
        self,
        group_id: str,
        operation: Callable[[GroupCoordinator, Instant], Result[R]],
        reply: Deferred[R] | None = None,
    ) -> Deferred[R]:
        return self._runtime.write(self.partition_for(group_id), operation, reply)

    def _read(
        self, group_id: str, operation: Callable[[GroupCoordinator, Instant], Result[R]]
    ) -> Deferred[R]:
        return self._runtime.read(self.partition_for(group_id), operation)

    def _new_shard(self, partition: Partition) -> GroupCoordinator:
        max_batch_bytes = partition.config.max_message_bytes
        settings = replace(self._settings, max_batch_bytes=max_batch_bytes)
        return GroupCoordinator(settings, self._topics)

    def _schedule_expiry(self) -> None:
        interval_ms = self._config.offsets_retention_check_interval_ms
        self._expiry_timer = self._clock.call_later(interval_ms, self._expire_offsets)

    def _expire_offsets(self) -> None:
        self._schedule_expiry()
        pending = self._runtime.open_drivers()

        def next_shard() -> None:
            # One shard in each pass of the loop: requests are served in between.
            driver = next(pending, None)
            if driver is not None:
                driver.write(lambda shard, now: shard.expire_offsets(now))
                self._clock.call_soon(next_shard)

        next_shard()


def _consumer_settings(
    config: BrokerConfig, group_configs: GroupConfigs | None
) -> ConsumerSettings:
    """Return the settings of consumer groups; without ``group_configs`` no group has its own."""
    times = ConsumerTimes(
        session_timeout_ms=config.group_consumer_session_timeout_ms,
        heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
        assignment_interval_ms=config.group_consumer_assignment_interval_ms,
    )
    return ConsumerSettings(
        times_of=(lambda _: times) if group_configs is None else group_configs.consumer_times,
        max_size=config.group_consumer_max_size,
        assignors=config.group_consumer_assignors or ConsumerSettings().assignors,
        migration_policy=MigrationPolicy(config.group_consumer_migration_policy.lower()),
        regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
    )


def _share_settings(config: BrokerConfig, group_configs: GroupConfigs | None) -> ShareGroupSettings:
    """Return the settings of share groups; without ``group_configs`` no group has its own."""
    times = ShareTimes(
        session_timeout_ms=config.group_share_session_timeout_ms,
        heartbeat_interval_ms=config.group_share_heartbeat_interval_ms,
        assignment_interval_ms=config.group_share_assignment_interval_ms,
    )
    return ShareGroupSettings(
        times_of=(lambda _: times) if group_configs is None else group_configs.share_times,
        max_size=config.group_share_max_size,
        initialize_retry_interval_ms=max(
            config.group_share_initialize_retry_interval_ms, config.offsets_commit_timeout_ms
        ),
    )
