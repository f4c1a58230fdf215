"""The partitions that this broker keeps, by topic name and by topic id.

The controller's decisions come in as topic images (`BrokerStateListener`); here they become open
logs, new leader epochs, changed settings and deleted directories.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from millstream.model.broker import BrokerId
from millstream.model.clock import Clock
from millstream.model.errors import ErrorCode, KafkaError, StorageError
from millstream.model.topic import TopicId, TopicPartition
from millstream.runtime.flusher import Flusher
from millstream.runtime.metadata_cache import MetadataCache, TopicImage
from millstream.runtime.offload import Offload
from millstream.runtime.partition import Partition
from millstream.storage.log_manager import LogManager

log = logging.getLogger(__name__)

_Slots = list[Partition | None]


class Partitions:
    """Open partitions; a slot is None where the partition is led elsewhere or its disk is gone."""

    def __init__(
        self,
        broker_id: BrokerId,
        *,
        clock: Clock,
        offload: Offload,
        log_manager: LogManager,
        metadata: MetadataCache,
        on_directory_failed: Callable[[str], None],
    ) -> None:
        self._broker_id = broker_id
        self._clock = clock
        self._offload = offload
        self._log_manager = log_manager
        self._metadata = metadata
        self._on_directory_failed = on_directory_failed
        self.flusher = Flusher(clock, offload, self.storage_failed)
        self._offline: set[TopicPartition] = set()
        self.by_name: dict[str, _Slots] = {}
        """Partitions by topic name, then index. Read on the produce and fetch paths."""
        self.by_id: dict[TopicId, _Slots] = {}
        """The same lists by topic id."""

    def get(self, topic: str, index: int) -> Partition:
        """Return a partition led here, or raise the KafkaError that says why there is none."""
        slots = self.by_name.get(topic)
        if slots is not None and 0 <= index < len(slots):
            partition = slots[index]
            if partition is not None:
                return partition
        raise self._refusal(topic, index)

    def find(self, topic: str, index: int) -> Partition | None:
        """Return a partition led here, or None."""
        slots = self.by_name.get(topic)
        return slots[index] if slots is not None and 0 <= index < len(slots) else None

    def __iter__(self) -> Iterator[Partition]:
        for slots in self.by_name.values():
            for partition in slots:
                if partition is not None:
                    yield partition

    def topic_changed(self, image: TopicImage, *, created: bool) -> None:
        """Open what is new in the image, take over leader epochs and settings."""
        slots = self.by_name.get(image.name)
        was_open = slots is not None
        if slots is None:
            slots = self.by_name[image.name] = []
            self.by_id[image.topic_id] = slots
        for index, state in enumerate(image.partitions):
            is_new = False
            if index < len(slots):
                partition = slots[index]
            else:
                partition = None
                is_new = created or was_open
                slots.append(None)
            if state.leader != self._broker_id:
                continue
            if partition is None:
                slots[index] = self._open(image, index, is_new=is_new)
            else:
                partition.leader_epoch = state.leader_epoch
                partition.set_config(image.config)
        if created:
            log.info("topic %s: %d partitions", image.name, len(image.partitions))

    def topic_deleted(self, image: TopicImage) -> None:
        """Close the partitions and give their directories to deletion."""
        slots = self.by_name.pop(image.name, [])
        self.by_id.pop(image.topic_id, None)
        gone = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        now_ms = self._clock.now_ms()
        for index, partition in enumerate(slots):
            self._offline.discard(TopicPartition(image.name, index))
            if partition is not None:
                self.flusher.forget(partition)
                partition.fail(gone)
                try:
                    self._log_manager.delete(partition.topic_partition, now_ms=now_ms)
                except StorageError as error:
                    self.storage_failed(error)

    def config_changed(self, image: TopicImage) -> None:
        """Take over a topic's changed settings."""
        for partition in self.by_name.get(image.name, ()):
            if partition is not None:
                partition.set_config(image.config)

    def _open(self, image: TopicImage, index: int, *, is_new: bool) -> Partition | None:
        topic_partition = TopicPartition(image.name, index)
        try:
            opened = self._log_manager.get_or_create(
                topic_partition,
                image.topic_id,
                image.config,
                now_ms=self._clock.now_ms(),
                is_new=is_new,
            )
            return Partition(
                opened,
                topic_id=image.topic_id,
                leader_epoch=image.partitions[index].leader_epoch,
                config=image.config,
                clock=self._clock,
                offload=self._offload,
                request_flush=self.flusher.request,
                on_storage_error=self.storage_failed,
            )
        except StorageError as error:
            self._offline.add(topic_partition)
            if error.directory in self._log_manager.directories:
                self.storage_failed(error)
        except KafkaError as error:
            self._offline.add(topic_partition)
            log.warning("%s is not served: %s", topic_partition, error)
        return None

    def stop(self) -> None:
        """Answer everybody who waits: this broker leads no more."""
        error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for partition in self:
            partition.fail(error)

    def storage_failed(self, error: StorageError) -> None:
        """Take a log directory offline: what lies there is led by nobody until it comes back."""
        log.error("log directory offline: %s", error)
        self._log_manager.directory_failed(error.directory)
        failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        lost: list[Partition] = []
        for slots in self.by_name.values():
            for index, partition in enumerate(slots):
                if partition is not None and partition.log.log_directory == error.directory:
                    slots[index] = None
                    self._offline.add(partition.topic_partition)
                    self.flusher.forget(partition)
                    lost.append(partition)
        # Nobody is told before all is marked: who is told may ask for another partition.
        with ExitStack() as stack:
            stack.callback(self._on_directory_failed, error.directory)
            for partition in reversed(lost):
                stack.callback(partition.fail, failure)

    def _refusal(self, topic: str, index: int) -> KafkaError:
        image = self._metadata.topic(topic)
        if image is None or not 0 <= index < len(image.partitions):
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if TopicPartition(topic, index) in self._offline:
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
