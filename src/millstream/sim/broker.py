"""One broker of a simulated cluster: everything of a real one above sockets, kazoo and threads.

Put together as ``server.broker`` and ``server.cluster_home`` do it, step by step. A machine has a
disk and a number; each life of its broker is another :class:`BrokerLife`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from millstream.config.broker import BrokerConfig
from millstream.config.dynamic import DynamicConfig
from millstream.config.topic import TopicConfig
from millstream.controller.adoption import Adoption, FoundLog
from millstream.controller.election import LogEnd
from millstream.controller.payloads import Registration
from millstream.handlers.request import ConnectionInfo
from millstream.model.broker import BrokerId, BrokerNode, Endpoint
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError, MillstreamError, StorageError
from millstream.model.metadata_store import SessionEvent
from millstream.model.topic import TopicId, TopicPartition
from millstream.runtime.cluster_member import ClusterMember, KeptReplicas
from millstream.runtime.controller_runtime import ControllerRuntime
from millstream.runtime.fetch_sessions import FetchSessions
from millstream.runtime.leader_role import ReplicationContext
from millstream.runtime.log_loading import LogLoading
from millstream.runtime.log_maintenance import LogMaintenance
from millstream.runtime.metadata_cache import MetadataCache
from millstream.runtime.partitions import Partitions
from millstream.runtime.producer_ids import ProducerIds, first_unused_id
from millstream.runtime.replica_manager import ReplicaManager
from millstream.runtime.services import Services
from millstream.server.dispatch import Dispatcher, DispatchSession
from millstream.sim.coordination import Ensemble, SimMetadataStore
from millstream.sim.disk import MemoryFileSystem
from millstream.sim.loop import NodeClock
from millstream.sim.network import Host, Network
from millstream.sim.offload import SimOffload
from millstream.storage.continuity import continuity_found, damaged_logs, write_trust
from millstream.storage.environment import LogEnvironment
from millstream.storage.log_manager import LogManager

if TYPE_CHECKING:
    from millstream.runtime.coordinator_runtime import GroupCoordinatorRuntime
    from millstream.runtime.replica_mover import ReplicaMover

LISTENER: Final = "PLAINTEXT"
SESSION_TIMEOUT_MS: Final = 3_000
DIRECTORY: Final = "/logs"


class BrokerLife:
    """One process, from its start to its end. ``on_gone`` hears when it stops by itself."""

    def __init__(
        self,
        machine: MemoryFileSystem,
        number: int,
        ensemble: Ensemble,
        network: Network,
        clock: NodeClock,
        settings: dict[str, str],
        on_gone: Callable[[BrokerLife, str], None],
    ) -> None:
        loop = network.loop
        self.number = number
        self.id = BrokerId(number)
        self.clock = clock
        self.files = machine
        self.is_up = False
        """True once it is registered."""
        self._loop = loop
        self._on_gone = on_gone
        self.host = Host(number, clock)
        self._connections = 0
        self.config = DynamicConfig(BrokerConfig({"broker.id": str(number), **settings}))
        self.offload = SimOffload(loop, clock)
        self.metadata = MetadataCache("")
        environment = LogEnvironment(file_system=machine, new_id=self._random_id)
        self.log_manager = LogManager([DIRECTORY], environment, broker_id=self.id)
        self.partitions = Partitions(
            self.id,
            clock=clock,
            offload=self.offload,
            log_manager=self.log_manager,
            metadata=self.metadata,
            on_directory_failed=lambda directory: self._gone("its disk failed"),
        )
        self.store = SimMetadataStore(
            ensemble, number, clock, session_timeout_ms=SESSION_TIMEOUT_MS
        )
        self.controller = ControllerRuntime(
            store=self.store,
            metadata=self.metadata,
            config=self.config,
            clock=clock,
            random_bytes=loop.chance.randbytes,
            on_store_failed=self.partitions.storage_failed,
        )
        self.member = ClusterMember(
            self.controller,
            self.config,
            clock,
            network.opener(self.host),
            listener_name=LISTENER,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            kept=KeptReplicas(self._log_end, lambda: self.partitions.offline),
            on_epoch=self._registered,
        )
        self._join_replicas()
        self.node = BrokerNode(self.id, (Endpoint(LISTENER, f"broker-{number}", number),))
        self.maintenance = LogMaintenance(
            clock, self.offload, self.config, self.log_manager, self.partitions
        )

    def _join_replicas(self) -> None:
        context = ReplicationContext(
            broker_id=self.id,
            clock=self.clock,
            config=self.config,
            metadata=self.metadata,
            proposer=self.member.proposals,
            states=self.member,
            on_state_read=self.member.state_read,
        )
        self.partitions.replicas = ReplicaManager(context, self.member.channels)

    # --- start and stop ------------------------------------------------------------------------

    def start(self) -> None:
        """Begin; a start that fails ends the process."""
        spawn(self._start()).on_done(self._started)

    def _started(self, done: Deferred[None]) -> None:
        try:
            done.result()
        except MillstreamError as error:
            self._gone(f"it could not start: {error}")

    async def _start(self) -> None:
        manager = self.log_manager
        manager.lock()
        opened: Deferred[None] = Deferred()

        def session_changed(event: SessionEvent) -> None:
            if event is SessionEvent.CONNECTED and not opened.done:
                opened.complete(None)

        self.store.watch_session(session_changed)
        self.store.open()
        await opened
        await self.member.prepare(manager.cluster_id)
        manager.assign_cluster_id(self.metadata.cluster_id)
        loading = LogLoading(self.clock, self.offload, manager, threads_per_directory=1)
        await spawn(loading.run(self._config_of))
        self.host.accept = self._accept
        self._settle(self.member.arrival(self._found()))
        self.damaged = damaged_logs(manager)
        registration = Registration(
            directory_id=manager.directory_id(DIRECTORY) or "",
            continuity=continuity_found(self.files, manager),
        )
        self._loop.note("starts", self.number, registration.continuity)
        self.dispatcher = Dispatcher(self._services())
        await self.member.start(self.node, registration, self.partitions)
        self.maintenance.start()
        self.is_up = True

    def shut_down(self) -> None:
        """Stop as on SIGTERM: give leaderships away, close the logs, end the session."""
        self.is_up = False
        spawn(self._shut_down()).on_done(lambda _: self._gone("it was shut down"))

    async def _shut_down(self) -> None:
        await self.member.give_away()
        self.host.accept = None
        self.maintenance.stop()
        self.partitions.stop()
        await self.member.stop()
        await self.store.close()
        self.log_manager.close()

    def vanish(self) -> None:
        """Be no more: nothing of this process runs from now on."""
        self.is_up = False
        self.clock.is_dead = True
        for connection in tuple(self.host.connections):
            connection.reset()

    def _gone(self, why: str) -> None:
        if not self.clock.is_dead:
            self._on_gone(self, why)

    # --- parts ---------------------------------------------------------------------------------

    def _services(self) -> Services:
        ids = ProducerIds(
            self.store,
            self.id,
            self.partitions.storage_failed,
            first_id=first_unused_id(
                producer.producer_id
                for log in self.log_manager.logs()
                for producer in log.producers()
            ),
        )
        return Services(
            node=self.node,
            clock=self.clock,
            offload=self.offload,
            config=self.config,
            metadata=self.metadata,
            log_manager=self.log_manager,
            partitions=self.partitions,
            controller=self.controller,
            cluster=self.member,
            group_runtime=_no_groups,
            fetch_sessions=FetchSessions(
                slots=100,
                evict_after_ms=120_000,
                random_id=lambda: self._loop.chance.randrange(1, 2**31),
            ),
            producer_ids=ids,
            replica_mover=cast("ReplicaMover", None),
        )

    def _accept(self, peer: int) -> DispatchSession:
        self._connections += 1
        info = ConnectionInfo(self._connections, LISTENER, f"host-{peer}", peer)
        return DispatchSession(self.dispatcher, info)

    def _random_id(self) -> bytes:
        return self._loop.chance.randbytes(16)

    def _config_of(self, topic_partition: TopicPartition, topic_id: TopicId | None) -> TopicConfig:
        image = self.metadata.topic(topic_partition.topic)
        if image is not None and topic_id in (None, image.topic_id):
            return image.config
        return self.config.current.topic_defaults

    def _found(self) -> dict[TopicPartition, FoundLog]:
        return {
            each.topic_partition: FoundLog(each.topic_id, each.latest_epoch)
            for each in self.log_manager.logs()
        }

    def _settle(self, adoption: Adoption) -> None:
        for topic_partition in adoption.deleted:
            self.log_manager.delete(topic_partition, now_ms=self.clock.now_ms())
        for topic_partition in adoption.strays:
            self.log_manager.mark_stray(topic_partition)

    def _registered(self, epoch: int, continuity: int) -> None:
        self._loop.note("registered", self.number, epoch, continuity)
        try:
            write_trust(self.files, self.log_manager, continuity)
        except StorageError as error:
            self.partitions.storage_failed(error)

    def _log_end(self, topic_partition: TopicPartition) -> LogEnd | None:
        kept = self.log_manager.get(topic_partition)
        if kept is None:
            return None
        end = kept.log_end_offset
        return LogEnd(kept.epoch_for_offset(end - 1), end)


def _no_groups() -> GroupCoordinatorRuntime:
    """No client of a simulation is a member of a group."""
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
