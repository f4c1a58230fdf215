"""The metadata backend of a broker in a cluster: the store is ZooKeeper, the controller may be
another broker.
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop

from millstream.model.broker import BrokerNode
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ConfigError
from millstream.model.metadata_store import ConnectionLossError, MetadataStore, MetadataStoreError
from millstream.net.channel import LoopNetwork
from millstream.runtime.controlling.controller import Controller
from millstream.runtime.membership.cluster_member import ClusterMember
from millstream.runtime.services import EnsureTopic
from millstream.server.broker_core import BrokerCore
from millstream.server.cluster_broker import ClusterBroker
from millstream.server.metadata_backend import Wait
from millstream.zookeeper.metadata_store import ZooKeeperMetadataStore

log = logging.getLogger(__name__)


class ZooKeeperBackend:
    """Metadata in ZooKeeper; implements ``metadata_backend.MetadataBackend``."""

    def __init__(self, core: BrokerCore, loop: AbstractEventLoop, wait: Wait) -> None:
        config = self._config = core.dynamic.static
        assert config.zookeeper_connect is not None
        self._wait = wait
        self._joined = False
        self._zookeeper = ZooKeeperMetadataStore(
            config.zookeeper_connect,
            clock=core.clock,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            call_on_loop=loop.call_soon_threadsafe,
        )
        self._broker = ClusterBroker(
            core,
            self._zookeeper,
            LoopNetwork(loop),
            listener_name=config.inter_broker_listener(),
            session_timeout_ms=config.zookeeper_session_timeout_ms,
        )
        self._member = self._broker.member

    @property
    def store(self) -> MetadataStore:
        """The ensemble."""
        return self._zookeeper

    @property
    def controller(self) -> Controller:
        """The controller on this broker, whether or not it is elected."""
        return self._member.controller

    @property
    def ensure_topic(self) -> EnsureTopic:
        """Asks the controller, on this or another broker."""
        return self._member.channel.ensure_topic

    @property
    def member(self) -> ClusterMember | None:
        """This broker's cluster membership."""
        return self._member

    def open(self) -> None:
        """Connect to the ensemble and read the cluster's metadata."""
        config = self._config
        timeout_ms = config.zookeeper_connection_timeout_ms
        if timeout_ms is None:
            timeout_ms = 2 * config.zookeeper_session_timeout_ms
        try:
            self._wait(self._zookeeper.open(timeout_ms))
        except ConnectionLossError as error:
            raise ConfigError(
                f"zookeeper.connect: no server answers at {config.zookeeper_connect}"
            ) from error
        self._wait(spawn(self._broker.prepare()))

    def join(self, node: BrokerNode) -> None:
        """Delete replicas that were removed meanwhile, rename logs of unknown topics to ``-stray``,
        then register.
        """
        self._wait(spawn(self._broker.join(node)))
        self._joined = True

    def until_known(self) -> Deferred[None]:
        """Wait for a controller, up to a time limit."""
        return self._member.until_known()

    def move_leaderships_away(self) -> None:
        """Request a controlled shutdown from the controller, if `controlled.shutdown.enable` is
        set.
        """
        if self._joined and self._config.controlled_shutdown_enable:
            self._wait(self._member.move_leaderships_away())

    def close(self) -> None:
        """Resign as the controller, close connections, end the session: the registration is deleted
        with it.
        """
        try:
            self._wait(self._member.stop())
        except MetadataStoreError as error:
            log.info("/controller was not deleted: %s", error)
        self._wait(self._zookeeper.close())
