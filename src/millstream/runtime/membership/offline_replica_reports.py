"""Reports to the controller which replicas this broker cannot serve, whenever that changes.

Compared several times a second with the last report that was taken. A new controller knows nothing,
and is told again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, TypeAlias

from millstream.model.clock import Clock, TimerHandle
from millstream.model.deferred import Deferred
from millstream.model.errors import KafkaError
from millstream.model.topic import TopicId, TopicPartition
from millstream.runtime.metadata.broker_metadata import BrokerMetadata

INTERVAL_MS: Final = 250

Replica: TypeAlias = tuple[TopicId, int]
Send: TypeAlias = Callable[[Sequence[Replica]], Deferred[None]]


class OfflineReplicaReports:
    """One broker's reports. ``offline`` names the replicas that cannot be served now, ``send``
    carries a report to the controller (``ControllerChannel.report_offline``).
    """

    def __init__(
        self,
        clock: Clock,
        metadata: BrokerMetadata,
        offline: Callable[[], Collection[TopicPartition]],
        send: Send,
    ) -> None:
        self._clock = clock
        self._metadata = metadata
        self._timer: TimerHandle | None = None
        self._offline = offline
        self._send = send
        self._under_way = False
        self._reported: tuple[int, int, frozenset[Replica]] | None = None
        """Controller epoch, broker epoch and replicas of the last report that was taken."""

    def start(self) -> None:
        """Look now and every ``INTERVAL_MS``."""
        self.look()
        self._timer = self._clock.call_later(INTERVAL_MS, self.start)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def look(self) -> None:
        """Report, unless the controller knows what is so or an earlier report is under way."""
        metadata = self._metadata
        epoch = metadata.broker_epoch
        if self._under_way or epoch is None:
            return
        replicas = frozenset(self._replicas())
        report = (metadata.controller_epoch, epoch, replicas)
        if report == self._reported or (self._reported is None and not replicas):
            return
        self._under_way = True
        self._send(sorted(replicas)).on_done(lambda done: self._sent(report, done))

    def _replicas(self) -> list[Replica]:
        found = []
        for each in self._offline():
            image = self._metadata.cache.topic(each.topic)
            if image is not None:
                found.append((image.topic_id, each.partition))
        return found

    def _sent(self, report: tuple[int, int, frozenset[Replica]], done: Deferred[None]) -> None:
        self._under_way = False
        try:
            done.result()
        except KafkaError:
            return  # it is reported again at the next look
        self._reported = report
