"""A broker in a cluster: its store is ZooKeeper, its controller may be another broker."""

from __future__ import annotations

import logging
from collections.abc import Callable

from millstream.controller.adoption import Adoption
from millstream.controller.election import LogEnd
from millstream.controller.payloads import Registration
from millstream.model.broker import BrokerNode
from millstream.model.errors import ConfigError, StorageError
from millstream.model.metadata_store import ConnectionLossError, MetadataStoreError
from millstream.model.topic import TopicPartition
from millstream.net.channel import LoopNetwork
from millstream.runtime.broker_metadata import BrokerStateListener
from millstream.runtime.cluster_member import ClusterMember, KeptReplicas
from millstream.runtime.leader_role import ReplicationContext
from millstream.runtime.replica_manager import ReplicaManager
from millstream.server.metadata_home import BrokerParts
from millstream.storage.continuity import continuity_found, damaged_logs, write_trust
from millstream.zookeeper.metadata_store import ZooKeeperMetadataStore

log = logging.getLogger(__name__)


class ClusterHome:
    """Metadata in ZooKeeper; implements ``metadata_home.MetadataHome``."""

    def __init__(self, parts: BrokerParts) -> None:
        config = parts.config
        assert config.zookeeper_connect is not None
        self._parts = parts
        self._joined = False
        self._store = ZooKeeperMetadataStore(
            config.zookeeper_connect,
            clock=parts.clock,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            call_on_loop=parts.loop.call_soon_threadsafe,
        )
        self.controller = parts.controller(self._store)
        self._member = ClusterMember(
            self.controller,
            parts.dynamic,
            parts.clock,
            LoopNetwork(parts.loop),
            listener_name=_inter_broker_listener(parts),
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            kept=KeptReplicas(self._log_end, lambda: parts.partitions.offline),
            on_epoch=self._registered,
        )
        context = ReplicationContext(
            broker_id=config.broker,
            clock=parts.clock,
            config=parts.dynamic,
            metadata=parts.metadata,
            proposer=self._member.proposals,
            states=self._member,
            on_state_read=self._member.state_read,
        )
        self._store.watch_session(context.session_changed)
        parts.partitions.replicas = ReplicaManager(context, self._member.channels)
        self.member: ClusterMember | None = self._member

    def open(self) -> None:
        """Connect to the ensemble and read what the cluster has decided."""
        parts = self._parts
        config = parts.config
        timeout_ms = config.zookeeper_connection_timeout_ms
        if timeout_ms is None:
            timeout_ms = 2 * config.zookeeper_session_timeout_ms
        try:
            parts.wait(self._store.open(timeout_ms))
        except ConnectionLossError as error:
            raise ConfigError(
                f"zookeeper.connect: no server answers at {config.zookeeper_connect}"
            ) from error
        parts.wait(self._member.prepare(parts.log_manager.cluster_id))
        parts.log_manager.assign_cluster_id(parts.metadata.cluster_id)

    def join(
        self,
        node: BrokerNode,
        listener: BrokerStateListener,
        settle: Callable[[Adoption], None],
    ) -> None:
        """Put away what the cluster has taken from this broker, then register."""
        parts = self._parts
        settle(self._member.arrival(parts.found()))
        directory = parts.first_directory()
        for damaged in damaged_logs(parts.log_manager):
            log.error("%s was damaged in the middle: what it lacks is fetched again", damaged)
        registration = Registration(
            directory_id=parts.log_manager.directory_id(directory) or "",
            continuity=continuity_found(parts.environment.file_system, parts.log_manager),
        )
        if registration.continuity is None:
            log.info("this broker may lack what it had: its places in ISRs count no more")
        parts.wait(self._member.start(node, registration, listener))
        self._joined = True

    def give_away(self) -> None:
        """Have the controller elect others."""
        if self._joined and self._parts.config.controlled_shutdown_enable:
            self._parts.wait(self._member.give_away())

    def close(self) -> None:
        """Leave the seat, hang up, end the session: the registration vanishes with it."""
        try:
            self._parts.wait(self._member.stop())
        except MetadataStoreError as error:
            log.info("the controller's seat was not left cleanly: %s", error)
        self._parts.wait(self._store.close())

    def _registered(self, epoch: int, continuity: int) -> None:
        parts = self._parts
        try:
            write_trust(parts.environment.file_system, parts.log_manager, continuity)
        except StorageError as error:
            parts.partitions.storage_failed(error)

    def _log_end(self, topic_partition: TopicPartition) -> LogEnd | None:
        kept = self._parts.log_manager.get(topic_partition)
        if kept is None:
            return None
        end = kept.log_end_offset
        return LogEnd(kept.epoch_for_offset(end - 1), end)


def _inter_broker_listener(parts: BrokerParts) -> str:
    """Return the listener that brokers use among themselves."""
    config = parts.config
    listening = config.listening()
    name = config.inter_broker_listener_name
    if name is not None:
        if all(each.name != name.upper() for each in listening):
            raise ConfigError(f"inter.broker.listener.name: there is no listener {name}")
        return name.upper()
    for each in listening:
        if each.protocol == config.security_inter_broker_protocol.upper():
            return each.name
    raise ConfigError(
        "security.inter.broker.protocol: no listener speaks "
        f"{config.security_inter_broker_protocol}"
    )
