"""This broker as the controller of its cluster, from its election to its resignation.

The path that a reader follows:

1. `controller_election`: this broker creates `/controller` and has raised the controller epoch.
2. :meth:`ClusterController._begin`, the first event of the term: the store is read, what a fallen
   controller began is finished (`controller_failover`), leaders are elected where they are missing
   (`replica_control`), everything is published.
3. `registered_brokers` compares the registrations in the store with the brokers in the context
   whenever they change; handlers ask for decisions (`controller`).
4. `metadata_pushes` tell every other broker until it has acknowledged.
5. Resignation: a refused write, an expired session or a newer controller ends the term.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from millstream.controller.election import LogEnd
from millstream.model.broker import BrokerId, BrokerNode
from millstream.model.clock import Clock
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import KafkaError, MillstreamError, StorageError
from millstream.model.metadata_store import MetadataStore
from millstream.model.topic import TopicId, TopicPartition
from millstream.runtime.controlling.controller import Controller
from millstream.runtime.controlling.controller_election import ControllerElection
from millstream.runtime.controlling.controller_events import ControllerEvents
from millstream.runtime.controlling.controller_failover import ControllerFailover
from millstream.runtime.controlling.controller_state import ControllerState
from millstream.runtime.controlling.fetcher_states import FetcherStates
from millstream.runtime.controlling.log_ends import LogEnds
from millstream.runtime.controlling.metadata_pushes import MetadataPushes, Send
from millstream.runtime.controlling.preferred_leaders import PreferredLeaders
from millstream.runtime.controlling.registered_brokers import RegisteredBrokers
from millstream.runtime.metadata.broker_metadata import BrokerMetadata

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LocalObservations:
    """What a controller asks of its own broker."""

    log_end: Callable[[TopicPartition], LogEnd | None]
    """How far a replica reaches; None for one that is not here."""
    unreachable_leaders: Callable[[], Collection[BrokerId]]
    """The leaders that do not answer this broker's fetches."""
    is_gone: Callable[[BrokerNode], bool]
    """True for a registered broker whose process is known to have ended."""


class ClusterController:
    """Joins the election of a controller to what an elected controller does.

    ``send(broker, request, timeout_ms)`` carries a request to another broker, ``ask_fetchers`` one
    that no other request waits behind; ``local`` says what this broker itself knows.
    """

    def __init__(
        self,
        state: ControllerState,
        store: MetadataStore,
        clock: Clock,
        metadata: BrokerMetadata,
        send: Send,
        ask_fetchers: Send,
        *,
        local: LocalObservations,
        on_store_failed: Callable[[StorageError], None],
    ) -> None:
        broker_id = metadata.broker_id
        self._state = state
        self._metadata = metadata
        self._broker_id = broker_id
        self.election = ControllerElection(
            store, clock, broker_id, on_elected=self._elected, on_resigned=self._resigned
        )
        self._pushes = MetadataPushes(
            state,
            clock,
            broker_id,
            send,
            on_refused=self.evict,
            on_deletions_acknowledged=self._deletions_acknowledged,
            on_fenced=self.election.resign,
        )
        self._events = ControllerEvents(
            state,
            store,
            clock,
            metadata,
            self._pushes,
            splits_writes=True,
            on_store_failed=on_store_failed,
            on_fenced=self.election.resign,
        )
        log_ends = LogEnds(state, broker_id, send, local.log_end)
        fetchers = FetcherStates(state, broker_id, ask_fetchers, local.unreachable_leaders)
        self.controller = Controller(self._events, log_ends.ask, fetchers.ask)
        """What may be asked of this broker as the controller."""
        self._failover = ControllerFailover(self._events, local.is_gone)
        self._brokers = RegisteredBrokers(self._events, self.controller.replicas)
        self._preferred_leaders = PreferredLeaders(clock, state, self.controller.replicas.elections)

    def start(self) -> None:
        """Stand for election, and watch the registrations of brokers."""
        self._brokers.start()
        self.election.start()
        self._preferred_leaders.start()

    def stop(self) -> Deferred[None]:
        """Resign for good."""
        self._preferred_leaders.stop()
        self._pushes.stop()
        return self.election.stop()

    @property
    def is_propagating(self) -> bool:
        """True while a broker has not acknowledged all that this controller has decided."""
        return self._state.is_active and self._pushes.is_telling

    def evict(self, node: BrokerNode) -> None:
        """Delete the registration of a broker whose process is known to have ended, if this broker
        is the controller.
        """
        self._brokers.evict(node)

    # --- the term ------------------------------------------------------------------------------

    def _elected(self, epoch: int, epoch_version: int) -> Deferred[None]:
        self._state.begin_term()
        return self._events.submit(lambda: self._begin(epoch, epoch_version))

    def _resigned(self) -> None:
        self._state.end_term()
        self._pushes.stop()

    async def _begin(self, epoch: int, epoch_version: int) -> None:
        """Read everything, finish what a fallen controller began, elect, and tell everybody.

        What was read may be of a life of this broker that has ended: nothing of it is published
        before it agrees with who lives, and that is in the store. It may have been read before
        another controller followed this one: then it is not published at all, for this broker would
        delete its logs of topics that were created since.
        """
        replicas, term = self.controller.replicas, self._state.term
        loaded = await self._failover.load(epoch, epoch_version)
        # Deleted meanwhile: elections need not wait for it, nor for its fsync.
        deleting = [spawn(self._brokers.delete_registration(node)) for node in loaded.gone]
        await self._failover.finish_deletions()
        await self._failover.finish_creations(loaded.topic_configs)
        await replicas.reconcile()
        self._state.check_active(term)
        self._publish_everything()
        await replicas.resume()
        self._pushes.start()
        self.controller.entities.load()
        for deleted in deleting:
            await deleted
        self._deletions_acknowledged(self._broker_id, list(self._state.context.deletions))
        self._brokers.look()  # somebody may have come or gone since

    def _publish_everything(self) -> None:
        topics = self._state.context.topics
        for image in tuple(self._metadata.cache.topics()):
            topic = topics.get(image.name)
            if topic is None or topic.topic_id != image.topic_id:
                self._metadata.remove(image.name, image.topic_id)
        for topic in tuple(topics.values()):
            self._metadata.show(topic)

    def _deletions_acknowledged(self, broker_id: BrokerId, topics: list[TopicId]) -> None:
        if topics and self._state.is_active:
            done = self.controller.replicas.deletions_acknowledged(broker_id, topics)
            done.on_done(_log_failure)


def _log_failure(done: Deferred[None]) -> None:
    try:
        done.result()
    except KafkaError as error:
        log.info("who keeps nothing of deleted topics was not stored: %s", error)
    except MillstreamError:
        log.exception("who keeps nothing of deleted topics was not stored")
