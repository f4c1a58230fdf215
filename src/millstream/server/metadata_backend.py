"""The metadata store of a broker and the steps of its life cycle: standalone, or in a cluster.

``server.broker`` goes through the same steps for both; what differs is here. The cluster modules
are loaded only in a cluster, and kazoo only if `zookeeper.connect` is set.
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from millstream.model.broker import BrokerNode
from millstream.model.deferred import Deferred
from millstream.model.errors import ConfigError, StorageError
from millstream.model.metadata_store import MetadataStore
from millstream.runtime.controlling.controller import Controller
from millstream.runtime.controlling.standalone_controller import StandaloneController
from millstream.runtime.metadata.broker_metadata import BrokerMetadata
from millstream.runtime.services import EnsureTopic
from millstream.server.broker_core import BrokerCore
from millstream.server.machine import Machine, as_it_is

if TYPE_CHECKING:
    from millstream.net.channel import ClientTls
    from millstream.runtime.broker_channels import Network
    from millstream.runtime.membership.cluster_member import ClusterMember

log = logging.getLogger(__name__)

Wait: TypeAlias = Callable[[Deferred[None]], None]
"""Runs the loop until a step of the start or the stop is done."""


class MetadataBackend(Protocol):
    """The metadata steps of a broker's life cycle."""

    @property
    def store(self) -> MetadataStore:
        """The metadata store."""

    @property
    def controller(self) -> Controller:
        """The controller on this broker."""

    @property
    def ensure_topic(self) -> EnsureTopic:
        """Asks the controller, on this or another broker, to create a topic that is needed."""

    @property
    def member(self) -> ClusterMember | None:
        """The broker's cluster membership, None for a standalone broker."""

    def open(self) -> None:
        """Read the metadata into the cache, before the logs are opened."""

    def join(self, node: BrokerNode) -> None:
        """Register the broker, adopt or delete the logs that were found, open its partitions."""

    def until_known(self) -> Deferred[None]:
        """Return a Deferred that is completed once partitions may be assigned to the broker."""

    def move_leaderships_away(self) -> None:
        """Move this broker's leaderships to other brokers, before it stops."""

    def close(self) -> None:
        """Close the store."""


class StandaloneBackend:
    """Metadata in SQLite, in the first log directory."""

    def __init__(self, core: BrokerCore, wait: Wait) -> None:
        from millstream.sqlite.metadata_store import SqliteMetadataStore

        self._core = core
        self._wait = wait
        state = core.controller_state()
        self._database = SqliteMetadataStore(core.offload, _metadata_directory(core))
        metadata = BrokerMetadata(
            state.config.static.broker, core.metadata, core.dynamic, listener=core
        )
        self._standalone = StandaloneController(
            state,
            self._database,
            core.clock,
            metadata,
            on_store_failed=core.partitions.storage_failed,
        )

    @property
    def store(self) -> MetadataStore:
        """The SQLite database."""
        return self._database

    @property
    def controller(self) -> Controller:
        """The only controller there is."""
        return self._standalone.controller

    @property
    def ensure_topic(self) -> EnsureTopic:
        """Creates topics here."""
        return self.controller.topics.ensure_topic

    @property
    def member(self) -> ClusterMember | None:
        """There is no cluster."""
        return None

    def open(self) -> None:
        """Read the file."""
        self._wait(self._standalone.load())

    def join(self, node: BrokerNode) -> None:
        """Become the controller, adopt logs that are not in the database."""
        core = self._core
        manager = core.log_manager
        self._wait(
            self._standalone.start(
                node,
                found=core.found_logs.all(),
                found_group_configs=core.found_logs.group_configs,
                found_entities=core.found_logs.entities,
                clean_shutdown=manager.had_clean_shutdown,
                settle=core.found_logs.settle,
                cluster_id=manager.cluster_id,
            )
        )
        manager.assign_cluster_id(core.metadata.cluster_id)

    def until_known(self) -> Deferred[None]:
        """The broker is its own controller."""
        return Deferred.of(None)

    def move_leaderships_away(self) -> None:
        """There is no other broker."""

    def close(self) -> None:
        """Close the file."""
        try:
            self._wait(self._database.close())
        except StorageError:
            log.exception("the metadata store was not closed cleanly")


def _metadata_directory(core: BrokerCore) -> Path:
    """Return the first log directory. ConfigError if another one has the metadata: a new database
    would have no topic's settings.
    """
    from millstream.sqlite.database import FILE_NAME

    first = Path(core.first_directory())
    if not (first / FILE_NAME).exists():
        for directory in core.log_manager.directories:
            if (Path(directory) / FILE_NAME).exists():
                raise ConfigError(
                    f"{directory} holds the metadata of this broker and has to be the first of "
                    f"log.dirs, not {first}"
                )
    return first


def metadata_backend(
    core: BrokerCore,
    loop: AbstractEventLoop,
    wait: Wait,
    tls: ClientTls | None = None,
    machine: Machine | None = None,
) -> MetadataBackend:
    """Return the metadata backend for a broker's settings. ``tls`` is how connections to other
    brokers are encrypted; ``machine`` is put around those to brokers and to a keeper.
    """
    config = core.dynamic.static
    if not config.is_in_cluster:
        return StandaloneBackend(core, wait)
    from millstream.net.channel import LoopNetwork
    from millstream.server.cluster_backend import ClusterBackend, SharedStore

    network: Network = LoopNetwork(loop, tls)
    if machine is not None:
        network = machine.network(network)
    store: SharedStore
    if config.zookeeper_connect:
        from millstream.server.zookeeper_backend import zookeeper_store

        store = zookeeper_store(config, core.cluster_clock, loop)
        unreachable = f"zookeeper.connect: no server answers at {config.zookeeper_connect}"
    else:
        from millstream.server.keeper_backend import keeper_store

        store = keeper_store(
            config, core.cluster_clock, loop, as_it_is if machine is None else machine.links
        )
        unreachable = (
            f"metadata.keeper.socket: no keeper answers at {config.metadata_keeper_socket}"
        )
    return ClusterBackend(core, store, network, wait, unreachable=unreachable)
