"""The metadata backend of a broker in a cluster: the store is shared with other brokers, in
ZooKeeper or at a keeper, and the controller may be another one of them.
"""

from __future__ import annotations

import logging
import os
import random
from typing import TYPE_CHECKING, Protocol

from millstream.config.listeners import SASL_PROTOCOLS
from millstream.model.broker import BrokerNode
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ConfigError
from millstream.model.metadata_store import ConnectionLossError, MetadataStore, MetadataStoreError
from millstream.runtime.broker_channels import Network, NewSaslClient
from millstream.runtime.controlling.controller import Controller
from millstream.runtime.membership.cluster_member import ClusterMember
from millstream.runtime.services import EnsureTopic
from millstream.security.sasl.oauthbearer import OAUTHBEARER
from millstream.server.broker_core import BrokerCore
from millstream.server.cluster_broker import ClusterBroker
from millstream.server.metadata_backend import Wait

if TYPE_CHECKING:
    from millstream.runtime.authentication.broker_tokens import BrokerTokens

log = logging.getLogger(__name__)


class _Credentials:
    """How this broker authenticates to others; ``new_client`` is None where their listener has no
    SASL.
    """

    def __init__(self, core: BrokerCore) -> None:
        self.new_client: NewSaslClient | None = None
        self._tokens: BrokerTokens | None = None
        config = core.dynamic.static
        name = config.inter_broker_listener()
        if not any(
            each.name == name and each.protocol in SASL_PROTOCOLS for each in config.listening()
        ):
            return
        if config.sasl_mechanism_inter_broker_protocol == OAUTHBEARER:
            from millstream.runtime.authentication.broker_tokens import open_broker_tokens

            self._tokens = open_broker_tokens(
                core.dynamic, name, clock=core.clock, offload=core.offload, chance=random.random
            )
            self.new_client = self._tokens.client
            return
        from millstream.runtime.authentication.broker_credentials import broker_credentials

        self.new_client = broker_credentials(config, name, os.urandom)

    def close(self) -> None:
        """Fetch no more tokens."""
        if self._tokens is not None:
            self._tokens.close()


class SharedStore(MetadataStore, Protocol):
    """A store that has to be reached first."""

    def open(self, timeout_ms: int) -> Deferred[None]:
        """Connect and open a session; ConnectionLossError when nothing answers in time."""


class ClusterBackend:
    """Implements ``metadata_backend.MetadataBackend`` over a store that brokers share;
    ``unreachable`` is what a start says when nothing answers there.
    """

    def __init__(
        self,
        core: BrokerCore,
        store: SharedStore,
        network: Network,
        wait: Wait,
        *,
        unreachable: str,
    ) -> None:
        config = self._config = core.dynamic.static
        self._wait = wait
        self._joined = False
        self._store = store
        self._unreachable = unreachable
        self._credentials = _Credentials(core)
        self._broker = ClusterBroker(
            core,
            store,
            network,
            listener_name=config.inter_broker_listener(),
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            new_sasl=self._credentials.new_client,
        )
        self._member = self._broker.member

    @property
    def store(self) -> MetadataStore:
        """The store that the brokers share."""
        return self._store

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
        """Connect to the store and read the cluster's metadata."""
        config = self._config
        timeout_ms = config.zookeeper_connection_timeout_ms
        if timeout_ms is None:
            timeout_ms = 2 * config.zookeeper_session_timeout_ms
        try:
            self._wait(self._store.open(timeout_ms))
        except ConnectionLossError as error:
            raise ConfigError(self._unreachable) from error
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
        self._credentials.close()
        try:
            self._wait(self._member.stop())
        except MetadataStoreError as error:
            log.info("/controller was not deleted: %s", error)
        self._wait(self._store.close())
