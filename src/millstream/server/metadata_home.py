"""Where a broker's metadata lies, and how it gets in and out: on its own, or in a cluster.

``server.broker`` goes through the same steps for both; what differs is here. kazoo and all that
belongs to clusters is loaded only where `zookeeper.connect` is set.
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
from millstream.runtime.controlling.controller_runtime import ControllerRuntime
from millstream.server.broker_core import BrokerCore

if TYPE_CHECKING:
    from millstream.runtime.membership.cluster_member import ClusterMember

log = logging.getLogger(__name__)

Wait: TypeAlias = Callable[[Deferred[None]], None]
"""Runs the loop until a step of the start or the stop is done."""


class MetadataHome(Protocol):
    """The steps of a broker's life that concern its metadata."""

    controller: ControllerRuntime
    member: ClusterMember | None
    """The broker's part in a cluster, None for one on its own."""

    def open(self) -> None:
        """Read the metadata into the cache, before the logs are opened."""

    def join(self, node: BrokerNode) -> None:
        """Register the broker, decide about the logs that were found, open what it keeps."""

    def until_known(self) -> Deferred[None]:
        """Return what is filled once partitions may be given to the broker."""

    def give_away(self) -> None:
        """Let others lead what this broker leads, before it stops."""

    def close(self) -> None:
        """Let go of the metadata."""


class StandaloneHome:
    """Metadata in SQLite, in the first log directory."""

    def __init__(self, core: BrokerCore, wait: Wait) -> None:
        from millstream.sqlite.metadata_store import SqliteMetadataStore

        self._core = core
        self._wait = wait
        self._store = SqliteMetadataStore(core.offload, _metadata_directory(core))
        self.controller = core.controller(self._store)
        self.member: ClusterMember | None = None

    def open(self) -> None:
        """Read the file."""
        self._wait(self.controller.load())

    def join(self, node: BrokerNode) -> None:
        """Take the controller's seat, adopt logs that the file does not know."""
        core = self._core
        manager = core.log_manager
        self._wait(
            self.controller.start(
                node,
                core,
                found=core.found(),
                clean_shutdown=manager.had_clean_shutdown,
                settle=core.settle_adoption,
                cluster_id=manager.cluster_id,
            )
        )
        manager.assign_cluster_id(core.metadata.cluster_id)

    def until_known(self) -> Deferred[None]:
        """The broker is its own controller."""
        return Deferred.of(None)

    def give_away(self) -> None:
        """There is nobody else."""

    def close(self) -> None:
        """Close the file."""
        try:
            self._wait(self._store.close())
        except StorageError:
            log.exception("the metadata store was not closed cleanly")


def _metadata_directory(core: BrokerCore) -> Path:
    """Return the first log directory. ConfigError where another one holds metadata and it does not:
    made anew, it would know no topic's settings.
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


def open_home(core: BrokerCore, loop: AbstractEventLoop, wait: Wait) -> MetadataHome:
    """Return where the metadata of a broker with these settings lies."""
    if core.dynamic.static.zookeeper_connect:
        from millstream.server.cluster_home import ClusterHome

        return ClusterHome(core, loop, wait)
    return StandaloneHome(core, wait)
