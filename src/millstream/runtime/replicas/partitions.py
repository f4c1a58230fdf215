"""The partitions that this broker keeps, by topic name and by topic id.

The controller's decisions come in as topic images (`BrokerStateListener`); here they become open
logs, roles, changed settings and deleted directories. What a state asks of this broker:

=======================  =======================================================================
this broker leads        lead from the log end on; alone when it is the only replica
it is another replica    follow the leader, or wait for one
it is no replica         delete the log, if there is one
=======================  =======================================================================

States come again and again and may come late: one that is not newer than the last changes nothing
but settings.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from millstream.config.topic import TopicConfig
from millstream.model.broker import BrokerId
from millstream.model.clock import Clock
from millstream.model.errors import ErrorCode, KafkaError, StorageError
from millstream.model.leadership import NO_LEADER, LeaderRecoveryState, PartitionState
from millstream.model.topic import TopicId, TopicPartition
from millstream.runtime.metadata.metadata_cache import MetadataCache, TopicImage
from millstream.runtime.offload import Offload
from millstream.runtime.replicas.admission import Preparer
from millstream.runtime.replicas.flusher import Flusher
from millstream.runtime.replicas.leader_role import newer
from millstream.runtime.replicas.partition import Partition
from millstream.storage.log import Log
from millstream.storage.log_manager import LogManager

if TYPE_CHECKING:  # a broker on its own has no followers, and follows nobody
    from millstream.runtime.replicas.replica_manager import ReplicaManager
    from millstream.runtime.replicas.transaction_verification import TransactionVerifier

log = logging.getLogger(__name__)

OPENED_AT_ONCE: Final = 20
"""Replicas that follow that are opened before the loop serves others; each takes about a
millisecond."""

_Slots = list[Partition | None]


class Partitions:
    """Open partitions, by topic; a slot is None where the partition is led elsewhere or its disk is
    gone. Replicas that follow are kept beside.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        *,
        clock: Clock,
        offload: Offload,
        log_manager: LogManager,
        metadata: MetadataCache,
        on_directory_failed: Callable[[str], None],
        new_verifier: Callable[[], TransactionVerifier] | None = None,
    ) -> None:
        self._broker_id = broker_id
        self.clock = clock
        self.offload = offload
        self._log_manager = log_manager
        self.metadata = metadata
        self._on_directory_failed = on_directory_failed
        self.preparer = Preparer(offload, new_verifier=new_verifier)
        self.flusher = Flusher(clock, offload, self.storage_failed)
        self.replicas: ReplicaManager | None = None
        """What partitions with more than one replica need; a broker on its own has none."""
        self._offline: set[TopicPartition] = set()
        self._hosted: dict[TopicPartition, Partition] = {}
        self._states: dict[TopicPartition, PartitionState] = {}
        self._configs: dict[str, TopicConfig] = {}
        """The settings in force, by topic name."""
        self.elections = 0
        """Elections of leaders that this broker has heard of, of all partitions of the cluster."""
        self.unclean_elections = 0
        """Those whose leader was not known to hold all that was committed."""
        self._to_open: dict[TopicPartition, bool] = {}
        """Replicas that are still to be opened, and whether they are new."""
        self.by_name: dict[str, _Slots] = {}
        """Partitions led here by topic name, then index. Read on the produce and fetch paths."""
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

    @property
    def offline(self) -> frozenset[TopicPartition]:
        """Replicas that cannot be served: their log directory has failed, or their log."""
        return frozenset(self._offline)

    def replica(self, topic: str, index: int) -> Partition | None:
        """Return the replica kept here, whether it leads or follows, or None."""
        return self._hosted.get(TopicPartition(topic, index))

    def __iter__(self) -> Iterator[Partition]:
        """Yield every replica kept here."""
        return iter(tuple(self._hosted.values()))

    # What the controller says

    def topic_changed(self, image: TopicImage, *, created: bool) -> None:
        """Open what is new in the image, take over roles, leader epochs and settings."""
        image = self._with_settings_in_force(image)
        slots = self.by_name.get(image.name)
        if slots is not None and self.by_id.get(image.topic_id) is not slots:
            self._forget_namesake(image)
            slots = None
        was_open = slots is not None
        if slots is None:
            slots = self.by_name[image.name] = []
            self.by_id[image.topic_id] = slots
        for index, state in enumerate(image.partitions):
            is_new = False
            if index == len(slots):
                is_new = created or was_open
                slots.append(None)
            self._take_state(image, index, state, is_new=is_new)
        if created:
            log.info("topic %s, partitions: %d", image.name, len(image.partitions))

    def _with_settings_in_force(self, image: TopicImage) -> TopicImage:
        """Return the image with the settings object that the topic's partitions have, where its own
        has the same values: every change of a partition brings the settings of its topic anew, and
        to apply them costs something for each segment.
        """
        known = self._configs.get(image.name)
        if known is image.config:
            return image
        if known is not None and known.same_values(image.config):
            return replace(image, config=known)
        self._configs[image.name] = image.config
        return image

    def _take_state(
        self, image: TopicImage, index: int, state: PartitionState, *, is_new: bool
    ) -> None:
        topic_partition = TopicPartition(image.name, index)
        known = self._states.get(topic_partition)
        partition = self._hosted.get(topic_partition)
        if known is not None and not newer(state, known):
            if partition is not None:
                partition.set_config(image.config)
                return
            if newer(known, state):
                return
        self._states[topic_partition] = state
        if known is not None:
            self._count_election(known, state)
        if self._broker_id not in state.replicas:
            self._discard(topic_partition, is_hosted=partition is not None)
            return
        if topic_partition in self._offline:
            return
        if partition is None:
            if state.leader != self._broker_id:
                self._open_later(topic_partition, is_new=is_new)
                return
            partition = self._open(image, index, is_new=is_new)
        else:
            partition.set_config(image.config)
        if partition is not None:
            self._take_role(image, index, partition, state)

    def _count_election(self, before: PartitionState, after: PartitionState) -> None:
        if after.leader != NO_LEADER and after.leader_epoch > before.leader_epoch:
            self.elections += 1
            self.unclean_elections += after.leader_recovery_state is LeaderRecoveryState.RECOVERING

    def _open_later(self, topic_partition: TopicPartition, *, is_new: bool) -> None:
        """Open a replica that follows a little later: a topic may have thousands, each makes
        files, and the loop has others to serve.
        """
        if self.replicas is None:
            return  # led elsewhere, and nobody here follows
        if not self._to_open:
            self.clock.call_soon(self._open_some)
        self._to_open[topic_partition] = is_new

    def _open_some(self) -> None:
        for topic_partition in list(itertools.islice(self._to_open, OPENED_AT_ONCE)):
            is_new = self._to_open.pop(topic_partition)
            image = self.metadata.topic(topic_partition.topic)
            state = self._states.get(topic_partition)
            wanted = state is not None and self._broker_id in state.replicas
            if image is None or topic_partition in self._hosted or not wanted:
                continue
            assert state is not None
            partition = self._open(image, topic_partition.partition, is_new=is_new)
            if partition is not None:
                self._take_role(image, topic_partition.partition, partition, state)
        if self._to_open:
            self.clock.call_soon(self._open_some)

    def _take_role(
        self, image: TopicImage, index: int, partition: Partition, state: PartitionState
    ) -> None:
        """Give a partition that is open the role that its state asks for."""
        slots = self.by_name[image.name]
        try:
            if state.leader == self._broker_id:
                if partition.following is not None:
                    partition = self._resign(partition, image)
                self._lead(partition, state, is_new=slots[index] is not partition)
                slots[index] = partition
            elif self.replicas is not None and not _follows(partition, state):
                if slots[index] is partition or partition.following is not None:
                    partition = self._resign(partition, image)
                self.replicas.follow(partition, state)
        except StorageError as error:
            self.storage_failed(error)
        except KafkaError as error:
            self._drop(partition, error)
            log.error("%s is not led here: %s", partition.topic_partition, error)

    def _lead(self, partition: Partition, state: PartitionState, *, is_new: bool) -> None:
        if self.replicas is not None and (partition.leading is not None or not state.is_alone):
            if is_new:
                _refuse_damaged(partition)
            self.replicas.lead(partition, state)
            return
        partition.leader_epoch = state.leader_epoch
        if is_new:
            partition.lead_alone()

    def _resign(self, partition: Partition, image: TopicImage) -> Partition:
        """End the role of a partition and begin anew with its log.

        Everybody who waits for it is refused: it leads no more, or begins to lead.
        """
        topic_partition = partition.topic_partition
        self._drop(partition, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        successor = self._around(partition.log, image, topic_partition.partition)
        successor.take_over(partition)
        self._hosted[topic_partition] = successor
        return successor

    def _drop(self, partition: Partition, error: KafkaError) -> None:
        """Take a partition out of every list and answer everybody who waits for it."""
        self._hosted.pop(partition.topic_partition, None)
        self._withdraw(partition)
        partition.fail(error)

    def _withdraw(self, partition: Partition) -> None:
        topic, index = partition.topic_partition.topic, partition.topic_partition.partition
        slots = self.by_name.get(topic)
        if slots is not None and slots[index] is partition:
            slots[index] = None
        self.flusher.forget(partition)
        if self.replicas is not None:
            self.replicas.leave(partition)

    def _discard(self, topic_partition: TopicPartition, *, is_hosted: bool) -> None:
        """Part with a replica that was reassigned away: at once to deletion when it was served
        here, to be looked at by somebody when it was found at the start.
        """
        partition = self._hosted.get(topic_partition)
        if partition is not None:
            self._drop(partition, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        is_gone = self._log_manager.get(topic_partition) is None
        try:
            if is_hosted or is_gone:  # of one that is gone with its directory a copy may be left
                self._log_manager.delete(topic_partition, now_ms=self.clock.now_ms())
            else:
                log.warning("%s is not kept here any more: put aside as stray", topic_partition)
                self._log_manager.mark_stray(topic_partition)
        except StorageError as error:
            self.storage_failed(error)

    def _forget_namesake(self, image: TopicImage) -> None:
        """Delete a topic whose deletion was missed: another one has its name now."""
        for topic_id, slots in list(self.by_id.items()):
            if slots is self.by_name.get(image.name):
                older = TopicImage(image.name, topic_id, image.partitions, image.config)
                self.topic_deleted(older)

    def topic_deleted(self, image: TopicImage) -> None:
        """Close the partitions and give their directories to deletion."""
        slots = self.by_name.pop(image.name, [])
        self.by_id.pop(image.topic_id, None)
        self._configs.pop(image.name, None)
        gone = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        now_ms = self.clock.now_ms()
        known = [
            TopicPartition(image.name, index)
            for index in range(max(len(slots), len(image.partitions)))
        ]
        for topic_partition in known or self._logs_of(image):
            self._offline.discard(topic_partition)
            self._states.pop(topic_partition, None)
            partition = self._hosted.get(topic_partition)
            if partition is not None:
                self._drop(partition, gone)
            # A log that was found at the start may not have been opened yet: it goes all the same,
            # or the next topic of this name could not be kept here.
            # Of a log that is gone with its directory a copy may be left, which was on its way.
            kept = self._log_manager.get(topic_partition) or self._log_manager.future_logs.get(
                topic_partition
            )
            if kept is None or kept.topic_id not in (None, image.topic_id):
                continue
            try:
                self._log_manager.delete(topic_partition, now_ms=now_ms)
            except StorageError as error:
                self.storage_failed(error)

    def _logs_of(self, image: TopicImage) -> list[TopicPartition]:
        return [
            each.topic_partition
            for each in self._log_manager.logs()
            if each.topic_partition.topic == image.name and each.topic_id == image.topic_id
        ]

    def config_changed(self, image: TopicImage) -> None:
        """Take over a topic's changed settings."""
        image = self._with_settings_in_force(image)
        for index in range(len(self.by_name.get(image.name, ()))):
            partition = self._hosted.get(TopicPartition(image.name, index))
            if partition is not None:
                partition.set_config(image.config)

    def _open(self, image: TopicImage, index: int, *, is_new: bool) -> Partition | None:
        topic_partition = TopicPartition(image.name, index)
        try:
            found = self._log_manager.get(topic_partition)
            if found is not None and found.topic_id not in (None, image.topic_id):
                # The controller knows one topic of a name: the other one was deleted unheard of.
                log.warning("%s is of another topic: put aside as stray", found.directory)
                self._log_manager.mark_stray(topic_partition)
            opened = self._log_manager.get_or_create(
                topic_partition,
                image.topic_id,
                image.config,
                now_ms=self.clock.now_ms(),
                is_new=is_new,
            )
        except StorageError as error:
            self._offline.add(topic_partition)
            if error.directory in self._log_manager.directories:
                self.storage_failed(error)
        except KafkaError as error:
            self._offline.add(topic_partition)
            log.warning("%s is not served: %s", topic_partition, error)
        else:
            partition = self._hosted[topic_partition] = self._around(opened, image, index)
            return partition
        return None

    def _around(self, opened: Log, image: TopicImage, index: int) -> Partition:
        return Partition(
            opened,
            topic_id=image.topic_id,
            leader_epoch=image.partitions[index].leader_epoch,
            config=image.config,
            clock=self.clock,
            preparer=self.preparer,
            request_flush=self.flusher.request,
            on_storage_error=self.storage_failed,
        )

    def stop(self) -> None:
        """Answer everybody who waits: this broker leads no more."""
        self._to_open.clear()
        if self.replicas is not None:
            self.replicas.stop()
        error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for partition in self:
            partition.fail(error)

    def storage_failed(self, error: StorageError) -> None:
        """Take a log directory offline: what lies there is led by nobody until it comes back."""
        log.error("log directory offline: %s", error)
        self._log_manager.directory_failed(error.directory, lost_writes=not error.is_full)
        failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        lost = [each for each in self if each.log.log_directory == error.directory]
        for partition in lost:
            del self._hosted[partition.topic_partition]
            self._withdraw(partition)
            self._offline.add(partition.topic_partition)
        # Nobody is told before all is marked: who is told may ask for another partition.
        with ExitStack() as stack:
            stack.callback(self._on_directory_failed, error.directory)
            for partition in reversed(lost):
                stack.callback(partition.fail, failure)

    def _refusal(self, topic: str, index: int) -> KafkaError:
        image = self.metadata.topic(topic)
        if image is None or not 0 <= index < len(image.partitions):
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if TopicPartition(topic, index) in self._offline:
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def _follows(partition: Partition, state: PartitionState) -> bool:
    """Tell whether a partition follows already as its state says."""
    role = partition.following
    return (
        role is not None
        and role.machine.leader == state.leader
        and role.machine.leader_epoch == state.leader_epoch
    )


def is_damaged(partition: Partition) -> bool:
    """True for a log in whose middle recovery found damage, until it has followed: what it lacks
    was written once, and others may have it.
    """
    report = partition.log.recovery_report
    was_cut = report.truncated_at is not None and not report.is_torn_tail
    return was_cut and not partition.has_followed


def _refuse_damaged(partition: Partition) -> None:
    """Refuse to lead with a log that lacks records."""
    if is_damaged(partition):
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "its log was damaged in the middle")
