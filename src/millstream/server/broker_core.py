"""A broker without its sockets and its metadata store, shared with simulated brokers.

Clock, offload, disk and randomness are parameters. `server.broker` connects it to the operating
system, `sim.broker` to a simulation; the parts of a broker are constructed here, once.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from millstream.config.broker import BrokerConfig
from millstream.config.dynamic import DynamicConfig
from millstream.config.topic import TopicConfig, stored_topic_config
from millstream.controller.adoption import Adoption, FoundLog, cautious_settings
from millstream.coordinator.group.partitioner import group_partition
from millstream.coordinator.share.partitioner import share_coordinator_partition
from millstream.model.broker import BrokerNode
from millstream.model.clock import Clock
from millstream.model.deferred import Deferred, spawn
from millstream.model.entities import EntityKind, EntityValue
from millstream.model.errors import StorageError
from millstream.model.features import SHARE_VERSION, FinalizedFeatures
from millstream.model.metadata_store import MetadataStore
from millstream.model.offsets import NO_LEADER_EPOCH
from millstream.model.topic import (
    GROUP_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    ZERO_TOPIC_ID,
    TopicId,
    TopicPartition,
)
from millstream.runtime.controlling.controller import Controller
from millstream.runtime.controlling.controller_state import ControllerState
from millstream.runtime.coordinators.coordinator_registry import (
    CoordinatorEntry,
    CoordinatorRegistry,
    CoordinatorType,
)
from millstream.runtime.logs.log_cleaner import LogCleaner
from millstream.runtime.logs.log_loading import LogLoading
from millstream.runtime.logs.log_maintenance import LogMaintenance
from millstream.runtime.logs.replica_mover import ReplicaMover
from millstream.runtime.metadata.metadata_cache import MetadataCache, TopicImage
from millstream.runtime.offload import Offload
from millstream.runtime.producer_ids import ProducerIds, first_unused_id
from millstream.runtime.replicas.fetch_sessions import FetchSessions
from millstream.runtime.replicas.partitions import Partitions
from millstream.runtime.services import EnsureTopic, Services
from millstream.server.broker_requests import BrokerRequests
from millstream.storage.environment import LogEnvironment
from millstream.storage.kafka_metadata import KafkaMetadataLogs
from millstream.storage.log import Log
from millstream.storage.log_manager import LogManager

if TYPE_CHECKING:
    from millstream.coordinator.transaction.init_producer_id import ProducerIdAndEpoch
    from millstream.runtime.coordinators.group_coordinator_runtime import GroupCoordinatorRuntime
    from millstream.runtime.coordinators.share_coordinator_runtime import ShareCoordinatorRuntime
    from millstream.runtime.coordinators.transaction_coordinator_runtime import (
        TransactionCoordinatorRuntime,
    )
    from millstream.runtime.membership.cluster_member import ClusterMember
    from millstream.runtime.replicas.transaction_verification import TransactionVerifier
    from millstream.runtime.share.persister import SharePersister
    from millstream.runtime.share.share_partitions import SharePartitions
    from millstream.security.authorizer import Authorizer

log = logging.getLogger(__name__)

_SESSION_EVICTION_MS: Final = 120_000


class BrokerCore:
    """Logs, partitions, groups and their maintenance. ``on_directory_failed`` is called for each
    log directory that goes offline; ``random_bytes`` is the source of randomness except for the
    logs.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock,
        cluster_clock: Clock | None = None,
        offload: Offload,
        environment: LogEnvironment,
        random_bytes: Callable[[int], bytes],
        on_directory_failed: Callable[[str], None],
    ) -> None:
        self.clock = clock
        self.cluster_clock = cluster_clock or clock
        """The clock of what is agreed with other processes (``server.machine``)."""
        self.offload = offload
        self.environment = environment
        self.dynamic = DynamicConfig(config)
        self.metadata = MetadataCache("", on_features_changed=self._features_changed)
        self._config = config
        self._random_bytes = random_bytes
        self.log_manager = LogManager(config.log_directories, environment, broker_id=config.broker)
        self._kafka_metadata = KafkaMetadataLogs(environment.file_system, self._kafka_directories)
        self._requests = BrokerRequests(config.broker, self.cluster_clock)
        self._verifier: TransactionVerifier | None = None
        self.partitions = Partitions(
            config.broker,
            clock=clock,
            offload=offload,
            log_manager=self.log_manager,
            metadata=self.metadata,
            on_directory_failed=on_directory_failed,
            new_verifier=self._transaction_verifier,
        )
        self._loading: LogLoading | None = None
        self._is_interrupted = False
        self._group_coordinator: CoordinatorEntry[GroupCoordinatorRuntime] = CoordinatorEntry(
            CoordinatorType.GROUP, GROUP_METADATA_TOPIC, group_partition, self._new_groups
        )
        self._share_coordinator: CoordinatorEntry[ShareCoordinatorRuntime] = CoordinatorEntry(
            CoordinatorType.SHARE,
            SHARE_GROUP_STATE_TOPIC,
            share_coordinator_partition,
            self._new_share_coordinator,
        )
        self._share_persister: SharePersister | None = None
        self._transaction_coordinator: CoordinatorEntry[TransactionCoordinatorRuntime] = (
            CoordinatorEntry(
                CoordinatorType.TRANSACTION,
                TRANSACTION_STATE_TOPIC,
                group_partition,
                self._new_transactions,
            )
        )
        self._producer_ids: ProducerIds | None = None
        self.coordinators = CoordinatorRegistry(
            [self._group_coordinator, self._transaction_coordinator, self._share_coordinator],
            self.partitions,
        )
        self._shares: SharePartitions | None = None
        self.cleaner = LogCleaner(
            clock,
            offload,
            self.dynamic,
            log_manager=self.log_manager,
            environment=environment,
            on_storage_error=self.partitions.storage_failed,
        )
        self.maintenance = LogMaintenance(
            clock,
            offload,
            self.dynamic,
            self.log_manager,
            self.partitions,
            busy=lambda: self.cleaner.busy,
        )
        self._mover = ReplicaMover(
            clock,
            offload,
            self.dynamic,
            log_manager=self.log_manager,
            partitions=self.partitions,
            cleaner=self.cleaner,
        )

    # --- what its metadata store needs -----------------------------------------------------------

    def controller_state(self) -> ControllerState:
        """Return the initial state of the controller on this broker."""
        return ControllerState(self.dynamic, self._random_bytes)

    def found(self) -> dict[TopicPartition, FoundLog]:
        """Return every log on disk, with its topic's settings from Apache Kafka's metadata log, if
        any.
        """
        return {each.topic_partition: self._found(each) for each in self.log_manager.logs()}

    def _found(self, each: Log) -> FoundLog:
        name, index = each.topic_partition.topic, each.topic_partition.partition
        if self.metadata.topic(name) is not None:
            return FoundLog(each.topic_id, each.latest_epoch)
        topic = self._kafka_metadata.find_topic(name, each.topic_id)
        if topic is None:
            configs = cautious_settings(name, self.dynamic.current)
            return FoundLog(each.topic_id, each.latest_epoch, configs)
        return FoundLog(
            each.topic_id or topic.topic_id,
            max(each.latest_epoch, topic.leader_epochs.get(index, NO_LEADER_EPOCH)),
            topic.configs,
            topic.partition_count,
        )

    def found_group_configs(self) -> Mapping[str, Mapping[str, str]]:
        """Return the settings of groups in Apache Kafka's metadata log, if there is one."""
        return self._kafka_metadata.group_configs()

    def found_entities(self) -> Mapping[EntityKind, Mapping[str, EntityValue]]:
        """Return rules of access, quotas, SCRAM users and delegation tokens in Apache Kafka's
        metadata log, if there is one. Tokens are those of `delegation.token.secret.key`: without it
        nobody could use them.
        """
        found = self._kafka_metadata.entities()
        tokens = found.get(EntityKind.DELEGATION_TOKEN)
        if tokens and not self._config.delegation_token_secret_key:
            log.warning(
                "%d delegation tokens of Apache Kafka are not taken over: there is no "
                "delegation.token.secret.key, which has to be that of before",
                len(tokens),
            )
            return {kind: each for kind, each in found.items() if each is not tokens}
        return found

    def _kafka_directories(self) -> list[str]:
        """Return the directories that may contain a metadata log of Apache Kafka."""
        apart = self._config.metadata_log_dir
        return [*self.log_manager.directories, *([os.path.abspath(apart)] if apart else ())]

    def first_directory(self) -> str:
        """Return the first of ``log.dirs``. StorageError when it is offline: metadata created in
        another one would contradict it when it comes back.
        """
        directory = os.path.abspath(self._config.log_directories[0])
        if directory not in self.log_manager.directories:
            raise StorageError(directory, "it holds the metadata and cannot be used")
        return directory

    def settle_adoption(self, adoption: Adoption) -> None:
        """Log what was adopted from the directories, and rename logs of unknown topics to
        ``-stray``.
        """
        if adoption.topics:
            log.info(
                "adopted from the log directories: %s",
                ", ".join(f"{t.name} ({len(t.partitions)} partitions)" for t, _ in adoption.topics),
            )
        unknown = [
            topic.name
            for topic, count in adoption.topics
            if not count and self._kafka_metadata.find_topic(topic.name, topic.topic_id) is None
        ]
        if unknown:
            log.warning(
                "the settings of %s are unknown: nothing of them is deleted until you change them "
                "(retention.ms and retention.bytes are -1)",
                ", ".join(unknown),
            )
        now_ms = self.clock.now_ms()
        for topic_partition in adoption.deleted:
            self.log_manager.delete(topic_partition, now_ms=now_ms)
        for topic_partition in adoption.strays:
            log.warning("%s belongs to no known topic: renamed to -stray", topic_partition)
            self.log_manager.mark_stray(topic_partition)

    # --- start and stop ------------------------------------------------------------------------

    async def load_logs(self) -> None:
        """Open every log of the directories, once the metadata is read."""
        self.cordon(self.dynamic.current)
        self.log_manager.topic_id_of = self._topic_id_of
        threads = self.dynamic.current.num_recovery_threads_per_data_dir
        loading = self._loading = LogLoading(
            self.clock, self.offload, self.log_manager, threads_per_directory=threads
        )
        if self._is_interrupted:
            loading.stop()
        await spawn(loading.run(self._config_of))

    def interrupt(self) -> None:
        """Make a start that is still loading logs fail with LoadingStoppedError. A signal handler
        may call it.
        """
        self._is_interrupted = True
        if self._loading is not None:
            self._loading.stop()

    def begin(self) -> None:
        """Start the maintenance of logs, and the coordinators of the partitions that this broker
        leads.
        """
        self.coordinators.begin()
        self.maintenance.start()
        if self._config.log_cleaner_enable:
            self.cleaner.start()
        self._mover.resume()

    async def stop(self) -> None:
        """Resign all leaderships and answer all waiting requests."""
        self.maintenance.stop()
        await self.cleaner.stop()
        self._mover.stop()
        self.coordinators.stop()
        if self._share_persister is not None:
            self._share_persister.stop()
        if self._shares is not None:
            self._shares.stop()
        self.partitions.stop()

    def cordon(self, config: BrokerConfig) -> None:
        """Apply which log directories get no new logs (`cordoned.log.dirs`)."""
        self.log_manager.cordoned = frozenset(map(os.path.abspath, config.cordoned_directories))

    def services(
        self,
        node: BrokerNode,
        *,
        store: MetadataStore,
        controller: Controller,
        ensure_topic: EnsureTopic,
        member: ClusterMember | None,
    ) -> Services:
        """Return the services of the request handlers."""
        self._producer_ids = self._producer_ids_of(store)
        services = Services(
            node=node,
            clock=self.clock,
            offload=self.offload,
            config=self.dynamic,
            metadata=self.metadata,
            log_manager=self.log_manager,
            partitions=self.partitions,
            controller=controller,
            ensure_topic=ensure_topic,
            cluster=member,
            coordinators=self.coordinators,
            group_runtime=self._group_coordinator.get,
            share_runtime=self._share_coordinator.get,
            new_share_persister=lambda: self._get_share_persister(ensure_topic),
            transaction_runtime=self._transaction_coordinator.get,
            share_partitions=lambda: self._share_partitions(ensure_topic),
            fetch_sessions=FetchSessions(
                slots=self._config.max_incremental_fetch_session_cache_slots,
                evict_after_ms=_SESSION_EVICTION_MS,
                random_id=lambda: int.from_bytes(self._random_bytes(4), "big") >> 1,
            ),
            producer_ids=self._producer_ids,
            replica_mover=self._mover,
            send_request=self._requests.send,
            random_bytes=self._random_bytes,
            authorizer=self._authorizer(),
        )
        self._requests.begin(services)
        return services

    def _authorizer(self) -> Authorizer | None:
        """Return what decides who may do what, None where everybody may do everything."""
        if not self._config.authorizer_class_name:
            return None
        from millstream.runtime.metadata.access_rules import authorizer_of

        return authorizer_of(self._config, self.metadata.entities)

    def _producer_ids_of(self, store: MetadataStore) -> ProducerIds:
        logs = self.log_manager.logs()
        known = (producer.producer_id for log in logs for producer in log.producers.entries())
        failed = self.partitions.storage_failed
        return ProducerIds(store, self._config.broker, failed, first_id=first_unused_id(known))

    def _new_groups(self) -> GroupCoordinatorRuntime:
        """Create the group coordinator on first use: its code is a fifth of all that a start would
        load, and many brokers never need it.
        """
        from millstream.runtime.coordinators.group_configs import GroupConfigs
        from millstream.runtime.coordinators.group_coordinator_runtime import (
            GroupCoordinatorRuntime,
        )

        return GroupCoordinatorRuntime(
            self._config,
            clock=self.clock,
            offload=self.offload,
            partitions=self.partitions,
            metadata=self.metadata,
            new_id=lambda: str(uuid.UUID(bytes=self._random_bytes(16), version=4)),
            send_request=self._requests.send,
            group_configs=GroupConfigs(self.dynamic, self.metadata),
        )

    def _new_transactions(self) -> TransactionCoordinatorRuntime:
        """Create the transaction coordinator on first use, as the group coordinator."""
        from millstream.runtime.coordinators.transaction_coordinator_runtime import (
            TransactionCoordinatorRuntime,
        )

        return TransactionCoordinatorRuntime(
            self._config,
            clock=self.clock,
            offload=self.offload,
            partitions=self.partitions,
            metadata=self.metadata,
            new_producer_id=self._new_producer_id,
            send_request=self._requests.send,
        )

    def _new_producer_id(self) -> Deferred[int]:
        assert self._producer_ids is not None, "requests are served with the services"
        return self._producer_ids.next()

    def _transaction_verifier(self) -> TransactionVerifier:
        """Return what verifies transactions, made at first use."""
        from millstream.runtime.replicas.transaction_verification import TransactionVerifier

        if self._verifier is None:
            self._verifier = TransactionVerifier(
                self.dynamic,
                self.metadata,
                self.clock,
                self._requests.send,
                self._is_in_transaction,
            )
        return self._verifier

    def _is_in_transaction(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition
    ) -> bool:
        """True where the coordinator is here and says so at once."""
        coordinator = self._transaction_coordinator.made
        return coordinator is not None and coordinator.has_partition(
            transactional_id, producer, partition
        )

    def _new_share_coordinator(self) -> ShareCoordinatorRuntime:
        from millstream.runtime.coordinators.share_coordinator_runtime import (
            ShareCoordinatorRuntime,
        )

        return ShareCoordinatorRuntime(
            self._config,
            clock=self.clock,
            offload=self.offload,
            partitions=self.partitions,
            metadata=self.metadata,
            send_request=self._requests.send,
        )

    def _get_share_persister(self, ensure_topic: EnsureTopic) -> SharePersister:
        from millstream.runtime.share.persister import SharePersister

        if self._share_persister is None:
            self._share_persister = SharePersister(
                clock=self.clock,
                metadata=self.metadata,
                ensure_topic=ensure_topic,
                send_request=self._requests.send,
            )
        return self._share_persister

    def _share_partitions(self, ensure_topic: EnsureTopic) -> SharePartitions:
        """Return the share partitions, made at the first request of a share consumer."""
        if self._shares is None:
            from millstream.runtime.share.dead_letter_topics import DeadLetterTopics
            from millstream.runtime.share.share_partitions import SharePartitions
            from millstream.runtime.share.share_settings import share_settings

            self._shares = SharePartitions(
                clock=self.clock,
                partitions=self.partitions,
                persister=self._get_share_persister(ensure_topic),
                settings_of=lambda group_id: share_settings(
                    self.dynamic.current,
                    self.metadata.group_configs.get(group_id, {}),
                    self.metadata.features.level(SHARE_VERSION),
                ),
                dead_letters=DeadLetterTopics(
                    clock=self.clock,
                    offload=self.offload,
                    metadata=self.metadata,
                    config=self.dynamic,
                    broker_id=self._config.broker,
                    send_request=self._requests.send,
                ),
                max_sessions=lambda: self.dynamic.current.group_share_max_share_sessions,
            )
        return self._shares

    def _features_changed(self, features: FinalizedFeatures) -> None:
        """End all share sessions where share groups are switched off."""
        if self._shares is not None and not features.level(SHARE_VERSION):
            self._shares.forget_all()

    def _topic_id_of(self, name: str) -> TopicId | None:
        image = self.metadata.topic(name)
        if image is not None:
            return image.topic_id
        # The metadata of a cluster is complete; a broker on its own may find topics to adopt.
        return None if self.partitions.replicas is None else ZERO_TOPIC_ID

    def _config_of(self, topic_partition: TopicPartition, topic_id: TopicId | None) -> TopicConfig:
        image = self.metadata.topic(topic_partition.topic)
        if image is not None and topic_id in (None, image.topic_id):
            return image.config
        defaults = self.dynamic.current.topic_defaults
        topic = self._kafka_metadata.find_topic(topic_partition.topic, topic_id)
        # For a log of an unknown topic, gaps are assumed to come from compaction, not from loss.
        overrides = {"cleanup.policy": "compact,delete"} if topic is None else topic.configs
        # Invalid settings are reported where the topic is applied.
        return stored_topic_config(overrides, defaults, lambda _: None)

    # --- what the controller says (runtime.broker_metadata.BrokerStateListener) -----------------

    def topic_changed(self, image: TopicImage, *, created: bool) -> None:
        """Open the partitions hosted here; start and stop coordinators with the leadership of their
        partitions.
        """
        self.partitions.topic_changed(image, created=created)
        self.coordinators.topic_changed(image, created=created)
        if self._shares is not None:
            self._shares.topic_changed(image)

    def topic_deleted(self, image: TopicImage) -> None:
        """Close the partitions hosted here and schedule them for deletion."""
        self.partitions.topic_deleted(image)
        self.coordinators.topic_deleted(image)
        if self._shares is not None:
            self._shares.topic_changed(image)

    def config_changed(self, image: TopicImage) -> None:
        """Apply a topic's changed settings."""
        self.partitions.config_changed(image)
