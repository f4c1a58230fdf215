"""What every decision of a controller goes through: planned, stored, then shown to brokers.

Decisions are made one at a time, so a plan is made from what the store holds. Nothing is visible
before it is in the store. Every write checks that `/controller_epoch` is still ours: a controller
that another one has followed changes nothing more, and learns of it by its first write.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, TypeAlias, TypeVar

from millstream.config.dynamic import DynamicConfig
from millstream.config.value import parse_integer
from millstream.controller import paths
from millstream.controller.context import ControllerContext, TopicState
from millstream.model.broker import BrokerId
from millstream.model.clock import Clock
from millstream.model.deferred import Deferred
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
from millstream.model.topic import TopicId, topic_id_to_text
from millstream.runtime.controlling.careful_writes import write_surely
from millstream.runtime.event_queue import Event, EventQueue
from millstream.runtime.metadata.broker_metadata import BrokerMetadata
from millstream.runtime.metadata.metadata_cache import TopicImage

log = logging.getLogger(__name__)

T = TypeVar("T")

RandomBytes: TypeAlias = Callable[[int], bytes]

MAX_MULTI_BYTES: Final = 600_000
"""ZooKeeper refuses requests beyond `jute.maxbuffer`, 1 MiB unless set: larger plans are split."""

MAX_NODE_BYTES: Final = 1_000_000
"""More cannot be written to a node at all: ZooKeeper hangs up on whoever tries, each time anew."""

_OVERHEAD_BYTES: Final = 80


class Audience(Protocol):
    """The other brokers, who hear of what was decided (`metadata_pushes`)."""

    def topic_changed(self, topic: TopicState, indices: Iterable[int] | None) -> None:
        """Tell of a topic: of some partitions, or (None) of all of it."""

    def topic_created(self, topic: TopicState) -> None:
        """Tell of a topic that was made just now."""

    def topic_deleted(self, name: str, topic_id: TopicId) -> None:
        """Tell that a topic is gone."""

    def brokers_changed(self) -> None:
        """Tell who lives."""

    def broker_configs_changed(self) -> None:
        """Tell of dynamic settings of brokers."""


class NoAudience:
    """There are no other brokers."""

    def topic_changed(self, topic: TopicState, indices: Iterable[int] | None) -> None:
        """Tell nobody."""

    def topic_created(self, topic: TopicState) -> None:
        """Tell nobody."""

    def topic_deleted(self, name: str, topic_id: TopicId) -> None:
        """Tell nobody."""

    def brokers_changed(self) -> None:
        """Tell nobody."""

    def broker_configs_changed(self) -> None:
        """Tell nobody."""


class ControllerDesk:
    """The controller's context, its queue, its way to the store and to the brokers.

    ``on_store_failed`` hears of a disk that failed, ``on_fenced`` (set by whoever gave the
    controller its seat) that it is to be left.
    """

    def __init__(
        self,
        *,
        store: MetadataStore,
        local: BrokerMetadata,
        config: DynamicConfig,
        clock: Clock,
        random_bytes: RandomBytes,
        on_store_failed: Callable[[StorageError], None],
    ) -> None:
        self.store = store
        self.piecemeal = False
        """Whether the store takes large plans in parts only."""
        self.local = local
        self.config = config
        self.clock = clock
        self.context = ControllerContext()
        self.events = EventQueue()
        self.audience: Audience = NoAudience()
        self.on_fenced: Callable[[], None] = lambda: None
        self.reign = 0
        """Counts how often this broker became controller and ceased to be it."""
        self.active = False
        self._random_bytes = random_bytes
        self._on_store_failed = on_store_failed

    # --- the seat --------------------------------------------------------------------------

    def take_seat(self) -> None:
        """Decide from now on."""
        self.active = True
        self.reign += 1

    def leave_seat(self) -> None:
        """Decide nothing more: what waits in the queue is refused."""
        self.active = False
        self.reign += 1

    def submit(self, event: Event[T]) -> Deferred[T]:
        """Run an event after all others; NOT_CONTROLLER when this broker does not decide then."""
        reign = self.reign

        async def guarded() -> T:
            self.check_active(reign)
            return await event()

        return self.events.submit(guarded)

    def check_active(self, reign: int | None = None) -> None:
        """Raise NOT_CONTROLLER unless this broker decides, and has since the reign named."""
        if not self.active or reign not in (None, self.reign):
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")

    # --- the store -------------------------------------------------------------------------

    async def write(self, operations: Iterable[Operation]) -> None:
        """Put a plan into the store, or raise the KafkaError that says that it could not be:
        POLICY_VIOLATION, with nothing written, for a node that no store could take.
        """
        reign = self.reign
        guard = Check(paths.CONTROLLER_EPOCH, self.context.epoch_version)
        planned = list(operations)
        if self.piecemeal:
            _refuse_too_large(planned)
        for part in split(planned) if self.piecemeal else [planned]:
            try:
                await write_surely(self.store, self.clock, [guard, *part])
            except StorageError as error:
                self._on_store_failed(error)
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
            except MetadataStoreError as error:
                self._write_failed(error)
                code = ErrorCode.NOT_CONTROLLER
                raise KafkaError(code, "another controller has taken over") from error
            self.check_active(reign)

    def _write_failed(self, error: MetadataStoreError) -> None:
        fenced = isinstance(error, BadVersionError) and error.path == paths.CONTROLLER_EPOCH
        if fenced:
            log.warning("another controller has followed this one")
        elif isinstance(error, ConnectionLossError | SessionExpiredError):
            log.warning("the metadata store cannot be reached: this broker is no controller")
        else:
            log.error("the metadata store is not as this controller left it", exc_info=error)
        self.on_fenced()

    # --- those who are told ------------------------------------------------------------------

    def show(self, topic: TopicState, *, indices: Iterable[int] | None = None) -> TopicImage:
        """Let every broker know a topic: some of its partitions, or all."""
        image = self.local.show(topic)
        self.audience.topic_changed(topic, indices)
        return image

    def show_created(self, topic: TopicState) -> TopicImage:
        """Let every broker know a topic that was made just now."""
        image = self.local.show(topic, created=True)
        self.audience.topic_created(topic)
        return image

    def show_config(self, topic: TopicState) -> None:
        """Let every broker know a topic's settings."""
        self.local.show_config(topic)
        self.audience.topic_changed(topic, ())

    def show_deleted(self, topic: TopicState) -> TopicImage | None:
        """Let every broker know that a topic is gone."""
        image = self.local.remove(topic.name, topic.topic_id)
        self.audience.topic_deleted(topic.name, topic.topic_id)
        return image

    def show_brokers(self) -> None:
        """Let every broker know who lives."""
        self.local.set_brokers(each.node for each in self.context.brokers.values())
        self.audience.brokers_changed()

    def show_broker_configs(self) -> None:
        """Let every broker know the dynamic settings."""
        self.local.set_broker_configs(self.context.broker_configs)
        self.audience.broker_configs_changed()

    # --- what plans need -----------------------------------------------------------------------

    def min_insync_replicas(self, topic: TopicState) -> int:
        """Return the setting that counts for a topic."""
        text = topic.overrides.get("min.insync.replicas")
        number = None if text is None else parse_integer(text.strip(), 32)
        if number is not None:
            return number
        return self.config.current.topic_defaults.min_insync_replicas

    def allows_unclean_election(self, topic: TopicState) -> bool:
        """Return the setting that counts for a topic."""
        text = topic.overrides.get("unclean.leader.election.enable")
        if text is not None:
            return text.strip().lower() == "true"
        return self.config.current.topic_defaults.unclean_leader_election_enable

    def broker_epochs(self) -> dict[BrokerId, int]:
        """Return the epochs of all that live; empty where brokers have none (a broker alone)."""
        found = {each: broker.node.epoch for each, broker in self.context.brokers.items()}
        return found if all(epoch >= 0 for epoch in found.values()) else {}

    def racks(self) -> dict[BrokerId, str]:
        """Return the racks of all that live; empty unless every broker has one."""
        found = {each: broker.node.rack for each, broker in self.context.brokers.items()}
        named = {each: rack for each, rack in found.items() if rack is not None}
        return named if len(named) == len(found) else {}

    def random_below(self, limit: int) -> int:
        """Return a random number from 0 to ``limit`` - 1."""
        return 0 if limit == 1 else int.from_bytes(self._random_bytes(8), "big") % limit

    def new_topic_id(self) -> TopicId:
        """Return a random UUID (version 4) whose text does not begin with a dash."""
        while True:
            raw = bytearray(self._random_bytes(16))
            raw[6] = raw[6] & 0x0F | 0x40
            raw[8] = raw[8] & 0x3F | 0x80
            topic_id = TopicId(bytes(raw))
            if not topic_id_to_text(topic_id).startswith("-"):
                return topic_id


def _refuse_too_large(operations: Iterable[Operation]) -> None:
    for operation in operations:
        if isinstance(operation, Create | SetData) and len(operation.data) > MAX_NODE_BYTES:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{operation.path} would have {len(operation.data)} bytes; the metadata store "
                f"takes {MAX_NODE_BYTES}",
            )


def split(operations: Iterable[Operation]) -> list[Sequence[Operation]]:
    """Return operations in parts that a store takes, in order; one part where they fit."""
    parts: list[Sequence[Operation]] = []
    part: list[Operation] = []
    size = 0
    for operation in operations:
        data = operation.data if isinstance(operation, Create | SetData) else b""
        needed = len(operation.path) + len(data) + _OVERHEAD_BYTES
        if part and size + needed > MAX_MULTI_BYTES:
            parts.append(part)
            part, size = [], 0
        part.append(operation)
        size += needed
    if part:
        parts.append(part)
    return parts
