"""This broker's requests to the controller, be it this broker or another one.

Kafka: ``BrokerToControllerChannelManager``, ``ForwardingManager``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from millstream.model.broker import NO_BROKER_EPOCH, BrokerId
from millstream.model.clock import Clock
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicId, TopicPartition
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.ensure_topic import EnsureTopicRequest, EnsureTopicResponse
from millstream.protocol.messages.report_offline import (
    OfflineReplica,
    ReportOfflineRequest,
    ReportOfflineResponse,
)
from millstream.protocol.messages.report_silent_followers import (
    ReportSilentFollowersRequest,
    ReportSilentFollowersResponse,
)
from millstream.protocol.messages.stop_leading import StopLeadingRequest, StopLeadingResponse
from millstream.runtime.broker_channels import BrokerChannels
from millstream.runtime.controlling.controller import Controller
from millstream.runtime.metadata.broker_metadata import BrokerMetadata
from millstream.runtime.metadata.metadata_cache import TopicImage
from millstream.runtime.pauses import pause, until

FORWARD_TIMEOUT_MS: Final = 10_000
REPORT_TIMEOUT_MS: Final = 5_000
STOP_LEADING_TIMEOUT_MS: Final = 5_000
PUSHED_LIMIT_MS: Final = 5_000
"""How long a push may follow the answer that says that a topic is there."""
RETRY_MS: Final = 100
LOOK_MS: Final = 5

_ASK_AGAIN: Final = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.STALE_BROKER_EPOCH,
    }
)


class ControllerChannel:
    """Asks whoever is the controller by this broker's metadata.

    ``controller`` decides where that is this broker. Every request fails with a KafkaError:
    NOT_CONTROLLER where no controller is known, those of ``broker_channels`` where it is not
    reached, and what the controller itself answers.
    """

    def __init__(
        self,
        controller: Controller,
        metadata: BrokerMetadata,
        channels: BrokerChannels,
        clock: Clock,
    ) -> None:
        self._controller = controller
        self._metadata = metadata
        self._channels = channels
        self._clock = clock
        self._broker_id = metadata.broker_id

    @property
    def _broker_epoch(self) -> int:
        epoch = self._metadata.broker_epoch
        return NO_BROKER_EPOCH if epoch is None else epoch

    @property
    def _is_here(self) -> bool:
        return self._metadata.cache.controller_id == self._broker_id

    def send(self, request: Request, timeout_ms: float) -> Deferred[Response]:
        """Send one of the messages between brokers to the controller on another broker."""
        controller_id = self._metadata.cache.controller_id
        return self._channels.send_between_brokers(controller_id, request, timeout_ms)

    def forward(self, request: Request, version: int) -> Deferred[Response]:
        """Have the controller on another broker answer a client's request."""
        controller_id = self._metadata.cache.controller_id
        if controller_id in (self._broker_id, BrokerId(-1)):
            failed: Deferred[Response] = Deferred()
            failed.fail(KafkaError(ErrorCode.NOT_CONTROLLER, "no controller is known"))
            return failed
        return self._channels.send(
            controller_id, request, FORWARD_TIMEOUT_MS, version=version, lane="forward"
        )

    def report_offline(self, replicas: Sequence[tuple[TopicId, int]]) -> Deferred[None]:
        """Report all replicas (topic id, partition) that this broker cannot serve."""
        if self._is_here:
            return self._controller.reports.offline_replicas(
                self._broker_id, self._broker_epoch, replicas
            )
        return spawn(self._report_offline(replicas))

    async def _report_offline(self, replicas: Sequence[tuple[TopicId, int]]) -> None:
        request = ReportOfflineRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch,
            replicas=[OfflineReplica(topic_id=each, index=index) for each, index in replicas],
        )
        response = await self.send(request, REPORT_TIMEOUT_MS)
        assert isinstance(response, ReportOfflineResponse)
        if response.error_code:
            raise KafkaError(ErrorCode.of(response.error_code))

    def report_silent_followers(
        self, silent: Collection[BrokerId], unreachable_leaders: Collection[BrokerId]
    ) -> Deferred[bool]:
        """Report the in-sync followers that have stopped to fetch from this broker, and the leaders
        that do not answer it. True when this broker has not acknowledged all that the controller
        has told it.
        """
        if self._is_here:
            return self._controller.reports.silent_followers(
                self._broker_id, self._broker_epoch, silent, unreachable_leaders
            )
        return spawn(self._report_silent_followers(silent, unreachable_leaders))

    async def _report_silent_followers(
        self, silent: Collection[BrokerId], unreachable_leaders: Collection[BrokerId]
    ) -> bool:
        request = ReportSilentFollowersRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch,
            silent=list(silent),
            unreachable_leaders=list(unreachable_leaders),
        )
        controller_id = self._metadata.cache.controller_id
        response = await self._channels.send_about_fetches(
            controller_id, request, REPORT_TIMEOUT_MS
        )
        assert isinstance(response, ReportSilentFollowersResponse)
        if response.error_code:
            raise KafkaError(ErrorCode.of(response.error_code))
        return response.is_behind

    def stop_leading(self) -> Deferred[Sequence[TopicPartition]]:
        """Have the controller elect other leaders for all that this broker leads; return the
        partitions that no other broker can lead.
        """
        return spawn(self._stop_leading())

    async def _stop_leading(self) -> Sequence[TopicPartition]:
        if self._controller.is_active:
            return await self._controller.replicas.stop_leading(self._broker_id, self._broker_epoch)
        if self._is_here:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        request = StopLeadingRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch)
        response = await self.send(request, STOP_LEADING_TIMEOUT_MS)
        assert isinstance(response, StopLeadingResponse)
        if response.error_code:
            raise KafkaError(ErrorCode.of(response.error_code))
        return [TopicPartition(each.topic, each.index) for each in response.remaining]

    # --- topics that are created when they are needed ---------------------------------------------

    def ensure_topic(self, name: str) -> Deferred[TopicImage]:
        """Return a topic, created by the controller when it is not there. Asks again for
        ``FORWARD_TIMEOUT_MS`` while no controller answers.
        """
        return spawn(self._ensure_topic(name))

    async def _ensure_topic(self, name: str) -> TopicImage:
        deadline_ms = self._clock.monotonic_ms() + FORWARD_TIMEOUT_MS
        while True:
            try:
                return await self._ask_for_topic(name)
            except KafkaError as error:
                late = self._clock.monotonic_ms() > deadline_ms
                if late or error.error not in _ASK_AGAIN:
                    raise
            await pause(self._clock, RETRY_MS)

    async def _ask_for_topic(self, name: str) -> TopicImage:
        known = self._metadata.cache.topic(name)
        if known is not None:
            return known
        if self._is_here:
            return await self._controller.topics.ensure_topic(name)
        request = EnsureTopicRequest(
            broker_id=self._broker_id, broker_epoch=self._metadata.broker_epoch or 0, name=name
        )
        response = await self.send(request, FORWARD_TIMEOUT_MS)
        assert isinstance(response, EnsureTopicResponse)
        if response.error_code:
            raise KafkaError(ErrorCode.of(response.error_code), response.error_message)
        return await self._pushed(name)

    async def _pushed(self, name: str) -> TopicImage:
        """Wait until the controller's push tells of a topic that it says is there.

        Taken from the answer it would come out of order: a push that was made before could take it
        away again, log and all, and one that came before could have deleted it.
        """
        find = self._metadata.cache.topic
        await until(
            self._clock,
            lambda: find(name) is not None,
            limit_ms=PUSHED_LIMIT_MS,
            look_ms=LOOK_MS,
        )
        image = find(name)
        if image is None:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"no push tells of {name}, which is there"
            )
        return image
