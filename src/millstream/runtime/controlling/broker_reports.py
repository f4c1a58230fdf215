"""What brokers report to the controller of themselves and of each other, and what follows from it.

A report is an event like every other decision. Each kind of report names its sender by broker id
and broker epoch (STALE_BROKER_EPOCH refuses a life of a broker that has ended).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from millstream.controller.election import after_leaving
from millstream.controller.isr_changes import check_sender
from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred
from millstream.model.topic import TopicId, TopicPartition
from millstream.runtime.controlling.controller_events import ControllerEvents
from millstream.runtime.controlling.partition_writes import Changes
from millstream.runtime.controlling.replica_control import ReplicaControl

log = logging.getLogger(__name__)


class BrokerReports:
    """Takes the reports of brokers. ``replicas`` carries out the elections that they cause."""

    def __init__(self, events: ControllerEvents, replicas: ReplicaControl) -> None:
        self._events = events
        self._state = events.state
        self._replicas = replicas

    def offline_replicas(
        self, sender: BrokerId, broker_epoch: int, replicas: Sequence[tuple[TopicId, int]]
    ) -> Deferred[None]:
        """Take note of the replicas (topic id, partition) that a broker cannot serve: it leads none
        of them, and leaves their ISRs, until it has been started again.

        Fails with STALE_BROKER_EPOCH or NOT_CONTROLLER.
        """
        return self._events.submit(lambda: self._offline_replicas(sender, broker_epoch, replicas))

    async def _offline_replicas(
        self, sender: BrokerId, broker_epoch: int, replicas: Sequence[tuple[TopicId, int]]
    ) -> None:
        context = self._state.context
        check_sender(context, sender, broker_epoch)
        # None of them comes back in this life of the broker, and an older report may come last.
        offline = context.offline.get(sender, frozenset()).union(replicas)
        if offline == context.offline.get(sender, frozenset()):
            return
        log.warning("broker %d cannot serve %d of its replicas", sender, len(offline))
        context.offline[sender] = offline
        changes: Changes = {}
        for topic_id, index in replicas:
            topic = context.topic_by_id(topic_id)
            if topic is None or not 0 <= index < len(topic.partitions):
                continue
            state = topic.partitions[index]
            after = after_leaving(
                state,
                frozenset((sender,)),
                context.electorate_of(topic_id, index),
                min_insync_replicas=self._state.min_insync_replicas(topic),
                controller_epoch=context.controller_epoch,
            )
            if after is not state:
                changes[TopicPartition(topic.name, index)] = after
        await self._replicas.apply(changes)
        self._replicas.seek_leaders()
