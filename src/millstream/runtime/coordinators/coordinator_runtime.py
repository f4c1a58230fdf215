"""The coordinators that this broker runs: one shard for each partition of their topic it leads.

A group lives in the partition that its id hashes to. The shard of a partition is begun when the
broker starts (:meth:`GroupCoordinatorRuntime.start`), when the broker comes to lead the partition
or when it is first asked for; until its records are replayed it answers
COORDINATOR_LOAD_IN_PROGRESS. It ends when the partition is led elsewhere: everybody who waits hears
NOT_COORDINATOR and finds the other broker. Kafka: ``CoordinatorRuntime``,
``GroupCoordinatorService``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, Generic, TypeVar

from millstream.config.broker import BrokerConfig
from millstream.coordinator.group.coordinator import GroupCoordinator
from millstream.coordinator.group.join_group import Caller
from millstream.coordinator.group.partitioner import group_partition
from millstream.coordinator.group.settings import GroupSettings
from millstream.coordinator.result import Instant, Result
from millstream.model.clock import Clock, TimerHandle
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import GROUP_METADATA_TOPIC
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
from millstream.records.builder import BatchOptions
from millstream.records.compression import Codec
from millstream.runtime.coordinators.coordinator_shard import (
    S,
    ShardDriver,
    State,
    coordinator_error,
)
from millstream.runtime.metadata.metadata_cache import MetadataCache, TopicImage
from millstream.runtime.offload import Offload
from millstream.runtime.replicas.partition import Partition
from millstream.runtime.replicas.partitions import Partitions

R = TypeVar("R")

_MINUTE_MS: Final = 60_000


class CoordinatorRuntime(Generic[S]):
    """The shards of one coordinator topic, by partition."""

    def __init__(
        self,
        topic: str,
        partitions: Partitions,
        new_driver: Callable[[Partition], ShardDriver[S]],
    ) -> None:
        self.topic = topic
        self._partitions = partitions
        self._new_driver = new_driver
        self._drivers: dict[int, ShardDriver[S]] = {}

    def start(self) -> None:
        """Begin to load every partition of the topic that is led here and not empty, and end the
        shards of those that are led here no more.
        """
        for index, driver in list(self._drivers.items()):
            if self._partitions.find(self.topic, index) is not driver.partition:
                del self._drivers[index]
                driver.close()
        for index, partition in enumerate(self._partitions.by_name.get(self.topic, ())):
            if partition is not None and partition.log.log_end_offset > 0:
                self._driver(index, partition)

    def run(
        self,
        index: int,
        operation: Callable[[S, Instant], Result[R]],
        reply: Deferred[R] | None = None,
    ) -> Deferred[R]:
        """Run an operation on the shard of a partition; see :meth:`ShardDriver.run`."""
        try:
            partition = self._partitions.get(self.topic, index)
        except KafkaError as error:
            refused: Deferred[R] = Deferred() if reply is None else reply
            refused.fail(_not_here(error))
            return refused
        return self._driver(index, partition).run(operation, reply)

    def run_on_all(self, operation: Callable[[S, Instant], Result[R]]) -> list[Deferred[R]]:
        """Run an operation on every shard that has begun."""
        return [driver.run(operation) for driver in self.open_drivers()]

    def open_drivers(self) -> Iterator[ShardDriver[S]]:
        """Yield the shards that load or serve."""
        for driver in list(self._drivers.values()):
            if driver.state is not State.CLOSED:
                yield driver

    def stop(self) -> None:
        """End every shard."""
        for driver in self._drivers.values():
            driver.close()
        self._drivers.clear()

    def _driver(self, index: int, partition: Partition) -> ShardDriver[S]:
        driver = self._drivers.get(index)
        if driver is None or driver.partition is not partition:
            if driver is not None:
                driver.close()
            driver = self._drivers[index] = self._new_driver(partition)
            driver.start()
        return driver


class GroupCoordinatorRuntime:
    """Brings requests about groups to their shards. ``new_id`` makes unique texts.

    Every method answers with a Deferred that fails with a KafkaError when the coordinator is not
    here, is loading, or could not write.
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
    ) -> None:
        self._config = config
        self._clock = clock
        self._offload = offload
        self._metadata = metadata
        self._new_id = new_id
        self._settings = GroupSettings(
            min_session_timeout_ms=config.group_min_session_timeout_ms,
            max_session_timeout_ms=config.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            max_size=config.group_max_size,
            offset_metadata_max_bytes=config.offset_metadata_max_bytes,
            offsets_retention_ms=config.offsets_retention_minutes * _MINUTE_MS,
        )
        self._runtime: CoordinatorRuntime[GroupCoordinator] = CoordinatorRuntime(
            GROUP_METADATA_TOPIC, partitions, self._new_driver
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

    def topic_changed(self, image: TopicImage, *, created: bool) -> None:
        """Begin the shards of partitions that this broker came to lead with records in them, and
        end those of partitions that it leads no more.
        """
        if image.name == GROUP_METADATA_TOPIC and not created:
            self._runtime.start()

    def config_changed(self, image: TopicImage) -> None:
        """Shards read their partition's settings as they go."""

    def topic_deleted(self, image: TopicImage) -> None:
        """Forget the offsets that groups committed in a topic."""
        if image.name == GROUP_METADATA_TOPIC:
            self._runtime.stop()
            return
        deleted = [(image.name, image.topic_id)]
        for driver in self._runtime.open_drivers():
            driver.run_once_loaded(lambda shard, _: shard.forget_topics(deleted))

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
        return self._run(
            request.group_id,
            lambda shard, now: shard.join_group(request, caller, new_id, reply, now),
            reply,
        )

    def sync_group(self, request: SyncGroupRequest) -> Deferred[SyncGroupResponse]:
        """Answer once the leader's assignment is stored."""
        reply: Deferred[SyncGroupResponse] = Deferred()
        return self._run(
            request.group_id, lambda shard, now: shard.sync_group(request, reply, now), reply
        )

    def heartbeat(self, request: HeartbeatRequest) -> Deferred[HeartbeatResponse]:
        """Renew a member's session."""
        return self._run(request.group_id, lambda shard, now: shard.heartbeat(request, now))

    def leave_group(self, request: LeaveGroupRequest) -> Deferred[LeaveGroupResponse]:
        """Let members go; ``request.members`` names them in every version."""
        return self._run(request.group_id, lambda shard, now: shard.leave_group(request, now))

    # Offsets

    def commit_offsets(
        self, request: OffsetCommitRequest, version: int
    ) -> Deferred[OffsetCommitResponse]:
        """Store offsets of partitions that exist."""
        return self._run(
            request.group_id, lambda shard, now: shard.commit_offsets(request, version, now)
        )

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> Deferred[OffsetFetchResponseGroup]:
        """Return what a group committed."""
        return self._run(
            request.group_id,
            lambda shard, _: shard.fetch_offsets(request, require_stable=require_stable),
        )

    def delete_offsets(self, request: OffsetDeleteRequest) -> Deferred[OffsetDeleteResponse]:
        """Forget offsets of partitions that no member reads."""
        return self._run(request.group_id, lambda shard, _: shard.delete_offsets(request))

    # Administration

    def describe_group(self, group_id: str, version: int) -> Deferred[DescribedGroup]:
        """Return a group's state and members."""
        return self._run(group_id, lambda shard, _: shard.describe_group(group_id, version))

    def list_groups(
        self, *, states: list[str], types: list[str]
    ) -> list[Deferred[list[ListedGroup]]]:
        """Return the groups of every shard here."""
        return self._runtime.run_on_all(
            lambda shard, _: shard.list_groups(states=states, types=types)
        )

    def delete_group(self, group_id: str) -> Deferred[DeletableGroupResult]:
        """Forget a group without members, and its offsets."""
        return self._run(group_id, lambda shard, _: shard.delete_group(group_id))

    # Inner workings

    def _run(
        self,
        group_id: str,
        operation: Callable[[GroupCoordinator, Instant], Result[R]],
        reply: Deferred[R] | None = None,
    ) -> Deferred[R]:
        return self._runtime.run(self.partition_for(group_id), operation, reply)

    def _new_driver(self, partition: Partition) -> ShardDriver[GroupCoordinator]:
        max_batch_bytes = partition.log.config.max_message_bytes
        settings = replace(self._settings, max_batch_bytes=max_batch_bytes)
        return ShardDriver(
            partition,
            lambda: GroupCoordinator(settings),
            options=BatchOptions(codec=Codec(self._config.offsets_topic_compression_codec)),
            clock=self._clock,
            offload=self._offload,
            commit_timeout_ms=self._config.offsets_commit_timeout_ms,
        )

    def _schedule_expiry(self) -> None:
        interval_ms = self._config.offsets_retention_check_interval_ms
        self._expiry_timer = self._clock.call_later(interval_ms, self._expire_offsets)

    def _expire_offsets(self) -> None:
        self._schedule_expiry()
        pending = self._runtime.open_drivers()

        def next_shard() -> None:
            # One shard in each turn of the loop: others get their turns in between.
            driver = next(pending, None)
            if driver is not None:
                driver.run(lambda shard, now: shard.expire_offsets(now))
                self._clock.call_soon(next_shard)

        next_shard()


def _not_here(error: KafkaError) -> KafkaError:
    """Return what a client hears who asks for a partition that is not led here."""
    if error.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return KafkaError(ErrorCode.NOT_COORDINATOR)
    return coordinator_error(error)
