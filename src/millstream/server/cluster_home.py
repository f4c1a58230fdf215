"""A broker in a cluster: its store is ZooKeeper, its controller may be another broker."""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop

from millstream.model.broker import BrokerNode
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ConfigError
from millstream.model.metadata_store import ConnectionLossError, MetadataStoreError
from millstream.net.channel import LoopNetwork
from millstream.runtime.membership.cluster_member import ClusterMember
from millstream.server.broker_core import BrokerCore
from millstream.server.membership import Membership
from millstream.server.metadata_home import Wait
from millstream.zookeeper.metadata_store import ZooKeeperMetadataStore

log = logging.getLogger(__name__)


class ClusterHome:
    """Metadata in ZooKeeper; implements ``metadata_home.MetadataHome``."""

    def __init__(self, core: BrokerCore, loop: AbstractEventLoop, wait: Wait) -> None:
        config = self._config = core.dynamic.static
        assert config.zookeeper_connect is not None
        self._wait = wait
        self._joined = False
        self._store = ZooKeeperMetadataStore(
            config.zookeeper_connect,
            clock=core.clock,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            call_on_loop=loop.call_soon_threadsafe,
        )
        self._membership = Membership(
            core,
            self._store,
            LoopNetwork(loop),
            listener_name=config.inter_broker_listener(),
            session_timeout_ms=config.zookeeper_session_timeout_ms,
        )
        self.controller = self._membership.controller
        self.member: ClusterMember | None = self._membership.member

    def open(self) -> None:
        """Connect to the ensemble and read what the cluster has decided."""
        config = self._config
        timeout_ms = config.zookeeper_connection_timeout_ms
        if timeout_ms is None:
            timeout_ms = 2 * config.zookeeper_session_timeout_ms
        try:
            self._wait(self._store.open(timeout_ms))
        except ConnectionLossError as error:
            raise ConfigError(
                f"zookeeper.connect: no server answers at {config.zookeeper_connect}"
            ) from error
        self._wait(spawn(self._membership.prepare()))

    def join(self, node: BrokerNode) -> None:
        """Put away what the cluster has taken from this broker, then register."""
        self._wait(spawn(self._membership.join(node)))
        self._joined = True

    def until_known(self) -> Deferred[None]:
        """Wait for a controller, for a while."""
        return self._membership.member.until_known()

    def give_away(self) -> None:
        """Have the controller elect others."""
        if self._joined and self._config.controlled_shutdown_enable:
            self._wait(self._membership.member.give_away())

    def close(self) -> None:
        """Leave the seat, hang up, end the session: the registration vanishes with it."""
        try:
            self._wait(self._membership.member.stop())
        except MetadataStoreError as error:
            log.info("the controller's seat was not left cleanly: %s", error)
        self._wait(self._store.close())
