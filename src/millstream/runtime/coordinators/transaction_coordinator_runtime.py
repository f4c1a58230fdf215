"""The transaction coordinator that this broker runs: requests, brought to their shards.

A transactional id lives in the partition of ``__transaction_state`` that it hashes to. Running
transactions are looked through for those that took too long every
``transaction.abort.timed.out.transaction.cleanup.interval.ms``, ids for those that have expired
every ``transaction.remove.expired.transaction.cleanup.interval.ms``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import TypeAlias, TypeVar, cast

from millstream.config.broker import BrokerConfig
from millstream.coordinator.group.partitioner import group_partition
from millstream.coordinator.result import Instant, Result
from millstream.coordinator.transaction.coordinator import TransactionCoordinator
from millstream.coordinator.transaction.init_producer_id import NeedsProducerId, ProducerIdAndEpoch
from millstream.coordinator.transaction.listing import TransactionFilter
from millstream.coordinator.transaction.metadata import Partitions
from millstream.coordinator.transaction.settings import TransactionSettings
from millstream.model.broker import BrokerId
from millstream.model.clock import Clock, TimerHandle
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.features import TRANSACTION_VERSION
from millstream.model.leadership import NO_LEADER
from millstream.model.topic import TRANSACTION_STATE_TOPIC, TopicPartition
from millstream.protocol.messages import describe_transactions, list_transactions
from millstream.records.builder import BatchOptions
from millstream.runtime.coordinators.coordinator_runtime import CoordinatorRuntime
from millstream.runtime.coordinators.coordinator_shard import ShardDriver
from millstream.runtime.coordinators.outlets import MarkerWriter, Outlets, RequestSender
from millstream.runtime.metadata.metadata_cache import MetadataCache, TopicImage
from millstream.runtime.offload import Offload
from millstream.runtime.replicas.partition import Partition
from millstream.runtime.replicas.partitions import Partitions as HostedPartitions

log = logging.getLogger(__name__)

R = TypeVar("R")

_Given: TypeAlias = "ProducerIdAndEpoch | NeedsProducerId"


class MetadataView:
    """What the coordinator reads of this broker's metadata (``settings.ClusterView``)."""

    def __init__(self, metadata: MetadataCache, broker_id: BrokerId) -> None:
        self.broker_id: BrokerId | None = broker_id
        self._metadata = metadata

    @property
    def transaction_version(self) -> int:
        """The level of the feature ``transaction.version``."""
        return self._metadata.features.level(TRANSACTION_VERSION)

    def leaders_of(self, topic: str, indexes: Collection[int]) -> dict[BrokerId | None, set[int]]:
        """Return partitions by who leads them; see ``settings.ClusterView``."""
        image = self._metadata.topic(topic)
        if image is None:
            return {None: set(indexes)}
        partitions, brokers = image.partitions, self._metadata.brokers
        if len(indexes) == 1:
            (index,) = indexes
            leader = partitions[index].leader if index < len(partitions) else None
            if leader is not None and leader not in brokers:
                leader = NO_LEADER
            return {leader: {index}}
        count = len(partitions)
        found: dict[BrokerId | None, set[int]] = {}
        newest: BrokerId | None = NO_LEADER
        led = set[int]()
        for index in indexes:
            leader = partitions[index].leader if index < count else None
            if leader != newest or not led:
                newest = leader
                if leader is not None and leader not in brokers:
                    leader = NO_LEADER
                led = found.setdefault(leader, set())
            led.add(index)
        return found


