"""The controller's event queue: each decision is planned, stored, then published, one at a time.

A plan is made from what the store holds, because no two events run at once. Nothing is visible to
any broker before it is in the store. Every write checks that the node `/controller_epoch` still has
the version of this controller's election: a controller that another one has followed changes
nothing more, and learns of its successor by its first write. Kafka: ``ControllerEventManager``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from millstream.controller import paths
from millstream.controller.context import TopicState
from millstream.model.broker import BrokerId
from millstream.model.clock import Clock
from millstream.model.deferred import Deferred
from millstream.model.entities import EntityChanges, EntityKind
from millstream.model.errors import ErrorCode, KafkaError, StorageError
from millstream.model.metadata_store import (
    BadVersionError,
    Check,
    ConnectionLossError,
    Create,
    MetadataStore,
    MetadataStoreError,
    Operation,
    SessionExpiredError,
    SetData,
)
from millstream.runtime.controlling.careful_writes import write_surely
from millstream.runtime.controlling.controller_state import ControllerState
from millstream.runtime.controlling.metadata_propagation import MetadataPropagation
from millstream.runtime.event_queue import Event, EventQueue
from millstream.runtime.metadata.broker_metadata import BrokerMetadata
from millstream.runtime.metadata.metadata_cache import TopicImage

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_MULTI_BYTES: Final = 600_000
"""ZooKeeper refuses requests beyond `jute.maxbuffer`, 1 MiB unless set: larger plans are split."""

MAX_NODE_BYTES: Final = 1_000_000
"""More cannot be written to a node at all: ZooKeeper hangs up on whoever tries, each time anew."""

_OVERHEAD_BYTES: Final = 80


class ControllerEvents:
    """The queue of a controller's events, and what an event does with a plan: write and publish.

    ``splits_writes`` says that the store takes large plans in parts only. ``on_store_failed`` is
    called with the error of a disk that failed under the store, ``on_fenced`` when a write or a
    read shows that this broker can be the controller no more.
    """

    def __init__(
        self,
        state: ControllerState,
        store: MetadataStore,
        clock: Clock,
        metadata: BrokerMetadata,
        propagation: MetadataPropagation,
        *,
        splits_writes: bool,
        on_store_failed: Callable[[StorageError], None],
        on_fenced: Callable[[], None],
    ) -> None:
        self.state = state
        self.store = store
        self.clock = clock
        self.metadata = metadata
        """What this broker itself knows of the cluster."""
        self.on_fenced: Final = on_fenced
        self._propagation = propagation
        self._splits_writes = splits_writes
        self._on_store_failed = on_store_failed
        self._queue = EventQueue()

    def submit(self, event: Event[T]) -> Deferred[T]:
        """Run an event after all others. The Deferred fails with NOT_CONTROLLER when this broker is
        not the controller, or is so for another term, by the time the event would start.
        """
        term = self.state.term

        async def guarded() -> T:
            self.state.check_active(term)
            return await event()

        return self._queue.submit(guarded)

    def submit_before_election(self, event: Event[T]) -> Deferred[T]:
        """Run an event of a broker on its own that makes it the controller."""
        return self._queue.submit(event)

    async def write(self, operations: Iterable[Operation]) -> None:
        """Put a plan into the store, which may take it in parts; as :meth:`write_groups`."""
        await self.write_groups([each] for each in operations)

    async def write_groups(self, groups: Iterable[Sequence[Operation]]) -> None:
        """Put a plan into the store; part of an event. A store that takes large plans in parts
        takes each group as a whole: a controller that falls between two parts leaves no half of it.

        Raises POLICY_VIOLATION, with nothing written, for a node that no store could take;
        KAFKA_STORAGE_ERROR when the disk of an embedded store fails; NOT_CONTROLLER when the store
        refuses the write or cannot be reached, and when the term has ended meanwhile.
        """
        term = self.state.term
        guard = Check(paths.CONTROLLER_EPOCH, self.state.context.epoch_version)
        planned = [list(group) for group in groups]
        if self._splits_writes:
            _refuse_too_large(each for group in planned for each in group)
            parts = split(planned)
        else:
            parts = [[each for group in planned for each in group]]
        for part in parts:
            try:
                await write_surely(self.store, self.clock, [guard, *part])
            except StorageError as error:
                self._on_store_failed(error)
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
            except MetadataStoreError as error:
                self._write_failed(error)
                code = ErrorCode.NOT_CONTROLLER
                raise KafkaError(code, "another controller has taken over") from error
            self.state.check_active(term)

    def _write_failed(self, error: MetadataStoreError) -> None:
        fenced = isinstance(error, BadVersionError) and error.path == paths.CONTROLLER_EPOCH
        if fenced:
            log.warning("another controller has followed this one")
        elif isinstance(error, ConnectionLossError | SessionExpiredError):
            log.warning("the metadata store cannot be reached: this broker is no controller")
        else:
            log.error("the metadata store is not as this controller left it", exc_info=error)
        self.on_fenced()

    def is_behind(self, broker_id: BrokerId) -> bool:
        """True while another broker has not acknowledged every change that was published."""
        return self._propagation.is_behind(broker_id)

    # --- publishing: to this broker at once, to the others by the propagation -----------------

    def publish_topic(
        self, topic: TopicState, *, indices: Iterable[int] | None = None
    ) -> TopicImage:
        """Tell every broker of a topic: of the partitions at ``indices``, or (None) of all."""
        image = self.metadata.show(topic)
        self._propagation.topic_changed(topic, indices)
        return image

    def publish_created(self, topic: TopicState) -> TopicImage:
        """Tell every broker of a topic that was created just now."""
        image = self.metadata.show(topic, created=True)
        self._propagation.topic_created(topic)
        return image

    def publish_config(self, topic: TopicState) -> None:
        """Tell every broker the settings of a topic."""
        self.metadata.show_config(topic)
        self._propagation.topic_changed(topic, ())

    def publish_deletion(self, topic: TopicState) -> TopicImage | None:
        """Tell every broker that a topic is deleted; return what this broker knew of it."""
        image = self.metadata.remove(topic.name, topic.topic_id)
        self._propagation.topic_deleted(topic.name, topic.topic_id)
        return image

    def publish_brokers(self) -> None:
        """Tell every broker which brokers are alive."""
        self.metadata.set_brokers(each.node for each in self.state.context.brokers.values())
        self._propagation.brokers_changed()

    def publish_features(self) -> None:
        """Tell every broker which levels of features are finalized."""
        self.metadata.set_features(self.state.context.features)
        self._propagation.features_changed()

    def publish_broker_configs(self) -> None:
        """Tell every broker the dynamic settings of brokers and groups."""
        self.metadata.set_group_configs(self.state.context.group_configs)
        self.metadata.set_broker_configs(self.state.context.broker_configs)
        self._propagation.broker_configs_changed()

    def publish_entities(self, kind: EntityKind, changes: EntityChanges) -> None:
        """Tell every broker of entities that have changed."""
        self.metadata.change_entities(kind, changes)
        self._propagation.entities_changed(kind, changes)

    def publish_all_entities(self) -> None:
        """Tell every broker all entities, once they are read."""
        entities = self.state.context.entities
        assert entities is not None
        self.metadata.set_entities(entities.by_kind)
        self._propagation.entities_loaded()


def _refuse_too_large(operations: Iterable[Operation]) -> None:
    for operation in operations:
        if isinstance(operation, Create | SetData) and len(operation.data) > MAX_NODE_BYTES:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{operation.path} would have {len(operation.data)} bytes; the metadata store "
                f"takes {MAX_NODE_BYTES}",
            )


def split(groups: Iterable[Sequence[Operation]]) -> list[Sequence[Operation]]:
    """Return the operations of groups in parts that a store takes, in order; one part where they
    fit. No group is in two parts.
    """
    parts: list[Sequence[Operation]] = []
    part: list[Operation] = []
    size = 0
    for group in groups:
        needed = sum(map(size_in_multi, group))
        if part and size + needed > MAX_MULTI_BYTES:
            parts.append(part)
            part, size = [], 0
        part += group
        size += needed
    if part:
        parts.append(part)
    return parts


def size_in_multi(operation: Operation) -> int:
    """Return about how many bytes of a multi an operation takes."""
    data = operation.data if isinstance(operation, Create | SetData) else b""
    return len(operation.path) + len(data) + _OVERHEAD_BYTES
