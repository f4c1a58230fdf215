"""The coordinators of one broker, and the share partitions that it leads.

Their code is a fifth of all that a start would load, and many brokers never need it: each is made
at first use.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from millstream.config.dynamic import DynamicConfig
from millstream.coordinator.group.partitioner import group_partition
from millstream.coordinator.share.partitioner import share_coordinator_partition
from millstream.model.clock import Clock
from millstream.model.deferred import Deferred
from millstream.model.features import SHARE_VERSION, FinalizedFeatures
from millstream.model.topic import (
    GROUP_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    TopicPartition,
)
from millstream.runtime.coordinators.coordinator_registry import (
    CoordinatorEntry,
    CoordinatorRegistry,
    CoordinatorType,
)
from millstream.runtime.metadata.metadata_cache import MetadataCache, TopicImage
from millstream.runtime.offload import Offload
from millstream.runtime.replicas.partitions import Partitions
from millstream.runtime.services import EnsureTopic
from millstream.server.broker_requests import BrokerRequests

if TYPE_CHECKING:
    from millstream.coordinator.transaction.init_producer_id import ProducerIdAndEpoch
    from millstream.runtime.coordinators.group_coordinator_runtime import GroupCoordinatorRuntime
    from millstream.runtime.coordinators.share_coordinator_runtime import ShareCoordinatorRuntime
    from millstream.runtime.coordinators.transaction_coordinator_runtime import (
        TransactionCoordinatorRuntime,
    )
    from millstream.runtime.replicas.transaction_verification import TransactionVerifier
    from millstream.runtime.share.persister import SharePersister
    from millstream.runtime.share.share_partitions import SharePartitions


class BrokerCoordination:
    """Makes the coordinators of a broker, and tells them what becomes of their partitions."""

    def __init__(
        self,
        config: DynamicConfig,
        *,
        clock: Clock,
        offload: Offload,
        partitions: Partitions,
        metadata: MetadataCache,
        requests: BrokerRequests,
        random_bytes: Callable[[int], bytes],
        new_producer_id: Callable[[], Deferred[int]],
    ) -> None:
        self._config = config
        self._clock = clock
        self._offload = offload
        self._partitions = partitions
        self._metadata = metadata
        self._requests = requests
        self._random_bytes = random_bytes
        self._new_producer_id = new_producer_id
        self.groups: CoordinatorEntry[GroupCoordinatorRuntime] = CoordinatorEntry(
            CoordinatorType.GROUP, GROUP_METADATA_TOPIC, group_partition, self._new_groups
        )
        self.transactions: CoordinatorEntry[TransactionCoordinatorRuntime] = CoordinatorEntry(
            CoordinatorType.TRANSACTION,
            TRANSACTION_STATE_TOPIC,
            group_partition,
            self._new_transactions,
        )
        self.share_groups: CoordinatorEntry[ShareCoordinatorRuntime] = CoordinatorEntry(
            CoordinatorType.SHARE,
            SHARE_GROUP_STATE_TOPIC,
            share_coordinator_partition,
            self._new_share_groups,
        )
        self.registry = CoordinatorRegistry(
            [self.groups, self.transactions, self.share_groups], partitions
        )
        self._verifier: TransactionVerifier | None = None
        self._share_persister: SharePersister | None = None
        self._shares: SharePartitions | None = None

    # Start, stop, and what the controller says

    def settle(self) -> Deferred[None]:
        """Store what coordinators have put off; filled once it is committed, or cannot be."""
        transactions = self.transactions.made
        return Deferred.of(None) if transactions is None else transactions.settle()

    def stop(self) -> None:
        """Resign, and answer all waiting requests."""
        self.registry.stop()
        if self._share_persister is not None:
            self._share_persister.stop()
        if self._shares is not None:
            self._shares.stop()

    def topic_changed(self, image: TopicImage, *, created: bool) -> None:
        """Start and stop coordinators with the leadership of their partitions."""
        self.registry.topic_changed(image, created=created)
        if self._shares is not None:
            self._shares.topic_changed(image)

    def topic_deleted(self, image: TopicImage) -> None:
        """Stop what was coordinated in the topic's partitions."""
        self.registry.topic_deleted(image)
        if self._shares is not None:
            self._shares.topic_changed(image)

    def features_changed(self, features: FinalizedFeatures) -> None:
        """End all share sessions where share groups are switched off."""
        if self._shares is not None and not features.level(SHARE_VERSION):
            self._shares.forget_all()

    # Groups

    def _new_groups(self) -> GroupCoordinatorRuntime:
        import uuid

        from millstream.runtime.coordinators.group_configs import GroupConfigs
        from millstream.runtime.coordinators.group_coordinator_runtime import (
            GroupCoordinatorRuntime,
        )

        return GroupCoordinatorRuntime(
            self._config.static,
            clock=self._clock,
            offload=self._offload,
            partitions=self._partitions,
            metadata=self._metadata,
            new_id=lambda: str(uuid.UUID(bytes=self._random_bytes(16), version=4)),
            send_request=self._requests.send,
            group_configs=GroupConfigs(self._config, self._metadata),
        )

    # Transactions

    def _new_transactions(self) -> TransactionCoordinatorRuntime:
        from millstream.runtime.coordinators.marker_writes import write_markers
        from millstream.runtime.coordinators.transaction_coordinator_runtime import (
            TransactionCoordinatorRuntime,
        )

        return TransactionCoordinatorRuntime(
            self._config.static,
            clock=self._clock,
            offload=self._offload,
            partitions=self._partitions,
            metadata=self._metadata,
            new_producer_id=self._new_producer_id,
            send_request=self._requests.send,
            write_markers=partial(write_markers, self._clock, self._partitions, self.groups.get),
        )

    def transaction_verifier(self) -> TransactionVerifier:
        """Return what verifies transactions, made at first use."""
        from millstream.runtime.replicas.transaction_verification import TransactionVerifier

        if self._verifier is None:
            self._verifier = TransactionVerifier(
                self._config,
                self._metadata,
                self._clock,
                self._requests.send,
                self._is_in_transaction,
            )
        return self._verifier

    def _is_in_transaction(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition
    ) -> bool:
        """True where the coordinator is here and says so at once."""
        coordinator = self.transactions.made
        return coordinator is not None and coordinator.has_partition(
            transactional_id, producer, partition
        )

    # Share groups

    def _new_share_groups(self) -> ShareCoordinatorRuntime:
        from millstream.runtime.coordinators.share_coordinator_runtime import (
            ShareCoordinatorRuntime,
        )

        return ShareCoordinatorRuntime(
            self._config.static,
            clock=self._clock,
            offload=self._offload,
            partitions=self._partitions,
            metadata=self._metadata,
            send_request=self._requests.send,
        )

    def share_persister(self, ensure_topic: EnsureTopic) -> SharePersister:
        """Return what keeps the states of share partitions, made at first use."""
        from millstream.runtime.share.persister import SharePersister

        if self._share_persister is None:
            self._share_persister = SharePersister(
                clock=self._clock,
                metadata=self._metadata,
                ensure_topic=ensure_topic,
                send_request=self._requests.send,
            )
        return self._share_persister

    def share_partitions(self, ensure_topic: EnsureTopic) -> SharePartitions:
        """Return the share partitions, made at the first request of a share consumer."""
        if self._shares is None:
            from millstream.runtime.share.dead_letter_topics import DeadLetterTopics
            from millstream.runtime.share.share_partitions import SharePartitions
            from millstream.runtime.share.share_settings import share_settings

            self._shares = SharePartitions(
                clock=self._clock,
                partitions=self._partitions,
                persister=self.share_persister(ensure_topic),
                settings_of=lambda group_id: share_settings(
                    self._config.current,
                    self._metadata.group_configs.get(group_id, {}),
                    self._metadata.features.level(SHARE_VERSION),
                ),
                dead_letters=DeadLetterTopics(
                    clock=self._clock,
                    offload=self._offload,
                    metadata=self._metadata,
                    config=self._config,
                    broker_id=self._config.static.broker,
                    send_request=self._requests.send,
                ),
                max_sessions=lambda: self._config.current.group_share_max_share_sessions,
            )
        return self._shares
