"""Where a broker's metadata lies, and how it gets in and out: on its own, or in a cluster.

``server.broker`` goes through the same steps for both; what differs is here. kazoo and all that
belongs to clusters is loaded only where `zookeeper.connect` is set.
"""

from __future__ import annotations

import logging
import os
from asyncio import AbstractEventLoop
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from millstream.config.broker import BrokerConfig
from millstream.config.dynamic import DynamicConfig
from millstream.controller.adoption import Adoption, FoundLog
from millstream.model.broker import BrokerNode
from millstream.model.clock import Clock
from millstream.model.deferred import Deferred
from millstream.model.errors import StorageError
from millstream.model.metadata_store import MetadataStore
from millstream.model.offsets import NO_LEADER_EPOCH
from millstream.model.topic import TopicPartition
from millstream.runtime.broker_metadata import BrokerStateListener
from millstream.runtime.controller_runtime import ControllerRuntime
from millstream.runtime.metadata_cache import MetadataCache
from millstream.runtime.offload import Offload
from millstream.runtime.partitions import Partitions
from millstream.storage.environment import LogEnvironment
from millstream.storage.kafka_metadata import KafkaTopics
from millstream.storage.log import Log
from millstream.storage.log_manager import LogManager

if TYPE_CHECKING:
    from millstream.runtime.cluster_member import ClusterMember

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(slots=True)
class BrokerParts:
    """What a home needs of the broker that lives in it."""

    loop: AbstractEventLoop
    config: BrokerConfig
    dynamic: DynamicConfig
    clock: Clock
    offload: Offload
    metadata: MetadataCache
    partitions: Partitions
    log_manager: LogManager
    environment: LogEnvironment
    kafka_topics: KafkaTopics
    wait: Callable[[Deferred[None]], None]
    """Runs the loop until a step of the start or the stop is done."""

    def controller(self, store: MetadataStore) -> ControllerRuntime:
        """Return the controller's runtime over a store."""
        return ControllerRuntime(
            store=store,
            metadata=self.metadata,
            config=self.dynamic,
            clock=self.clock,
            random_bytes=os.urandom,
            on_store_failed=self.partitions.storage_failed,
        )

    def found(self) -> dict[TopicPartition, FoundLog]:
        """Return every log on disk, and what Apache Kafka left word of about its topic."""
        return {each.topic_partition: self._found(each) for each in self.log_manager.logs()}

    def _found(self, each: Log) -> FoundLog:
        name, index = each.topic_partition.topic, each.topic_partition.partition
        if self.metadata.topic(name) is not None:
            return FoundLog(each.topic_id, each.latest_epoch)
        topic = self.kafka_topics.find(name, each.topic_id)
        if topic is None:
            return FoundLog(each.topic_id, each.latest_epoch)
        return FoundLog(
            each.topic_id or topic.topic_id,
            max(each.latest_epoch, topic.leader_epochs.get(index, NO_LEADER_EPOCH)),
            topic.configs,
            topic.partition_count,
        )

    def first_directory(self) -> str:
        """Return the first of ``log.dirs``. StorageError when it is offline: metadata made anew in
        another one would contradict it when it comes back.
        """
        directory = os.path.abspath(self.config.log_directories[0])
        if directory not in self.log_manager.directories:
            raise StorageError(directory, "it holds the metadata and cannot be used")
        return directory


class MetadataHome(Protocol):
    """The steps of a broker's life that concern its metadata."""

    controller: ControllerRuntime
    member: ClusterMember | None
    """The broker's part in a cluster, None for one on its own."""

    def open(self) -> None:
        """Read the metadata into the cache, before the logs are opened."""

    def join(
        self,
        node: BrokerNode,
        listener: BrokerStateListener,
        settle: Callable[[Adoption], None],
    ) -> None:
        """Register the broker, decide about the logs that were found, open what it keeps."""

    def give_away(self) -> None:
        """Let others lead what this broker leads, before it stops."""

    def close(self) -> None:
        """Let go of the metadata."""


class StandaloneHome:
    """Metadata in SQLite, in the first log directory."""

    def __init__(self, parts: BrokerParts) -> None:
        from millstream.sqlite.metadata_store import SqliteMetadataStore

        self._parts = parts
        self._store = SqliteMetadataStore(parts.offload, Path(parts.first_directory()))
        self.controller = parts.controller(self._store)
        self.member: ClusterMember | None = None

    def open(self) -> None:
        """Read the file."""
        self._parts.wait(self.controller.load())

    def join(
        self,
        node: BrokerNode,
        listener: BrokerStateListener,
        settle: Callable[[Adoption], None],
    ) -> None:
        """Take the controller's seat, adopt logs that the file does not know."""
        parts = self._parts
        parts.wait(
            self.controller.start(
                node,
                listener,
                found=parts.found(),
                clean_shutdown=parts.log_manager.had_clean_shutdown,
                settle=settle,
                cluster_id=parts.log_manager.cluster_id,
            )
        )
        parts.log_manager.assign_cluster_id(parts.metadata.cluster_id)

    def give_away(self) -> None:
        """There is nobody else."""

    def close(self) -> None:
        """Close the file."""
        try:
            self._parts.wait(self._store.close())
        except StorageError:
            log.exception("the metadata store was not closed cleanly")


def open_home(parts: BrokerParts) -> MetadataHome:
    """Return where the metadata of a broker with these settings lies."""
    if parts.config.zookeeper_connect:
        from millstream.server.cluster_home import ClusterHome

        return ClusterHome(parts)
    return StandaloneHome(parts)
