"""A broker's core in a cluster, over any metadata store and any network (real or simulated).

The steps, in their order: ``prepare`` once the store is connected, the logs are loaded, ``join``;
at the end ``member.move_leaderships_away``, the core stops, ``member.stop``.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from millstream.controller.election import LogEnd
from millstream.controller.payloads import Registration
from millstream.model.broker import BrokerId, BrokerNode
from millstream.model.errors import StorageError
from millstream.model.metadata_store import MetadataStore
from millstream.model.offsets import NO_LEADER_EPOCH
from millstream.model.topic import TopicPartition
from millstream.runtime.broker_channels import Network, NewSaslClient
from millstream.runtime.membership.cluster_member import ClusterMember, LocalBroker
from millstream.runtime.replicas.leader_role import ReplicationContext
from millstream.runtime.replicas.partitions import is_damaged
from millstream.runtime.replicas.replica_manager import ReplicaManager
from millstream.server.broker_core import BrokerCore
from millstream.storage.continuity import damaged_logs, read_continuity, write_trust

log = logging.getLogger(__name__)


class ClusterBroker:
    """Connects a core to its cluster: replicas, registration, and continuity
    (`storage.continuity`).
    """

    def __init__(
        self,
        core: BrokerCore,
        store: MetadataStore,
        network: Network,
        *,
        listener_name: str,
        session_timeout_ms: int,
        new_sasl: NewSaslClient | None = None,
    ) -> None:
        self._core = core
        self.member = ClusterMember(
            core.controller_state(),
            store,
            core.cluster_clock,
            core.metadata,
            network,
            listener_name=listener_name,
            session_timeout_ms=session_timeout_ms,
            broker=LocalBroker(
                log_end=self._log_end,
                offline_replicas=lambda: core.partitions.offline,
                silent_followers=self._silent_followers,
                read_states_of=self._read_states_of,
                read_all_states=self._read_all_states,
                unreachable_leaders=self._unreachable_leaders,
                listener=core,
                on_registered=self._registered,
                on_store_failed=core.partitions.storage_failed,
                new_sasl=new_sasl,
            ),
        )
        context = ReplicationContext(
            broker_id=core.dynamic.static.broker,
            clock=core.cluster_clock,
            config=core.dynamic,
            metadata=core.metadata,
            proposer=self.member.proposals,
            states=self.member.stored_states,
            on_state_read=self.member.stored_states.take_over,
            lease_ms=lambda: store.lease_ms,
        )
        store.watch_session(context.session_changed)
        self._replica_manager = ReplicaManager(context, self.member.channels)
        core.partitions.replicas = self._replica_manager

    async def prepare(self) -> None:
        """Read the cluster's metadata, once the store is connected."""
        manager = self._core.log_manager
        await self.member.prepare(manager.cluster_id)
        manager.assign_cluster_id(self._core.metadata.cluster_id)

    async def join(self, node: BrokerNode) -> None:
        """Delete replicas that were removed meanwhile, rename logs of unknown topics to ``-stray``,
        then register.
        """
        core = self._core
        core.found_logs.settle(self.member.arrival(core.found_logs.all()))
        # Any directory id distinguishes this broker from another one with the same id; some
        # directories may be offline.
        directory = core.log_manager.directories[0]
        for damaged in damaged_logs(core.log_manager):
            log.error(
                "%s was damaged in the middle: the missing records are fetched again", damaged
            )
        registration = Registration(
            directory_id=core.log_manager.directory_id(directory) or "",
            continuity=read_continuity(core.environment.file_system, core.log_manager),
        )
        if registration.continuity is None and core.log_manager.logs():
            log.info("this broker may have lost data: its ISR memberships no longer count")
        elif registration.continuity is None:
            log.info("this broker starts without logs: it is in no ISR before it has caught up")
        await self.member.start(node, registration)

    def _registered(self, continuity: int) -> None:
        core = self._core
        try:
            write_trust(core.environment.file_system, core.log_manager, continuity)
        except StorageError as error:
            core.partitions.storage_failed(error)

    def _silent_followers(self) -> Collection[BrokerId]:
        return self._replica_manager.check_contact()

    def _read_states_of(self, followers: Collection[BrokerId]) -> None:
        self._replica_manager.read_states_of(followers)

    def _read_all_states(self) -> None:
        self._replica_manager.read_all_states()

    def _unreachable_leaders(self) -> Collection[BrokerId]:
        return self._replica_manager.unreachable_leaders()

    def _log_end(self, topic_partition: TopicPartition) -> LogEnd | None:
        kept = self._core.log_manager.get(topic_partition)
        if kept is None:
            return None
        found = self._core.partitions.replica(topic_partition.topic, topic_partition.partition)
        if found is not None and is_damaged(found):
            # A damaged replica refuses to lead, so any other log is preferred.
            return LogEnd(NO_LEADER_EPOCH, 0)
        end = kept.log_end_offset
        return LogEnd(kept.epoch_for_offset(end - 1), end)
