"""This broker as a member of its cluster: its parts, and the order in which they start and stop.

==============================  ====================================================================
`broker_registration`           this broker is registered in the store, in each session anew
`failure_detector`              other brokers' processes that have ended
`controller_failure_detector`   the controller's process that has ended
`controller_channel`            requests to the controller: forwarded ones, topics, reports
`isr_proposals`                 requests to the controller: ISRs
`offline_replica_reports`       requests to the controller: replicas that cannot be served
`silent_follower_reports`       requests to the controller: followers that do not fetch
`unheard_controller`            when to read the store in place of what no controller tells
`stored_states`                 states of partitions in the store, where no controller answers
`controlled_shutdown`           leaderships move away before a stop
`cluster_controller`            this broker as the controller, when it is elected
==============================  ====================================================================

The steps of a start: :meth:`ClusterMember.prepare` reads the store into the cache; the logs are
opened with what it says; :meth:`ClusterMember.start` registers the broker, which stands for
election from then on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from millstream.controller.adoption import Adoption, FoundLog, plan_arrival
from millstream.controller.election import LogEnd
from millstream.controller.feature_changes import check_supported
from millstream.controller.loading import load_brokers, load_context
from millstream.controller.payloads import Registration
from millstream.controller.topic_deletion import load_deletions
from millstream.model.broker import BrokerId, BrokerNode, Endpoint
from millstream.model.clock import Clock
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError, StorageError
from millstream.model.metadata_store import MetadataStore
from millstream.model.topic import TopicPartition, topic_id_to_text
from millstream.runtime.broker_channels import BrokerChannels, Network, NewSaslClient
from millstream.runtime.controlling.cluster_controller import ClusterController, LocalObservations
from millstream.runtime.controlling.cluster_reading import (
    prepare_store,
    read_cluster,
    read_entities,
)
from millstream.runtime.controlling.controller import Controller
from millstream.runtime.controlling.controller_election import RegisteredController
from millstream.runtime.controlling.controller_state import ControllerState
from millstream.runtime.membership.broker_registration import BrokerRegistration
from millstream.runtime.membership.controlled_shutdown import ControlledShutdown
from millstream.runtime.membership.controller_channel import ControllerChannel
from millstream.runtime.membership.controller_failure_detector import ControllerFailureDetector
from millstream.runtime.membership.failure_detector import (
    RENEW_MS,
    UNAUTHENTICATED_RENEW_MS,
    FailureDetector,
)
from millstream.runtime.membership.isr_proposals import IsrProposals
from millstream.runtime.membership.offline_replica_reports import OfflineReplicaReports
from millstream.runtime.membership.silent_follower_reports import SilentFollowerReports
from millstream.runtime.membership.stored_states import StoredStates
from millstream.runtime.membership.unheard_controller import UnheardController
from millstream.runtime.metadata.broker_metadata import (
    BrokerMetadata,
    BrokerStateListener,
    MetadataUpdate,
)
from millstream.runtime.metadata.metadata_cache import MetadataCache
from millstream.runtime.pauses import until

log = logging.getLogger(__name__)

KNOWN_LIMIT_MS: Final = 5_000
LOOK_MS: Final = 5


@dataclass(frozen=True, slots=True)
class LocalBroker:
    """What the cluster asks of the rest of this broker, and tells it."""

    log_end: Callable[[TopicPartition], LogEnd | None]
    """How far a replica reaches; None for one that is not here."""
    offline_replicas: Callable[[], Collection[TopicPartition]]
    """The replicas that cannot be served."""
    silent_followers: Callable[[], Collection[BrokerId]]
    """The in-sync followers that have stopped to fetch (``ReplicaManager.check_contact``)."""
    read_states_of: Callable[[Collection[BrokerId]], None]
    """Reads the stored states of the partitions led here that some followers keep."""
    read_all_states: Callable[[], None]
    """Reads the stored states of all partitions that have a replica here."""
    unreachable_leaders: Callable[[], Collection[BrokerId]]
    """The leaders that do not answer this broker's fetches."""
    listener: BrokerStateListener
    """Carries out what the controller decides."""
    on_registered: Callable[[int], None]
    """Called at each registration with the broker epoch since which this broker has kept
    everything."""
    on_store_failed: Callable[[StorageError], None]
    """Called with the error of a disk that failed under the metadata store."""
    new_sasl: NewSaslClient | None = None
    """Makes this broker's side of an authentication to another one; None where none is asked
    for."""


