"""The share coordinator that this broker runs: requests about share partitions, brought to their
shards.

A share partition's state lives in the partition of ``__share_group_state`` that its key hashes to.
From time to time what snapshots have replaced is deleted from the start of each partition led here,
and snapshots that hold that back are written again. Kafka: ``ShareCoordinatorService``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TypeVar

from millstream.config.broker import BrokerConfig
from millstream.coordinator.group.partitioner import group_partition
from millstream.coordinator.result import Instant, Result
from millstream.coordinator.share.coordinator import ShareCoordinator, ShareCoordinatorSettings
from millstream.model.clock import Clock, TimerHandle
from millstream.model.deferred import Deferred
from millstream.model.errors import KafkaError
from millstream.model.topic import SHARE_GROUP_STATE_TOPIC, TopicId
from millstream.records.builder import BatchOptions
from millstream.records.compression import Codec
from millstream.runtime.coordinators.coordinator_runtime import CoordinatorRuntime
from millstream.runtime.coordinators.coordinator_shard import ShardDriver
from millstream.runtime.coordinators.outlets import Outlets, RequestSender
from millstream.runtime.metadata.metadata_cache import MetadataCache, TopicImage
from millstream.runtime.offload import Offload
from millstream.runtime.replicas.partition import Partition
from millstream.runtime.replicas.partition_requests import delete_records_before
from millstream.runtime.replicas.partitions import Partitions
from millstream.share.state import (
    SharePartitionKey,
    ShareState,
    ShareStateSummary,
    ShareStateUpdate,
)

log = logging.getLogger(__name__)

R = TypeVar("R")


class ShareCoordinatorRuntime:
    """Brings requests about share partitions to their shards.

    Every method answers with a Deferred that fails with a KafkaError when the coordinator is not
    here, is loading, or could not write, and with what :class:`ShareCoordinator` refuses.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock,
        offload: Offload,
        partitions: Partitions,
        metadata: MetadataCache,
        send_request: RequestSender,
    ) -> None:
        self._config = config
        self._clock = clock
        self._metadata = metadata
        self._settings = ShareCoordinatorSettings(
            config.share_coordinator_snapshot_update_records_per_snapshot,
            config.share_coordinator_cold_partition_snapshot_interval_ms,
        )
        codec = Codec(config.share_coordinator_state_topic_compression_codec)
        self._runtime: CoordinatorRuntime[ShareCoordinator] = CoordinatorRuntime(
            SHARE_GROUP_STATE_TOPIC,
            self._new_shard,
            partitions=partitions,
            clock=clock,
            offload=offload,
            options=BatchOptions(codec=codec),
            commit_timeout_ms=config.share_coordinator_write_timeout_ms,
            outlets=Outlets(clock, send_request),
        )
        self._timers: list[TimerHandle | None] = [None, None]

    # Life

    def start(self) -> None:
        """Begin to load what is there, and the upkeep."""
        self._runtime.start()
        self._prune_later()
        self._snapshot_cold_later()

    def stop(self) -> None:
        """Answer everybody who waits, and end."""
        for timer in self._timers:
            if timer is not None:
                timer.cancel()
        self._timers = [None, None]
        self._runtime.stop()

    def describe_shards(self) -> Iterator[str]:
        """Yield the partitions that do not serve, or have something to wait for."""
        return self._runtime.describe_shards()

    def topic_changed(self, image: TopicImage, *, created: bool) -> None:
        """See :meth:`CoordinatorRuntime.topic_changed`."""
        self._runtime.topic_changed(image, created=created)

    def topic_deleted(self, image: TopicImage) -> None:
        """See :meth:`CoordinatorRuntime.topic_deleted`; its share partitions are forgotten."""
        self._runtime.topic_deleted(image)

    # Operations

    def initialize(
        self, key: SharePartitionKey, *, state_epoch: int, start_offset: int
    ) -> Deferred[SharePartitionKey]:
        """See :meth:`ShareCoordinator.initialize`."""
        return self._write(
            key,
            lambda shard, now: shard.initialize(
                key, state_epoch=state_epoch, start_offset=start_offset, now=now
            ),
        )

    def read(self, key: SharePartitionKey, *, leader_epoch: int) -> Deferred[ShareState]:
        """See :meth:`ShareCoordinator.read`."""
        return self._write(
            key, lambda shard, now: shard.read(key, leader_epoch=leader_epoch, now=now)
        )

    def write(
        self, key: SharePartitionKey, update: ShareStateUpdate
    ) -> Deferred[SharePartitionKey]:
        """See :meth:`ShareCoordinator.write`."""
        return self._write(key, lambda shard, now: shard.write(key, update, now))

    def read_summary(self, key: SharePartitionKey) -> Deferred[ShareStateSummary]:
        """See :meth:`ShareCoordinator.read_summary`."""
        return self._runtime.read(self._index(key), lambda shard, _: shard.read_summary(key))

    def delete(self, key: SharePartitionKey) -> Deferred[SharePartitionKey]:
        """See :meth:`ShareCoordinator.delete`."""
        return self._write(key, lambda shard, _: shard.delete(key))

    # Inner workings

    def _write(
        self,
        key: SharePartitionKey,
        operation: Callable[[ShareCoordinator, Instant], Result[R]],
    ) -> Deferred[R]:
        return self._runtime.write(self._index(key), operation)

    def _index(self, key: SharePartitionKey) -> int:
        image = self._metadata.topic(SHARE_GROUP_STATE_TOPIC)
        count = self._config.share_coordinator_state_topic_num_partitions
        return group_partition(
            key.coordinator_key, count if image is None else len(image.partitions)
        )

    def _new_shard(self, _: Partition) -> ShareCoordinator:
        return ShareCoordinator(self._settings, self._partition_count)

    def _partition_count(self, topic_id: TopicId) -> int | None:
        image = self._metadata.topic_by_id(topic_id)
        return None if image is None else len(image.partitions)

    # Upkeep

    def _prune_later(self) -> None:
        interval_ms = self._config.share_coordinator_state_topic_prune_interval_ms
        self._timers[0] = self._clock.call_later(interval_ms, self._prune)

    def _prune(self) -> None:
        self._prune_later()
        self._one_by_one(_prune)
        self._one_by_one(
            lambda driver: driver.write(lambda shard, _: shard.forget_missing_topics())
        )

    def _snapshot_cold_later(self) -> None:
        interval_ms = self._config.share_coordinator_cold_partition_snapshot_interval_ms
        self._timers[1] = self._clock.call_later(interval_ms, self._snapshot_cold)

    def _snapshot_cold(self) -> None:
        self._snapshot_cold_later()
        self._one_by_one(lambda driver: driver.write(lambda shard, now: shard.snapshot_cold(now)))

    def _one_by_one(self, upkeep: Callable[[ShardDriver[ShareCoordinator]], object]) -> None:
        """Do something with every shard, one in each pass of the loop: requests are served in
        between.
        """
        pending = self._runtime.open_drivers()

        def next_shard() -> None:
            driver = next(pending, None)
            if driver is not None:
                upkeep(driver)
                self._clock.call_soon(next_shard)

        next_shard()


def _prune(driver: ShardDriver[ShareCoordinator]) -> None:
    """Delete what is redundant, once all that makes it so is committed."""
    partition = driver.partition

    def prune(found: Deferred[int]) -> None:
        try:
            offset = found.result()
            if offset > partition.log.log_start_offset:
                delete_records_before(partition, offset)
        except KafkaError as error:
            log.debug("%s is not pruned: %s", partition.topic_partition, error)

    driver.write(lambda shard, _: shard.redundant_offset()).on_done(prune)
