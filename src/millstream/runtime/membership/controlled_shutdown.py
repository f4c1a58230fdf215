"""A broker that is about to stop has its leaderships moved to other brokers first.

Kafka: ``KafkaServer.controlledShutdown``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from millstream.model.clock import Clock
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import KafkaError
from millstream.model.metadata_store import MetadataStoreError
from millstream.model.topic import TopicPartition
from millstream.runtime.membership.controller_channel import ControllerChannel
from millstream.runtime.metadata.broker_metadata import BrokerMetadata
from millstream.runtime.pauses import at_most, pause, until

log = logging.getLogger(__name__)

STOP_LEADING_MS: Final = 5_000
"""How long a controller is looked for."""
HAND_OVER_MS: Final = 1_000
"""How long brokers are waited for that have not been told of the new leaders."""
RETRY_MS: Final = 100


class ControlledShutdown:
    """Moves the leaderships of this broker away. ``is_propagating`` is True while this broker, as
    the controller, still tells others of its decisions.
    """

    def __init__(
        self,
        channel: ControllerChannel,
        metadata: BrokerMetadata,
        clock: Clock,
        *,
        is_propagating: Callable[[], bool],
    ) -> None:
        self._channel = channel
        self._metadata = metadata
        self._clock = clock
        self._is_propagating = is_propagating

    def run(self) -> Deferred[None]:
        """Move leaderships to other brokers; filled when they are moved, or cannot be, or after
        ``STOP_LEADING_MS + HAND_OVER_MS``: a store that is away would hold up the stop for as long
        as that.
        """
        return at_most(self._clock, spawn(self._run()), STOP_LEADING_MS + HAND_OVER_MS)

    async def _run(self) -> None:
        deadline_ms = self._clock.monotonic_ms() + STOP_LEADING_MS
        logged = ""
        while self._clock.monotonic_ms() < deadline_ms:
            if self._metadata.broker_epoch is None:
                return  # not registered: it leads nothing
            try:
                remaining = await self._channel.stop_leading()
            except (KafkaError, MetadataStoreError) as error:
                if str(error) != logged:
                    logged = str(error)
                    log.info("leaderships cannot be moved to other brokers yet: %s", error)
                await pause(self._clock, RETRY_MS)
                continue
            if remaining:
                log.info("no other broker can lead %s", ", ".join(map(str, remaining[:10])))
            await self._until_handed_over(remaining)
            return

    async def _until_handed_over(self, remaining: Sequence[TopicPartition]) -> None:
        """Wait until this broker, and those that lead now, have been told."""
        kept = set(remaining)

        def is_told() -> bool:
            if self._is_propagating():
                return False
            return not any(
                state.leader == self._metadata.broker_id
                for image in self._metadata.cache.topics()
                for index, state in enumerate(image.partitions)
                if TopicPartition(image.name, index) not in kept
            )

        await until(self._clock, is_told, limit_ms=HAND_OVER_MS, look_ms=20)
