"""The share partitions that this broker leads, and the sessions of their consumers.

Kafka: ``SharePartitionManager``, ``SharePartitionCache``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakValueDictionary

from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.runtime.share.led_share_partition import LedSharePartition, ignore_refusal
from millstream.runtime.share.share_sessions import ShareSession, ShareSessions
from millstream.share.state import SharePartitionKey

if TYPE_CHECKING:
    from millstream.model.clock import Clock
    from millstream.model.topic import TopicId
    from millstream.runtime.metadata.metadata_cache import TopicImage
    from millstream.runtime.replicas.partition import Partition
    from millstream.runtime.replicas.partitions import Partitions
    from millstream.runtime.share.dead_letter_topics import DeadLetterTopics
    from millstream.runtime.share.persister import SharePersister
    from millstream.runtime.share.share_settings import ShareGroupSettings
    from millstream.share.acknowledgements import AcknowledgedRun


K = TypeVar("K", bound=Hashable)


class SharePartitions:
    """Share partitions by group, topic and partition. ``settings_of`` returns a group's settings.

    Made at the first request of a share consumer.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        partitions: Partitions,
        persister: SharePersister,
        settings_of: Callable[[str], ShareGroupSettings],
        dead_letters: DeadLetterTopics,
        max_sessions: Callable[[], int],
    ) -> None:
        self.clock = clock
        self.partitions = partitions
        self.settings_of = settings_of
        self.sessions = ShareSessions(max_sessions, self._session_ended)
        self._persister = persister
        self._dead_letters = dead_letters
        self._led: dict[SharePartitionKey, LedSharePartition] = {}
        self._of_topic: dict[TopicId, set[SharePartitionKey]] = {}
        self._of_group: dict[str, set[SharePartitionKey]] = {}
        self._dropped: WeakValueDictionary[SharePartitionKey, LedSharePartition] = (
            WeakValueDictionary()
        )
        """Those that were dropped last, and still write dead letters."""

    def __len__(self) -> int:
        return len(self._led)

    def find_or_load(self, key: SharePartitionKey) -> LedSharePartition:
        """Return a share partition, which may still have to read its state.

        Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER,
        KAFKA_STORAGE_ERROR.
        """
        partition = self._partition(key)
        led = self._led.get(key)
        if led is not None:
            if led.partition is partition:
                return led
            self.drop(led)
        dropped = self._dropped.pop(key, None)
        if dropped is not None:
            dropped.supersede()
        led = LedSharePartition(
            key,
            partition,
            clock=self.clock,
            persister=self._persister,
            settings=lambda: self.settings_of(key.group_id),
            dead_letters=self._dead_letters,
            on_fenced=self.drop,
        )
        self._led[key] = led
        self._of_topic.setdefault(key.topic_id, set()).add(key)
        self._of_group.setdefault(key.group_id, set()).add(key)
        led.load()
        return led

    def acknowledge(
        self, key: SharePartitionKey, member_id: str, runs: Sequence[AcknowledgedRun]
    ) -> Deferred[None]:
        """Take a member's acknowledgements; fails with a KafkaError, UNKNOWN_TOPIC_OR_PARTITION if
        nobody has fetched from the share partition here, as with Kafka.
        """
        led = self._loaded(key)
        if led is None:
            refused: Deferred[None] = Deferred()
            text = "Nobody has fetched from the share partition here."
            refused.fail(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text))
            return refused
        return led.acknowledge(member_id, runs)

    def drop(self, led: LedSharePartition) -> None:
        """Forget a share partition; its state is at its coordinator."""
        key = led.key
        if self._led.get(key) is led:
            del self._led[key]
            _discard(self._of_topic, key.topic_id, key)
            _discard(self._of_group, key.group_id, key)
            self._dropped[key] = led
        led.drop()

    def topic_changed(self, image: TopicImage) -> None:
        """Drop what is not led here any more."""
        for key in tuple(self._of_topic.get(image.topic_id, ())):
            if self._led[key].partition.is_gone:
                self.drop(self._led[key])

    def forget_all(self) -> None:
        """End every session and drop everything: share groups are switched off.

        Kafka: ``SharePartitionManager.onShareVersionToggle``.
        """
        self.sessions.forget_all()
        self.stop()

    def stop(self) -> None:
        """Drop everything, with its timers."""
        for led in tuple(self._led.values()):
            self.drop(led)

    def _partition(self, key: SharePartitionKey) -> Partition:
        slots = self.partitions.by_id.get(key.topic_id)
        if slots is not None and 0 <= key.partition < len(slots):
            partition = slots[key.partition]
            if partition is not None:
                return partition
        image = self.partitions.metadata.topic_by_id(key.topic_id)
        if image is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self.partitions.get(image.name, key.partition)

    def _loaded(self, key: SharePartitionKey) -> LedSharePartition | None:
        led = self._led.get(key)
        if led is None or led.machine is None:
            return None
        if led.partition.is_gone:
            self.drop(led)
            return None
        return led

    def _session_ended(self, session: ShareSession, is_last: bool) -> None:
        group_id, member_id = session.key
        keys = tuple(self._of_group.get(group_id, ()))
        for key in keys:
            led = self._loaded(key)
            if led is not None:
                led.release(member_id).on_done(ignore_refusal)
        if is_last:
            # Reads of the next consumers follow these writes: see the persister.
            for key in keys:
                if key in self._led:
                    self.drop(self._led[key])


def _discard(index: dict[K, set[SharePartitionKey]], name: K, key: SharePartitionKey) -> None:
    keys = index[name]
    keys.discard(key)
    if not keys:
        del index[name]
