"""Everything a handler may reach, put together once by `server.broker`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from millstream.model.broker import BrokerId, BrokerNode
from millstream.model.clock import Clock
from millstream.runtime.metadata.metadata_cache import MetadataCache, TopicImage

if TYPE_CHECKING:
    from millstream.config.dynamic import DynamicConfig
    from millstream.model.deferred import Deferred
    from millstream.protocol.message import Request, Response
    from millstream.runtime.audit.audit_log import AuditLog
    from millstream.runtime.authentication.delegation_tokens import DelegationTokens
    from millstream.runtime.client_usage import ClientUsage
    from millstream.runtime.controlling.controller import Controller
    from millstream.runtime.coordinators.coordinator_registry import CoordinatorRegistry
    from millstream.runtime.coordinators.group_coordinator_runtime import GroupCoordinatorRuntime
    from millstream.runtime.coordinators.share_coordinator_runtime import ShareCoordinatorRuntime
    from millstream.runtime.coordinators.share_groups_runtime import ShareGroupsRuntime
    from millstream.runtime.coordinators.transaction_coordinator_runtime import (
        TransactionCoordinatorRuntime,
    )
    from millstream.runtime.logs.replica_mover import ReplicaMover
    from millstream.runtime.membership.cluster_member import ClusterMember
    from millstream.runtime.offload import Offload
    from millstream.runtime.producer_ids import ProducerIds
    from millstream.runtime.replicas.fetch_sessions import FetchSessions
    from millstream.runtime.replicas.partitions import Partitions
    from millstream.runtime.share.persister import SharePersister
    from millstream.runtime.share.share_partitions import SharePartitions
    from millstream.runtime.telemetry.client_telemetry import ClientTelemetry
    from millstream.security.authorizer import Authorizer
    from millstream.storage.log_manager import LogManager


EnsureTopic: TypeAlias = "Callable[[str], Deferred[TopicImage]]"
"""Returns a topic, created by the controller, wherever it is, when it is not there. Fails with the
KafkaError that says why it cannot be created."""


SendRequest: TypeAlias = "Callable[[BrokerId, Request, int], Deferred[Response]]"
"""Sends a request to a broker, this one included, with a time-out in milliseconds; see
``server.broker_requests``."""


@dataclass(slots=True)
class Services:
    """The parts of one broker, by what they are for."""

    node: BrokerNode
    clock: Clock
    offload: Offload
    config: DynamicConfig
    metadata: MetadataCache
    log_manager: LogManager
    partitions: Partitions
    controller: Controller
    """The controller on this broker; in a cluster another broker's may be the active one."""
    ensure_topic: EnsureTopic
    cluster: ClusterMember | None
    """This broker as a member of a cluster; None for a broker on its own."""
    coordinators: CoordinatorRegistry
    group_runtime: Callable[[], GroupCoordinatorRuntime]
    """Makes the group coordinator on first use: a broker that runs no groups starts without it."""
    share_runtime: Callable[[], ShareCoordinatorRuntime]
    """Makes the share coordinator on first use."""
    new_share_persister: Callable[[], SharePersister]
    """Makes the persister of share partitions on first use."""
    transaction_runtime: Callable[[], TransactionCoordinatorRuntime]
    """Makes the transaction coordinator on first use."""
    share_partitions: Callable[[], SharePartitions]
    """Makes the share partitions on first use, as ``group_runtime``."""
    fetch_sessions: FetchSessions
    producer_ids: ProducerIds
    new_replica_mover: Callable[[], ReplicaMover]
    """Makes what moves replicas between log directories on first use."""
    send_request: SendRequest
    random_bytes: Callable[[int], bytes]
    """All the chance that a handler has: so many bytes of it."""
    quotas: ClientUsage | None = None
    """What clients use of their quotas; None while no quota is set."""
    authorizer: Authorizer | None = None
    """Decides who may do what; None on a broker that lets everybody do everything."""
    telemetry: ClientTelemetry | None = None
    """What clients push of their own metrics; None where nobody shows it (`metrics.port`)."""
    audit: AuditLog | None = None
    """Records what clients do; None while every kind of event is off."""

    _delegation_tokens: DelegationTokens | None = None

    @property
    def delegation_tokens(self) -> DelegationTokens:
        """The delegation tokens that this broker knows."""
        found = self._delegation_tokens
        if found is None:
            from millstream.runtime.authentication.delegation_tokens import DelegationTokens

            found = DelegationTokens(self.config, self.metadata.entities, self.clock)
            self._delegation_tokens = found
        return found

    @property
    def replica_mover(self) -> ReplicaMover:
        """What moves replicas between the log directories of this broker."""
        return self.new_replica_mover()

    @property
    def shares(self) -> SharePartitions:
        """The share partitions that this broker leads."""
        return self.share_partitions()

    @property
    def groups(self) -> GroupCoordinatorRuntime:
        """The group coordinator of this broker."""
        return self.group_runtime()

    @property
    def share_coordinator(self) -> ShareCoordinatorRuntime:
        """The share coordinator of this broker."""
        return self.share_runtime()

    @property
    def share_persister(self) -> SharePersister:
        """Where share partitions led here, and share groups, keep their state."""
        return self.new_share_persister()

    @property
    def transactions(self) -> TransactionCoordinatorRuntime:
        """The transaction coordinator of this broker."""
        return self.transaction_runtime()

    @property
    def share_groups(self) -> ShareGroupsRuntime:
        """The share groups of the group coordinator, with their state."""
        from millstream.runtime.coordinators.share_groups_runtime import ShareGroupsRuntime

        return ShareGroupsRuntime(self.groups, self.new_share_persister)
