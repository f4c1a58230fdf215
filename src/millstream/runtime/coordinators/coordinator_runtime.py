"""The shards of one coordinator that this broker runs: one for each partition of its topic that
it leads.

The shard of a partition is begun when the broker starts (:meth:`CoordinatorRuntime.start`), when
the broker comes to lead the partition or when it is first asked for; until its records are replayed
it answers COORDINATOR_LOAD_IN_PROGRESS. It ends when the partition is led elsewhere: everybody who
waits hears NOT_COORDINATOR and finds the other broker. Nothing here knows what a shard coordinates:
its state machine (``coordinator_shard.Shard``) and its records do. Kafka: ``CoordinatorRuntime``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

from millstream.coordinator.result import (
    Instant,
    Result,
    TopicChange,
    TransactionEnd,
    TransactionProducer,
)
from millstream.model.clock import Clock, TimerHandle
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.producer import NO_SEQUENCE
from millstream.records.builder import BatchOptions
from millstream.runtime.coordinators.coordinator_shard import ShardDriver, State
from millstream.runtime.coordinators.coordinator_writes import (
    Verification,
    coordinator_error,
)
from millstream.runtime.coordinators.outlets import Outlets
from millstream.runtime.coordinators.shard import S
from millstream.runtime.metadata.metadata_cache import TopicImage
from millstream.runtime.offload import Offload
from millstream.runtime.replicas.partition import Partition
from millstream.runtime.replicas.partitions import Partitions
from millstream.runtime.replicas.transaction_verification import TransactionalProducer

R = TypeVar("R")

LOOK_MS: Final = 500.0
"""How often every shard looks whether its partition may still be spoken for and written to."""


class CoordinatorRuntime(Generic[S]):
    """The shards of one coordinator topic, by partition.

    ``new_shard`` makes an empty state machine for a partition; ``options`` are those of the batches
    it writes; ``outlets`` take what its operations ask of partitions' leaders.
    """

    def __init__(
        self,
        topic: str,
        new_shard: Callable[[Partition], S],
        *,
        partitions: Partitions,
        clock: Clock,
        offload: Offload,
        options: BatchOptions,
        commit_timeout_ms: int,
        outlets: Outlets,
    ) -> None:
        self.topic = topic
        self._new_shard = new_shard
        self._partitions = partitions
        self._clock = clock
        self._offload = offload
        self._options = options
        self._commit_timeout_ms = commit_timeout_ms
        self._outlets = outlets
        self._drivers: dict[int, ShardDriver[S]] = {}
        self._look_timer: TimerHandle | None = None
        self._shapes: dict[str, int] = {}
        """By topic, a hash of what shards were told of it last."""

    def start(self) -> None:
        """Begin to load every partition of the topic that is led here and not empty, and end the
        shards of those that are led here no more.
        """
        for index, driver in list(self._drivers.items()):
            if self._partitions.find(self.topic, index) is not driver.partition:
                del self._drivers[index]
                driver.close()
        for index, partition in enumerate(self._partitions.by_name.get(self.topic, ())):
            if partition is not None and partition.log_end_offset > 0:
                self._driver(index, partition)

    def write(
        self,
        index: int,
        operation: Callable[[S, Instant], Result[R]],
        reply: Deferred[R] | None = None,
    ) -> Deferred[R]:
        """Run an operation that may make records; see :meth:`ShardDriver.write`."""
        reply = Deferred() if reply is None else reply
        try:
            driver = self._driver(index, self._partitions.get(self.topic, index))
        except KafkaError as error:
            reply.fail(_not_here(error))
            return reply
        return driver.write(operation, reply)

    def write_transactional(
        self,
        index: int,
        producer: TransactionalProducer,
        operation: Callable[[S, Instant], Result[R]],
    ) -> Deferred[R]:
        """Run an operation in a transaction, once the partition is verified to belong to it.

        Fails as :meth:`ShardDriver.write_transactional` does, and as
        :meth:`TransactionVerifier.verify` says.
        """
        return spawn(self._verify_and_write(index, producer, operation))

    async def _verify_and_write(
        self,
        index: int,
        producer: TransactionalProducer,
        operation: Callable[[S, Instant], Result[R]],
    ) -> R:
        try:
            partition = self._partitions.get(self.topic, index)
            verification = partition.waiting_appends.transactions.verification
            state = None
            if verification.is_needed(producer):
                state = await verification.begin(producer, NO_SEQUENCE)
            driver = self._driver(index, self._partitions.get(self.topic, index))
        except KafkaError as error:
            raise _not_here(error) from error
        return await driver.write_transactional(
            TransactionProducer(producer.producer_id, producer.producer_epoch),
            Verification(state, verification.verifier.is_required),
            operation,
        )

    def end_transaction(self, index: int, end: TransactionEnd) -> Deferred[None]:
        """End a producer's transaction; see :meth:`ShardDriver.end_transaction`."""
        try:
            driver = self._driver(index, self._partitions.get(self.topic, index))
        except KafkaError as error:
            return _refused(error)
        return driver.end_transaction(end)

    def read(self, index: int, operation: Callable[[S, Instant], Result[R]]) -> Deferred[R]:
        """Run an operation that makes no records; see :meth:`ShardDriver.read`."""
        try:
            driver = self._driver(index, self._partitions.get(self.topic, index))
        except KafkaError as error:
            return _refused(error)
        return driver.read(operation)

    def settled_shard(self, index: int) -> S | None:
        """Return the state machine of a partition, where an operation that makes no records would
        be answered at once; see :attr:`ShardDriver.settled_shard`.
        """
        driver = self._drivers.get(index)
        if driver is None or driver.partition is not self._partitions.find(self.topic, index):
            return None
        return driver.settled_shard

    def read_all(self, operation: Callable[[S, Instant], Result[R]]) -> list[Deferred[R]]:
        """Run an operation that makes no records on every shard that has begun."""
        return [driver.read(operation) for driver in self.open_drivers()]

    def topic_changed(self, image: TopicImage, *, created: bool) -> None:
        """Take note of a topic that was created or has changed.

        Of the coordinator's own topic: begin the shards of partitions that this broker came to lead
        with records in them, and end those of partitions that it leads no more.
        """
        if image.name == self.topic:
            if not created:
                self.start()
        elif self._has_new_shape(image):
            change = TopicChange(image.name, image.topic_id, deleted=False, created=created)
            self._tell_shards(change)

    def topic_deleted(self, image: TopicImage) -> None:
        """Take note that a topic was deleted; without its own topic a coordinator has no shards."""
        if image.name == self.topic:
            self.stop()
        else:
            self._shapes.pop(image.name, None)
            self._tell_shards(TopicChange(image.name, image.topic_id, deleted=True))

    def _has_new_shape(self, image: TopicImage) -> bool:
        """True if a topic's partitions or their replicas differ from what the shards were told
        last. New leaders and in-sync replicas do not concern them.
        """
        shape = hash((image.topic_id, tuple(part.replicas for part in image.partitions)))
        is_new = self._shapes.get(image.name) != shape
        self._shapes[image.name] = shape
        return is_new

    def _tell_shards(self, change: TopicChange) -> None:
        for driver in self.open_drivers():
            driver.write_when_possible(lambda shard, now: shard.topic_changed(change, now))

    def open_drivers(self) -> Iterator[ShardDriver[S]]:
        """Yield the shards that load or serve."""
        for driver in list(self._drivers.values()):
            if driver.state is not State.CLOSED:
                yield driver

    def describe_shards(self) -> Iterator[str]:
        """Yield the partitions that load or do not serve, each with what it waits for."""
        for index, driver in sorted(self._drivers.items()):
            waits = driver.waits_for
            if waits:
                yield f"{self.topic}-{index}: {waits}"

    def active_shards(self) -> Iterator[S]:
        """Yield the state machines that serve, to be looked at."""
        for driver in self.open_drivers():
            shard = driver.active_shard
            if shard is not None:
                yield shard

    def stop(self) -> None:
        """End every shard."""
        if self._look_timer is not None:
            self._look_timer.cancel()
            self._look_timer = None
        for driver in self._drivers.values():
            driver.close()
        self._drivers.clear()

    def _driver(self, index: int, partition: Partition) -> ShardDriver[S]:
        driver = self._drivers.get(index)
        if driver is None or driver.partition is not partition:
            if driver is not None:
                driver.close()
            driver = self._drivers[index] = ShardDriver(
                partition,
                lambda: self._new_shard(partition),
                options=self._options,
                clock=self._clock,
                offload=self._offload,
                commit_timeout_ms=self._commit_timeout_ms,
                outlets=self._outlets,
            )
            if self._look_timer is None:
                self._look_later()
            driver.start()
        return driver

    def _look_later(self) -> None:
        self._look_timer = self._clock.call_later(LOOK_MS, self._look)

    def _look(self) -> None:
        self._look_later()
        for driver in self.open_drivers():
            driver.look()


def _refused(error: KafkaError) -> Deferred[R]:
    refused: Deferred[R] = Deferred()
    refused.fail(_not_here(error))
    return refused


def _not_here(error: KafkaError) -> KafkaError:
    """Return what a client hears who asks for a partition that is not led here."""
    if error.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return KafkaError(ErrorCode.NOT_COORDINATOR)
    return coordinator_error(error)