class TransactionCoordinatorRuntime:
    """Brings requests about transactional ids to their shards.

    Every method answers with a Deferred that fails with a KafkaError: what the coordinator raises,
    or that it is not here, is loading, or could not write. ``new_producer_id`` returns an id that
    nobody had before; ``send_request`` sends markers to the leaders of partitions,
    ``write_markers`` writes those of partitions that are led here.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock,
        offload: Offload,
        partitions: HostedPartitions,
        metadata: MetadataCache,
        new_producer_id: Callable[[], Deferred[int]],
        send_request: RequestSender,
        write_markers: MarkerWriter,
    ) -> None:
        self._config = config
        self._clock = clock
        self._metadata = metadata
        self._view = MetadataView(metadata, config.broker)
        self._new_producer_id = new_producer_id
        self._settings = TransactionSettings(
            max_timeout_ms=config.transaction_max_timeout_ms,
            id_expiration_ms=config.transactional_id_expiration_ms,
            marker_timeout_ms=config.request_timeout_ms,
        )
        self._runtime: CoordinatorRuntime[TransactionCoordinator] = CoordinatorRuntime(
            TRANSACTION_STATE_TOPIC,
            self._new_shard,
            partitions=partitions,
            clock=clock,
            offload=offload,
            options=BatchOptions(),
            commit_timeout_ms=config.request_timeout_ms,
            outlets=Outlets(clock, send_request, write_markers),
        )
        self._timers: dict[str, TimerHandle] = {}

    # Life

    def start(self) -> None:
        """Begin to load what is there, and to look for what has timed out and what has expired."""
        self._runtime.start()
        self._repeat(
            self._config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            "timeouts",
            lambda driver: spawn(self._abort_timed_out(driver)),
        )
        self._repeat(
            self._config.transaction_remove_expired_transaction_cleanup_interval_ms,
            "expiry",
            lambda driver: driver.write(lambda shard, now: shard.expire_ids(now)),
        )

    def settle(self) -> Deferred[None]:
        """Store what lingers (``Result.is_urgent``); filled once it is committed, or cannot be."""
        # Whoever reads has it stored before the answer.
        return spawn(_all_settled(self._runtime.read_all(lambda _, __: Result(True))))

    def stop(self) -> None:
        """Answer everybody who waits, and end."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._runtime.stop()

    def active_shards(self) -> Iterator[TransactionCoordinator]:
        """Yield the coordinators of the partitions that are loaded and served here."""
        return self._runtime.active_shards()

    def describe_shards(self) -> Iterator[str]:
        """Yield the partitions that do not serve, or have something to wait for."""
        return self._runtime.describe_shards()

    def topic_changed(self, image: TopicImage, *, created: bool) -> None:
        """See :meth:`CoordinatorRuntime.topic_changed`."""
        self._runtime.topic_changed(image, created=created)

    def topic_deleted(self, image: TopicImage) -> None:
        """See :meth:`CoordinatorRuntime.topic_deleted`."""
        self._runtime.topic_deleted(image)

    def partition_for(self, transactional_id: str) -> int:
        """Return the partition of ``__transaction_state`` that keeps an id."""
        image = self._metadata.topic(TRANSACTION_STATE_TOPIC)
        count = (
            self._config.transaction_state_log_num_partitions
            if image is None
            else len(image.partitions)
        )
        return group_partition(transactional_id, count)

    # Requests of producers

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, named: ProducerIdAndEpoch | None
    ) -> Deferred[ProducerIdAndEpoch]:
        """Give a producer its id and epoch; ``named`` is what it says it has."""

        reply: Deferred[ProducerIdAndEpoch] = Deferred()

        def operation(
            shard: TransactionCoordinator, new_producer_id: int | None, now: Instant
        ) -> Result[_Given]:
            return shard.init_producer_id(
                transactional_id,
                timeout_ms,
                named,
                new_producer_id,
                cast("Deferred[_Given]", reply),
                now,
            )

        self._write_with_producer_id(transactional_id, operation, reply)
        return reply

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Partitions,
        *,
        client_version: int,
    ) -> Deferred[ErrorCode]:
        """Add partitions to a transaction; NONE once that is stored."""
        return self._write(
            transactional_id,
            lambda shard, now: shard.add_partitions(
                transactional_id, producer, partitions, client_version=client_version, now=now
            ),
        )

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Partitions
    ) -> Deferred[dict[str, dict[int, ErrorCode]]]:
        """Say which partitions are in the producer's running transaction."""
        return self._read(
            transactional_id,
            lambda shard, _: shard.verify_partitions(transactional_id, producer, partitions),
        )

    def has_partition(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition
    ) -> bool:
        """True where the coordinator is here and says at once that a partition is in the producer's
        running transaction; False says nothing.
        """
        shard = self._runtime.settled_shard(self.partition_for(transactional_id))
        return shard is not None and shard.has_partition(transactional_id, producer, partition)

    def end_transaction(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        *,
        commit: bool,
        bumps_epoch: bool,
    ) -> Deferred[ProducerIdAndEpoch]:
        """Decide a transaction; answered once that is stored, with who the producer is now."""

        reply: Deferred[ProducerIdAndEpoch] = Deferred()

        def operation(
            shard: TransactionCoordinator, new_producer_id: int | None, now: Instant
        ) -> Result[_Given]:
            return shard.end_transaction_of(
                transactional_id,
                producer,
                commit=commit,
                bumps_epoch=bumps_epoch,
                new_producer_id=new_producer_id,
                now=now,
            )

        self._write_with_producer_id(transactional_id, operation, reply)
        return reply

    # Administration

    def list_transactions(
        self, wanted: TransactionFilter
    ) -> list[Deferred[list[list_transactions.TransactionState]]]:
        """Return the transactional ids of every shard here that a filter fits."""
        return self._runtime.read_all(lambda shard, now: shard.list_transactions(wanted, now))

    def describe_transaction(
        self, transactional_id: str
    ) -> Deferred[describe_transactions.TransactionState]:
        """Return the state of an id."""
        return self._read(
            transactional_id, lambda shard, _: shard.describe_transaction(transactional_id)
        )

    # Inner workings

    def _write_with_producer_id(
        self,
        transactional_id: str,
        operation: Callable[[TransactionCoordinator, int | None, Instant], Result[_Given]],
        reply: Deferred[ProducerIdAndEpoch],
        new_producer_id: int | None = None,
    ) -> None:
        """Run an operation, and run it again with a new producer id if it asks for one: then it has
        changed nothing.
        """

        def again(taken: Deferred[int]) -> None:
            try:
                given = taken.result()
            except Exception as error:
                reply.fail(error)
            else:
                self._write_with_producer_id(transactional_id, operation, reply, given)

        def attempt(shard: TransactionCoordinator, now: Instant) -> Result[ProducerIdAndEpoch]:
            result = operation(shard, new_producer_id, now)
            if not isinstance(result.response, NeedsProducerId):
                return cast("Result[ProducerIdAndEpoch]", result)
            assert new_producer_id is None, "one new producer id is enough"
            self._new_producer_id().on_done(again)
            return Result()

        self._write(transactional_id, attempt, reply)

    async def _abort_timed_out(self, driver: ShardDriver[TransactionCoordinator]) -> None:
        """Abort what has timed out in one shard; what fails is tried again the next time."""
        try:
            exhausted = await driver.write(lambda shard, now: shard.abort_timed_out(now))
            for transactional_id in exhausted:
                await self._abort_exhausted(driver, transactional_id)
        except KafkaError as error:
            log.debug("transactions that have timed out are not aborted: %s", error)

    async def _abort_exhausted(
        self, driver: ShardDriver[TransactionCoordinator], transactional_id: str
    ) -> None:
        new_producer_id = await self._new_producer_id()
        driver.write(
            lambda shard, now: shard.abort_exhausted(transactional_id, new_producer_id, now)
        )

    def _write(
        self,
        transactional_id: str,
        operation: Callable[[TransactionCoordinator, Instant], Result[R]],
        reply: Deferred[R] | None = None,
    ) -> Deferred[R]:
        return self._runtime.write(self.partition_for(transactional_id), operation, reply)

    def _read(
        self,
        transactional_id: str,
        operation: Callable[[TransactionCoordinator, Instant], Result[R]],
    ) -> Deferred[R]:
        return self._runtime.read(self.partition_for(transactional_id), operation)

    def _new_shard(self, partition: Partition) -> TransactionCoordinator:
        return TransactionCoordinator(
            replace(self._settings, max_record_bytes=partition.config.max_message_bytes),
            self._view,
            coordinator_epoch=partition.leader_epoch,
        )

    def _repeat(
        self,
        interval_ms: int,
        name: str,
        operation: Callable[[ShardDriver[TransactionCoordinator]], Deferred[None]],
    ) -> None:
        """Run an operation on every shard each time the interval has passed."""

        def run() -> None:
            self._repeat(interval_ms, name, operation)
            pending = self._runtime.open_drivers()

            def next_shard() -> None:
                # One shard in each pass of the loop: requests are served in between.
                driver = next(pending, None)
                if driver is not None:
                    operation(driver)
                    self._clock.call_soon(next_shard)

            next_shard()

        self._timers[name] = self._clock.call_later(interval_ms, run)


async def _all_settled(outcomes: Iterable[Deferred[bool]]) -> None:
    for outcome in outcomes:
        try:
            await outcome
        except KafkaError as error:
            log.debug("what lingers is not stored: %s", error)
