"""A broker without its sockets and its metadata store, shared with simulated brokers.

Clock, offload, disk and randomness are parameters. `server.broker` connects it to the operating
system, `sim.broker` to a simulation; the parts of a broker are constructed here, once.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from millstream.config.broker import BrokerConfig
from millstream.config.dynamic import DynamicConfig
from millstream.model.broker import BrokerNode
from millstream.model.clock import Clock
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import StorageError
from millstream.model.features import FinalizedFeatures
from millstream.model.metadata_store import MetadataStore
from millstream.model.topic import ZERO_TOPIC_ID, TopicId
from millstream.runtime.controlling.controller import Controller
from millstream.runtime.controlling.controller_state import ControllerState
from millstream.runtime.logs.log_cleaner import LogCleaner
from millstream.runtime.logs.log_loading import LogLoading
from millstream.runtime.logs.log_maintenance import LogMaintenance
from millstream.runtime.metadata.metadata_cache import MetadataCache, TopicImage
from millstream.runtime.offload import Offload
from millstream.runtime.pauses import at_most
from millstream.runtime.producer_ids import ProducerIds, first_unused_id
from millstream.runtime.replicas.fetch_sessions import FetchSessions
from millstream.runtime.replicas.partitions import Partitions
from millstream.runtime.services import EnsureTopic, Services
from millstream.server.broker_coordination import BrokerCoordination
from millstream.server.broker_requests import BrokerRequests
from millstream.server.found_logs import FoundLogs
from millstream.storage.environment import LogEnvironment
from millstream.storage.log_manager import LogManager

if TYPE_CHECKING:
    from millstream.runtime.logs.replica_mover import ReplicaMover
    from millstream.runtime.membership.cluster_member import ClusterMember
    from millstream.runtime.replicas.transaction_verification import TransactionVerifier
    from millstream.security.authorizer import Authorizer

_SESSION_EVICTION_MS: Final = 120_000
_SETTLES_MS: Final = 1_000.0
"""How long a stop waits until what coordinators have put off is committed."""


class BrokerCore:
    """Logs, partitions, groups and their maintenance. ``on_directory_failed`` is called for each
    log directory that goes offline; ``random_bytes`` is the source of randomness except for the
    logs.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock,
        cluster_clock: Clock | None = None,
        offload: Offload,
        environment: LogEnvironment,
        random_bytes: Callable[[int], bytes],
        on_directory_failed: Callable[[str], None],
    ) -> None:
        self.clock = clock
        self.cluster_clock = cluster_clock or clock
        """The clock of what is agreed with other processes (``server.machine``)."""
        self.offload = offload
        self.environment = environment
        self.dynamic = DynamicConfig(config)
        self.metadata = MetadataCache("", on_features_changed=self._features_changed)
        self._config = config
        self._random_bytes = random_bytes
        self._requests = BrokerRequests(config.broker, self.cluster_clock)
        self.log_manager = LogManager(config.log_directories, environment, broker_id=config.broker)
        self.found_logs = self._make_found_logs()
        self.partitions = self._make_partitions(on_directory_failed)
        self._coordination = self._make_coordination()
        self.coordinators = self._coordination.registry
        self.cleaner = self._make_cleaner()
        self.maintenance = self._make_maintenance()
        self._mover: ReplicaMover | None = None
        self._producer_ids: ProducerIds | None = None
        self._loading: LogLoading | None = None
        self._is_interrupted = False

    # --- its parts, each made of those before it -------------------------------------------------

    def _make_found_logs(self) -> FoundLogs:
        return FoundLogs(
            self._config,
            self.dynamic,
            clock=self.clock,
            file_system=self.environment.file_system,
            log_manager=self.log_manager,
            metadata=self.metadata,
        )

    def _make_partitions(self, on_directory_failed: Callable[[str], None]) -> Partitions:
        return Partitions(
            self._config.broker,
            clock=self.clock,
            offload=self.offload,
            log_manager=self.log_manager,
            metadata=self.metadata,
            on_directory_failed=on_directory_failed,
            new_verifier=self._transaction_verifier,
        )

    def _make_coordination(self) -> BrokerCoordination:
        return BrokerCoordination(
            self.dynamic,
            clock=self.clock,
            offload=self.offload,
            partitions=self.partitions,
            metadata=self.metadata,
            requests=self._requests,
            random_bytes=self._random_bytes,
            new_producer_id=self._new_producer_id,
        )

    def _make_cleaner(self) -> LogCleaner:
        return LogCleaner(
            self.clock,
            self.offload,
            self.dynamic,
            log_manager=self.log_manager,
            environment=self.environment,
            on_storage_error=self.partitions.storage_failed,
        )

    def _make_maintenance(self) -> LogMaintenance:
        return LogMaintenance(
            self.clock,
            self.offload,
            self.dynamic,
            self.log_manager,
            self.partitions,
            busy=lambda: self.cleaner.busy,
        )

    def mover(self) -> ReplicaMover:
        """Return what moves replicas between log directories, made at the first move."""
        from millstream.runtime.logs.replica_mover import ReplicaMover

        if self._mover is None:
            self._mover = ReplicaMover(
                self.clock,
                self.offload,
                self.dynamic,
                log_manager=self.log_manager,
                partitions=self.partitions,
                cleaner=self.cleaner,
            )
        return self._mover

    # --- what its metadata store needs -----------------------------------------------------------

    def controller_state(self) -> ControllerState:
        """Return the initial state of the controller on this broker."""
        return ControllerState(self.dynamic, self._random_bytes)

    def first_directory(self) -> str:
        """Return the first of ``log.dirs``. StorageError when it is offline: metadata created in
        another one would contradict it when it comes back.
        """
        directory = os.path.abspath(self._config.log_directories[0])
        if directory not in self.log_manager.directories:
            raise StorageError(directory, "it holds the metadata and cannot be used")
        return directory

    # --- start and stop ------------------------------------------------------------------------

    async def load_logs(self) -> None:
        """Open every log of the directories, once the metadata is read."""
        self.cordon(self.dynamic.current)
        self.log_manager.topic_id_of = self._topic_id_of
        threads = self.dynamic.current.num_recovery_threads_per_data_dir
        loading = self._loading = LogLoading(
            self.clock, self.offload, self.log_manager, threads_per_directory=threads
        )
        if self._is_interrupted:
            loading.stop()
        await spawn(loading.run(self.found_logs.config_of))

    def interrupt(self) -> None:
        """Make a start that is still loading logs fail with LoadingStoppedError. A signal handler
        may call it.
        """
        self._is_interrupted = True
        if self._loading is not None:
            self._loading.stop()

    def begin(self) -> None:
        """Start the maintenance of logs, and the coordinators of the partitions that this broker
        leads.
        """
        self.coordinators.begin()
        self.maintenance.start()
        if self._config.log_cleaner_enable:
            self.cleaner.start()
        if any(self.log_manager.future_logs):  # moves that a restart has interrupted
            self.mover().resume()

    def settle(self) -> Deferred[None]:
        """Store what coordinators have put off, as far as that can be done in a while: before
        leaderships go to other brokers, and before :meth:`stop`.
        """
        return at_most(self.clock, self._coordination.settle(), _SETTLES_MS)

    async def stop(self) -> None:
        """Resign all leaderships and answer all waiting requests."""
        self.maintenance.stop()
        await self.cleaner.stop()
        if self._mover is not None:
            self._mover.stop()
        self._coordination.stop()
        self.partitions.stop()

    def cordon(self, config: BrokerConfig) -> None:
        """Apply which log directories get no new logs (`cordoned.log.dirs`)."""
        cordoned = map(os.path.abspath, config.cordoned_directories)
        self.log_manager.placement.cordoned = frozenset(cordoned)

    def services(
        self,
        node: BrokerNode,
        *,
        store: MetadataStore,
        controller: Controller,
        ensure_topic: EnsureTopic,
        member: ClusterMember | None,
    ) -> Services:
        """Return the services of the request handlers."""
        coordination = self._coordination
        self._producer_ids = self._producer_ids_of(store)
        services = Services(
            node=node,
            clock=self.clock,
            offload=self.offload,
            config=self.dynamic,
            metadata=self.metadata,
            log_manager=self.log_manager,
            partitions=self.partitions,
            controller=controller,
            ensure_topic=ensure_topic,
            cluster=member,
            coordinators=self.coordinators,
            group_runtime=coordination.groups.get,
            share_runtime=coordination.share_groups.get,
            new_share_persister=lambda: coordination.share_persister(ensure_topic),
            transaction_runtime=coordination.transactions.get,
            share_partitions=lambda: coordination.share_partitions(ensure_topic),
            fetch_sessions=FetchSessions(
                slots=self._config.max_incremental_fetch_session_cache_slots,
                evict_after_ms=_SESSION_EVICTION_MS,
                random_id=lambda: int.from_bytes(self._random_bytes(4), "big") >> 1,
            ),
            producer_ids=self._producer_ids,
            new_replica_mover=self.mover,
            send_request=self._requests.send,
            random_bytes=self._random_bytes,
            authorizer=self._authorizer(),
        )
        self._requests.begin(services)
        return services

    def _authorizer(self) -> Authorizer | None:
        """Return what decides who may do what, None where everybody may do everything."""
        if not self._config.authorizer_class_name:
            return None
        from millstream.runtime.metadata.access_rules import authorizer_of

        return authorizer_of(self._config, self.metadata.entities)

    def _producer_ids_of(self, store: MetadataStore) -> ProducerIds:
        logs = self.log_manager.logs()
        known = (producer.producer_id for log in logs for producer in log.producers.entries())
        failed = self.partitions.storage_failed
        return ProducerIds(store, self._config.broker, failed, first_id=first_unused_id(known))

    def _new_producer_id(self) -> Deferred[int]:
        assert self._producer_ids is not None, "requests are served with the services"
        return self._producer_ids.next()

    def _transaction_verifier(self) -> TransactionVerifier:
        return self._coordination.transaction_verifier()

    def _features_changed(self, features: FinalizedFeatures) -> None:
        self._coordination.features_changed(features)

    def _topic_id_of(self, name: str) -> TopicId | None:
        image = self.metadata.topic(name)
        if image is not None:
            return image.topic_id
        # The metadata of a cluster is complete; a broker on its own may find topics to adopt.
        return None if self.partitions.replicas is None else ZERO_TOPIC_ID

    # --- what the controller says (runtime.broker_metadata.BrokerStateListener) -----------------

    def topic_changed(self, image: TopicImage, *, created: bool) -> None:
        """Open the partitions hosted here; start and stop coordinators with the leadership of their
        partitions.
        """
        self.partitions.topic_changed(image, created=created)
        self._coordination.topic_changed(image, created=created)

    def topic_deleted(self, image: TopicImage) -> None:
        """Close the partitions hosted here and schedule them for deletion."""
        self.partitions.topic_deleted(image)
        self._coordination.topic_deleted(image)

    def config_changed(self, image: TopicImage) -> None:
        """Apply a topic's changed settings."""
        self.partitions.config_changed(image)
