"""One broker: every part is made and joined here, and nowhere else."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import uuid
from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from millstream.config import listeners as config_listeners
from millstream.config.broker import BrokerConfig
from millstream.config.dynamic import DynamicConfig
from millstream.config.topic import TopicConfig
from millstream.controller.adoption import Adoption
from millstream.handlers.routes import PIPELINED
from millstream.model.broker import BrokerNode, Endpoint
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ConfigError, StorageError
from millstream.model.metadata_store import MetadataStore
from millstream.model.topic import GROUP_METADATA_TOPIC, TopicId, TopicPartition
from millstream.net.connection import ConnectionPolicy
from millstream.net.connection_quotas import ConnectionLimits, ConnectionQuotas
from millstream.net.listener import Listener
from millstream.net.receive_budget import ReceiveBudget
from millstream.runtime.clock import LoopClock
from millstream.runtime.fetch_sessions import FetchSessions
from millstream.runtime.log_cleaner import LogCleaner
from millstream.runtime.log_loading import LogLoading
from millstream.runtime.log_maintenance import LogMaintenance
from millstream.runtime.metadata_cache import MetadataCache, TopicImage
from millstream.runtime.offload import ThreadOffload
from millstream.runtime.partitions import Partitions
from millstream.runtime.producer_ids import ProducerIds, first_unused_id
from millstream.runtime.replica_mover import ReplicaMover
from millstream.runtime.services import Services
from millstream.server.dispatch import Dispatcher
from millstream.server.metadata_home import BrokerParts, MetadataHome, open_home
from millstream.storage.environment import LogEnvironment, broker_environment
from millstream.storage.kafka_metadata import KafkaTopics
from millstream.storage.log_manager import LogManager

if TYPE_CHECKING:
    from millstream.runtime.coordinator_runtime import GroupCoordinatorRuntime

log = logging.getLogger(__name__)

T = TypeVar("T")

_SESSION_EVICTION_MS: Final = 120_000


class Broker:
    """Logs, metadata, listeners: on its own or in a cluster. ``on_fatal`` ends the process.

    ``environment`` is what its logs use in place of the machine's own files.
    """

    def __init__(
        self,
        config: BrokerConfig,
        loop: AbstractEventLoop,
        *,
        on_fatal: Callable[[], None],
        environment: LogEnvironment | None = None,
    ) -> None:
        self._config = config
        self._loop = loop
        self._on_fatal = on_fatal
        self._started = False
        self.failed = False
        """True once no log directory is left to serve from."""
        self.bound: tuple[str, int] = ("", 0)
        """Host and port of the first listener, once started."""
        self._quotas = ConnectionQuotas(_connection_limits(config))
        self._listeners: list[Listener] = []
        self._clock = LoopClock(loop)
        self._offload = ThreadOffload(loop.call_soon_threadsafe)
        self._dynamic = DynamicConfig(config)
        self._metadata = MetadataCache("")
        self._environment = environment or broker_environment(
            producer_id_expiration_ms=config.producer_id_expiration_ms
        )
        self._log_manager = LogManager(
            config.log_directories, self._environment, broker_id=config.broker
        )
        self._kafka_topics = KafkaTopics(
            self._environment.file_system, lambda: self._log_manager.directories
        )
        self._partitions = Partitions(
            config.broker,
            clock=self._clock,
            offload=self._offload,
            log_manager=self._log_manager,
            metadata=self._metadata,
            on_directory_failed=self._directory_failed,
        )
        self._groups: GroupCoordinatorRuntime | None = None
        self._cleaner = LogCleaner(
            self._clock,
            self._offload,
            self._dynamic,
            log_manager=self._log_manager,
            environment=self._environment,
            on_storage_error=self._partitions.storage_failed,
        )
        self._maintenance = LogMaintenance(
            self._clock,
            self._offload,
            self._dynamic,
            self._log_manager,
            self._partitions,
            busy=lambda: self._cleaner.busy,
        )
        self._mover = ReplicaMover(
            self._clock,
            self._offload,
            self._dynamic,
            log_manager=self._log_manager,
            partitions=self._partitions,
            cleaner=self._cleaner,
        )
        self._home: MetadataHome | None = None

    def start(self) -> None:
        """Read the data directories, listen, take over every partition, accept.

        Clients that connect early wait in the backlog. Raises StorageError, ConfigError, KafkaError
        or OSError when it cannot be.
        """
        config = self._config
        advertised = config.advertised()
        self._log_manager.lock()
        home = self._home = open_home(self._parts())
        home.open()
        self._load_logs()
        node = self._bind(advertised)
        home.join(
            node,
            _LocalBroker(self._partitions, self._on_topic_changed, self._on_topic_deleted),
            self._settle_adoption,
        )
        if self._metadata.topic(GROUP_METADATA_TOPIC) is not None:
            self._group_runtime()
        self._maintenance.start()
        if config.log_cleaner_enable:
            self._cleaner.start()
        self._mover.resume()
        self._started = True
        self._serve(
            Services(
                node=node,
                clock=self._clock,
                offload=self._offload,
                config=self._dynamic,
                metadata=self._metadata,
                log_manager=self._log_manager,
                partitions=self._partitions,
                controller=home.controller,
                cluster=home.member,
                group_runtime=self._group_runtime,
                fetch_sessions=FetchSessions(
                    slots=config.max_incremental_fetch_session_cache_slots,
                    evict_after_ms=_SESSION_EVICTION_MS,
                    random_id=lambda: secrets.randbelow(2**31),
                ),
                producer_ids=self._producer_ids(home.controller.desk.store),
                replica_mover=self._mover,
            )
        )

    def _load_logs(self) -> None:
        self._cordon(self._dynamic.current)
        threads = self._dynamic.current.num_recovery_threads_per_data_dir
        loading = LogLoading(
            self._clock, self._offload, self._log_manager, threads_per_directory=threads
        )
        self._wait(spawn(loading.run(self._config_of)))

    def stop(self) -> None:
        """Accept nothing more, bring everything to disk, and mark the shutdown as clean.

        A broker whose start has failed leaves its directories as they were.
        """
        if self._home is not None and self._started:
            self._home.give_away()
        for listener in self._listeners:
            listener.close()
        self._maintenance.stop()
        self._wait(self._cleaner.stop())
        self._mover.stop()
        if self._groups is not None:
            self._groups.stop()
        self._partitions.stop()
        if self._home is not None:
            self._home.close()
        self._offload.close()
        if not self._started:
            self._log_manager.give_back()
            return
        try:
            self._log_manager.close()
        except StorageError:
            log.exception("the logs were not closed cleanly")
            self.failed = True

    def _parts(self) -> BrokerParts:
        return BrokerParts(
            loop=self._loop,
            config=self._config,
            dynamic=self._dynamic,
            clock=self._clock,
            offload=self._offload,
            metadata=self._metadata,
            partitions=self._partitions,
            log_manager=self._log_manager,
            environment=self._environment,
            kafka_topics=self._kafka_topics,
            wait=self._wait,
        )

    def _group_runtime(self) -> GroupCoordinatorRuntime:
        """Make and start the group coordinator, once.

        It is a fifth of all the code that a start would load, and many brokers never need it.
        """
        if self._groups is None:
            from millstream.runtime.coordinator_runtime import GroupCoordinatorRuntime

            self._groups = GroupCoordinatorRuntime(
                self._config,
                clock=self._clock,
                offload=self._offload,
                partitions=self._partitions,
                metadata=self._metadata,
                new_id=lambda: str(uuid.uuid4()),
            )
            self._groups.start()
        return self._groups

    def _on_topic_changed(self, image: TopicImage, created: bool) -> None:
        """Begin and end the coordinators of groups with the leadership of their partitions."""
        if image.name != GROUP_METADATA_TOPIC or not self._started:
            return
        if self._groups is None and any(
            partition is not None and partition.log.log_end_offset
            for partition in self._partitions.by_name.get(image.name, ())
        ):
            self._group_runtime()
        elif self._groups is not None:
            self._groups.topic_changed(image, created=created)

    def _on_topic_deleted(self, image: TopicImage) -> None:
        if self._groups is not None:
            self._groups.topic_deleted(image)

    def _config_of(self, topic_partition: TopicPartition, topic_id: TopicId | None) -> TopicConfig:
        image = self._metadata.topic(topic_partition.topic)
        if image is not None and topic_id in (None, image.topic_id):
            return image.config
        defaults = self._dynamic.current.topic_defaults
        topic = self._kafka_topics.find(topic_partition.topic, topic_id)
        # Of a log that nobody knows nothing is taken for a loss that may come of compaction.
        overrides = {"cleanup.policy": "compact,delete"} if topic is None else topic.configs
        try:
            return TopicConfig(overrides, defaults)
        except ConfigError:
            return defaults

    def _bind(self, advertised: tuple[config_listeners.Listener, ...]) -> BrokerNode:
        """Listen, and return what clients are told about this broker."""
        config = self._config
        budget = ReceiveBudget(config.queued_max_request_bytes)
        policy = ConnectionPolicy(PIPELINED, config.socket_unsent_max_bytes)
        endpoints = []
        for listening, told in zip(config.listening(), advertised, strict=True):
            listener = Listener(
                listening.name, loop=self._loop, quotas=self._quotas, budget=budget, policy=policy
            )
            self._listeners.append(listener)
            port = listener.bind(listening.host, listening.port)
            if not self.bound[0]:
                self.bound = (listening.host or "0.0.0.0", port)
            host = told.host or listening.host or socket.getfqdn()
            endpoints.append(Endpoint(told.name, host, told.port or port))
        return BrokerNode(config.broker, tuple(endpoints), config.broker_rack)

    def _producer_ids(self, store: MetadataStore) -> ProducerIds:
        logs = self._log_manager.logs()
        known = (producer.producer_id for log in logs for producer in log.producers())
        failed = self._partitions.storage_failed
        return ProducerIds(store, self._config.broker, failed, first_id=first_unused_id(known))

    def _settle_adoption(self, adoption: Adoption) -> None:
        """Say what was found in the directories, and put aside what belongs to nobody."""
        if adoption.topics:
            log.info(
                "adopted from the log directories: %s",
                ", ".join(f"{t.name} ({len(t.partitions)} partitions)" for t, _ in adoption.topics),
            )
        now_ms = self._clock.now_ms()
        for topic_partition in adoption.deleted:
            self._log_manager.delete(topic_partition, now_ms=now_ms)
        for topic_partition in adoption.strays:
            log.warning("%s belongs to no topic here: put aside as stray", topic_partition)
            self._log_manager.mark_stray(topic_partition)

    def _serve(self, services: Services) -> None:
        self._dynamic.on_change(self._on_settings)
        dispatcher = Dispatcher(services)
        for listener in self._listeners:
            listener.start(dispatcher.open_session)

    def _wait(self, outcome: Deferred[T]) -> T:
        """Run the loop until a step of the start or the stop is done."""
        if not outcome.done:
            outcome.on_done(lambda _: self._loop.stop())
        while not outcome.done:
            self._loop.run_forever()
        return outcome.result()

    def _on_settings(self, before: BrokerConfig, after: BrokerConfig) -> None:
        """Take over dynamic settings that are not read afresh at each use."""
        self._environment.producer_id_expiration_ms = after.producer_id_expiration_ms
        self._quotas.set_limits(_connection_limits(after))
        self._cordon(after)

    def _cordon(self, config: BrokerConfig) -> None:
        self._log_manager.cordoned = frozenset(map(os.path.abspath, config.cordoned_directories))

    def _directory_failed(self, directory: str) -> None:
        if not self._log_manager.directories and not self.failed:
            log.critical("no log directory is left: stopping")
            self.failed = True
            self._on_fatal()


class _LocalBroker:
    """Carries the controller's decisions to what this broker keeps."""

    def __init__(
        self,
        partitions: Partitions,
        on_changed: Callable[[TopicImage, bool], None],
        on_deleted: Callable[[TopicImage], None],
    ) -> None:
        self._partitions = partitions
        self._on_changed = on_changed
        self._on_deleted = on_deleted

    def topic_changed(self, image: TopicImage, *, created: bool) -> None:
        self._partitions.topic_changed(image, created=created)
        self._on_changed(image, created)

    def topic_deleted(self, image: TopicImage) -> None:
        self._partitions.topic_deleted(image)
        self._on_deleted(image)

    def config_changed(self, image: TopicImage) -> None:
        self._partitions.config_changed(image)


