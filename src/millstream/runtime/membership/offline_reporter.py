"""Tells the controller which replicas this broker cannot serve, whenever that changes.

Looked at each time a controller is heard of: a new controller knows nothing, and is told again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Protocol

from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred
from millstream.model.errors import KafkaError
from millstream.model.topic import TopicId, TopicPartition
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.report_offline import (
    OfflineReplica,
    ReportOfflineRequest,
    ReportOfflineResponse,
)
from millstream.runtime.metadata.broker_metadata import BrokerMetadata

TIMEOUT_MS: Final = 5_000

Place = tuple[TopicId, int]


class Sender(Protocol):
    """Reaches the controller, here or elsewhere."""

    broker_id: BrokerId

    def send(self, broker_id: BrokerId, request: Request, timeout_ms: float) -> Deferred[Response]:
        """Send a request to another broker."""

    def report_here(self, broker_epoch: int, places: Collection[Place]) -> Deferred[None]:
        """Tell the controller on this broker."""


class OfflineReporter:
    """One broker's reports. ``offline`` names the replicas that cannot be served now."""

    def __init__(self, sender: Sender, offline: Callable[[], Collection[TopicPartition]]) -> None:
        self._sender = sender
        self._offline = offline
        self._under_way = False
        self._told: tuple[int, int, frozenset[Place]] | None = None
        """Controller epoch, broker epoch and replicas of the last report that was taken."""

    def look(self, local: BrokerMetadata) -> None:
        """Report if the controller does not know what is so."""
        epoch = local.broker_epoch
        if self._under_way or epoch is None:
            return
        places = frozenset(self._places(local))
        news = (local.controller_epoch, epoch, places)
        if news == self._told or (self._told is None and not places):
            return
        self._under_way = True
        controller_id = local.cache.controller_id
        if controller_id == self._sender.broker_id:
            here = self._sender.report_here(epoch, places)
            here.on_done(lambda done: self._answered(news, done))
            return
        request = ReportOfflineRequest(
            broker_id=self._sender.broker_id,
            broker_epoch=epoch,
            replicas=[OfflineReplica(topic_id=each, index=index) for each, index in sorted(places)],
        )
        sent = self._sender.send(controller_id, request, TIMEOUT_MS)
        sent.on_done(lambda done: self._answered(news, done))

    def _places(self, local: BrokerMetadata) -> list[Place]:
        found = []
        for each in self._offline():
            image = local.cache.topic(each.topic)
            if image is not None:
                found.append((image.topic_id, each.partition))
        return found

    def _answered(
        self,
        news: tuple[int, int, frozenset[Place]],
        done: Deferred[Response] | Deferred[None],
    ) -> None:
        self._under_way = False
        try:
            answer = done.result()
        except KafkaError:
            return  # told again when a controller is heard of next
        if not isinstance(answer, ReportOfflineResponse) or answer.error_code == 0:
            self._told = news