class ClusterMember:
    """Everything of a broker that deals with the rest of its cluster."""

    def __init__(
        self,
        state: ControllerState,
        store: MetadataStore,
        clock: Clock,
        cache: MetadataCache,
        network: Network,
        *,
        listener_name: str,
        session_timeout_ms: int,
        broker: LocalBroker,
    ) -> None:
        self._state = state
        self._store = store
        self._clock = clock
        self._broker = broker
        self._was_told = False
        self._told_epoch: int | None = None
        """The broker epoch in which this broker has last heard a controller, or was it."""
        self._gone_controller: RegisteredController | None = None
        """The controller whose end was logged last."""
        self.listener_name = listener_name
        """The listener on which brokers talk to each other."""
        self.local_log_end = broker.log_end
        self.unreachable_leaders = broker.unreachable_leaders
        self.channels = self._make_channels(network, cache)
        self._failure_detector = self._make_failure_detector(network, cache)
        self.metadata = BrokerMetadata(
            state.config.static.broker,
            cache,
            state.config,
            listener=broker.listener,
            on_brokers_changed=self._failure_detector.look,
        )
        """What this broker knows of its cluster."""
        self._cluster_controller = self._make_cluster_controller()
        self._election = self._cluster_controller.election
        self.controller: Controller = self._cluster_controller.controller
        """This broker as the controller, whenever it is."""
        self._controller_failure_detector = ControllerFailureDetector(
            clock, network, endpoint=self._controller_endpoint, on_gone=self._controller_is_gone
        )
        self.channel = ControllerChannel(self.controller, self.metadata, self.channels, clock)
        """Requests to the controller, be it this broker or another one."""
        self.proposals = IsrProposals(self.channel, self.controller.replicas, self.metadata, clock)
        self._offline_reports = OfflineReplicaReports(
            clock, self.metadata, broker.offline_replicas, self.channel.report_offline
        )
        self._silent_follower_reports = self._make_silent_follower_reports()
        self._unheard_controller = UnheardController(
            clock, registered=self._unheard, look=self._look_into_store
        )
        self.stored_states = StoredStates(store, self.metadata, clock)
        self._shutdown = self._make_shutdown()
        self.registration = BrokerRegistration(
            store,
            clock,
            self.metadata,
            session_timeout_ms=session_timeout_ms,
            on_registered=broker.on_registered,
        )

    # --- its parts, each made of those before it -------------------------------------------------

    def _make_channels(self, network: Network, cache: MetadataCache) -> BrokerChannels:
        return BrokerChannels(
            network,
            self._clock,
            client_id=f"broker-{self._state.config.static.broker}",
            endpoint_of=lambda each: cache.endpoint(each, self.listener_name),
            new_sasl=self._broker.new_sasl,
        )

    def _make_failure_detector(self, network: Network, cache: MetadataCache) -> FailureDetector:
        is_authenticated = self._broker.new_sasl is not None
        return FailureDetector(
            self._clock,
            network,
            cache,
            self._state.config.static.broker,
            listener_name=self.listener_name,
            on_gone=self._broker_is_gone,
            renew_ms=UNAUTHENTICATED_RENEW_MS if is_authenticated else RENEW_MS,
        )

    def _make_cluster_controller(self) -> ClusterController:
        broker = self._broker
        return ClusterController(
            self._state,
            self._store,
            self._clock,
            self.metadata,
            self.channels.send_between_brokers,
            self.channels.send_about_fetches,
            local=LocalObservations(
                broker.log_end, broker.unreachable_leaders, self._failure_detector.is_gone
            ),
            on_store_failed=broker.on_store_failed,
        )

    def _make_silent_follower_reports(self) -> SilentFollowerReports:
        broker = self._broker
        return SilentFollowerReports(
            self._clock,
            broker.silent_followers,
            broker.unreachable_leaders,
            self.channel.report_silent_followers,
            broker.read_states_of,
        )

    def _make_shutdown(self) -> ControlledShutdown:
        return ControlledShutdown(
            self.channel,
            self.metadata,
            self._clock,
            is_propagating=lambda: self._cluster_controller.is_propagating,
        )

    # --- start -------------------------------------------------------------------------------

    def prepare(self, cluster_id: str | None) -> Deferred[None]:
        """Read what the cluster has decided into the cache, before logs are opened.

        ``cluster_id`` is the one in the log directories; KafkaError INCONSISTENT_CLUSTER_ID says
        that this is another cluster's, UNSUPPORTED_VERSION that it has finalized a feature that
        this broker does not support.
        """
        return spawn(self._prepare(cluster_id))

    async def _prepare(self, cluster_id: str | None) -> None:
        new_id = cluster_id or topic_id_to_text(self._state.new_topic_id())
        stored = await prepare_store(self._store, new_id)
        if cluster_id and stored != cluster_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"the metadata is of cluster {stored}, the log directories are of {cluster_id}",
            )
        nodes = await read_cluster(self._store)
        entities = await read_entities(self._store)
        context = load_context(nodes, piecemeal=True)
        context.deletions = load_deletions(nodes)
        self._state.context = context
        metadata = self.metadata
        metadata.cache.cluster_id = stored
        check_supported(context.features)
        metadata.set_features(context.features)
        metadata.set_broker_configs(context.broker_configs)
        metadata.set_group_configs(context.group_configs)
        metadata.set_entities(entities.by_kind)
        metadata.set_brokers(each.node for each in load_brokers(nodes))
        for topic in context.topics.values():
            if all(state.partition_epoch >= 0 for state in topic.partitions):
                metadata.show(topic)

    def arrival(self, found: Mapping[TopicPartition, FoundLog]) -> Adoption:
        """Return what is to become of the logs on this broker's disks."""
        return plan_arrival(self._state.context, found, broker_id=self.metadata.broker_id)

    def start(self, node: BrokerNode, registration: Registration) -> Deferred[None]:
        """Register, and stand for election as the controller.

        The broker leads and follows nothing before a controller that knows this registration tells
        it to: what the store says of it may be of the registration before. Fails with
        DUPLICATE_BROKER_REGISTRATION while another broker has the id.
        """
        self.metadata.start_listening()
        return spawn(self._start(node, registration))

    async def _start(self, node: BrokerNode, registration: Registration) -> None:
        await self.registration.start(node, registration)
        self._cluster_controller.start()
        self._controller_failure_detector.start()
        self._failure_detector.start()
        self._offline_reports.start()
        self._silent_follower_reports.start()
        self._unheard_controller.start()

    @property
    def is_registered(self) -> bool:
        """True while this broker is registered, as far as it knows."""
        return self.metadata.broker_epoch is not None

    @property
    def is_told(self) -> bool:
        """True once a controller has told this broker its part, in any registration."""
        return self._was_told or self._election.is_ready

    def until_known(self) -> Deferred[None]:
        """Return what is filled once the controller knows this broker, and no later than
        ``KNOWN_LIMIT_MS`` from now: a cluster may have no controller.

        Before that the controller refuses to give partitions to the broker.
        """
        return spawn(self._until_known())

    async def _until_known(self) -> None:
        if not await until(
            self._clock, lambda: self.is_told, limit_ms=KNOWN_LIMIT_MS, look_ms=LOOK_MS
        ):
            log.warning("no controller has told this broker anything yet")

    # --- the controller on another broker ---------------------------------------------------------

    def take_push(self, update: MetadataUpdate) -> None:
        """Take over a push of the controller; KafkaErrors as ``BrokerMetadata.apply``."""
        self.metadata.apply(update)
        self._was_told = True  # a controller sends to a registration that it knows
        self._told_epoch = self.metadata.broker_epoch
        self._controller_failure_detector.heard()
        self._unheard_controller.heard()

    def _unheard(self) -> RegisteredController | None:
        """Return the controller on another broker; None while there is nothing to read without it:
        what the store says may be of the registration before, until a controller has told this one
        something.
        """
        registered = self._election.registered
        if self._state.is_active:
            self._told_epoch = self.metadata.broker_epoch
            return None
        if (
            registered is None
            or registered.broker_id == self.metadata.broker_id
            or self.metadata.broker_epoch is None
            or self.metadata.broker_epoch != self._told_epoch
        ):
            return None
        return registered

    def _look_into_store(self, registered: RegisteredController) -> None:
        self.metadata.find_controller(registered.broker_id, registered.controller_epoch)
        self._broker.read_all_states()

    def _controller_endpoint(self) -> Endpoint | None:
        """Return where the controller listens; None when it is not known, or this broker."""
        registered = self._election.registered
        if (
            self._state.is_active
            or registered is None
            or registered.broker_id == self.metadata.broker_id
        ):
            return None
        return self.metadata.cache.endpoint(registered.broker_id, self.listener_name)

    def _controller_is_gone(self) -> None:
        """Stand for election: the address of the controller refuses connections."""
        registered = self._election.registered
        if registered is not None:
            if registered != self._gone_controller:  # found once more while the store is away
                log.warning("the controller, broker %d, is gone", registered.broker_id)
            self._gone_controller = registered
            self._controller_failure_detector.heard()
            self._election.replace(registered)

    def _broker_is_gone(self, node: BrokerNode) -> None:
        """Act on the end of another broker's process: delete its registration, or replace it as the
        controller.
        """
        registered = self._election.registered
        if self._state.is_active:
            self._cluster_controller.evict(node)
        elif registered is not None and registered.broker_id == node.broker_id:
            self._controller_is_gone()

    # --- stop ----------------------------------------------------------------------------------

    def move_leaderships_away(self) -> Deferred[None]:
        """Do what a controlled shutdown begins with; see ``ControlledShutdown.run``."""
        self.registration.stop()
        return self._shutdown.run()

    def stop(self) -> Deferred[None]:
        """Resign as the controller and close the connections; the end of the session deletes the
        registration.
        """
        self.registration.stop()
        self._controller_failure_detector.stop()
        self._failure_detector.stop()
        self._offline_reports.stop()
        self._silent_follower_reports.stop()
        self._unheard_controller.stop()
        return spawn(self._stop())

    async def _stop(self) -> None:
        await self._cluster_controller.stop()
        self.channels.close()