def _connection_limits(config: BrokerConfig) -> ConnectionLimits:
    overrides = (
        pair.rpartition(":") for pair in config.max_connections_per_ip_overrides.split(",") if pair
    )
    return ConnectionLimits(
        max_frame_bytes=config.socket_request_max_bytes,
        max_connections=config.max_connections,
        max_connections_per_ip=config.max_connections_per_ip,
        max_connections_per_ip_overrides=tuple(
            (address, int(count))
            for host, _, count in overrides
            for address in _addresses(host.strip())
        ),
        max_creation_rate=config.max_connection_creation_rate,
        idle_ms=config.connections_max_idle_ms,
        frame_deadline_ms=config.socket_request_read_timeout_ms,
        backlog=config.socket_listen_backlog_size,
        send_buffer_bytes=_if_given(config, "socket.send.buffer.bytes"),
        receive_buffer_bytes=_if_given(config, "socket.receive.buffer.bytes"),
    )


def _if_given(config: BrokerConfig, name: str) -> int:
    """Return a socket buffer's size where the operator chose one, else −1: the kernel fits it."""
    return int(config.overrides[name]) if name in config.overrides else -1


def _addresses(host: str) -> set[str]:
    """Return the addresses of a host as peers show them."""
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(host.strip("[]"), None)}
    except OSError as error:
        log.warning("max.connections.per.ip.overrides: %s has no address: %s", host, error)
        return set()
