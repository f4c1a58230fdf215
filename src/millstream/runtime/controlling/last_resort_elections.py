"""Elections where no replica is known to have everything: the logs themselves are compared.

`controller.election.last_resort` says when, and among which replicas. Brokers that do not answer
are asked again. They are asked outside the event queue, which must not wait for brokers that are
ill; the election is an event, and counts only answers of brokers that still live in the same epoch,
about partitions whose state is still the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from millstream.controller.election import LogEnd, elect_longest, last_resort
from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.leadership import NO_LEADER
from millstream.model.topic import TopicPartition
from millstream.runtime.controlling.controller_events import ControllerEvents
from millstream.runtime.controlling.partition_writes import Changes, PartitionWrites

log = logging.getLogger(__name__)

LogEnds: TypeAlias = Mapping[TopicPartition, Mapping[BrokerId, LogEnd]]

AskLogs: TypeAlias = Callable[[Mapping[TopicPartition, Sequence[BrokerId]]], Deferred[LogEnds]]
"""Asks brokers how far their logs reach; brokers that do not answer are left out."""

ElectionResults: TypeAlias = dict[TopicPartition, KafkaError | None]
"""What became of each partition; None is success."""

ASK_AGAIN_MS: Final = 1_000


class LastResortElections:
    """Elects leaders for partitions that can have none otherwise. ``ask_logs`` asks brokers,
    ``apply`` stores and publishes what is decided.
    """

    def __init__(
        self,
        events: ControllerEvents,
        partitions: PartitionWrites,
        ask_logs: AskLogs,
        apply: Callable[[Changes], Coroutine[Deferred[Any], None, None]],
    ) -> None:
        self._events = events
        self._state = events.state
        self._partitions = partitions
        self._ask_logs = ask_logs
        self._apply = apply
        self._asking: set[TopicPartition] = set()
        self.count = 0
        """Leaders that were elected so: they may lack records."""

    def seek(self) -> None:
        """Compare logs for every partition that can have no leader otherwise."""
        wanted: dict[bool, dict[TopicPartition, Sequence[BrokerId]]] = {True: {}, False: {}}
        for topic in self._state.context.topics.values():
            allow = self._state.allows_unclean_election(topic)
            for index, state in enumerate(topic.partitions):
                topic_partition = TopicPartition(topic.name, index)
                if state.leader != NO_LEADER or topic_partition in self._asking:
                    continue
                electorate = self._state.context.electorate_of(topic.topic_id, index)
                found = last_resort(state, electorate, allow_unclean=allow)
                if found is not None:
                    wanted[found.unclean][topic_partition] = found.candidates
        for unclean, candidates in wanted.items():
            if candidates:
                self._asking.update(candidates)
                done = spawn(self.compare(candidates, unclean=unclean))
                done.on_done(partial(self._asked, candidates))

    def _asked(
        self, candidates: Mapping[TopicPartition, object], done: Deferred[ElectionResults]
    ) -> None:
        """Ask again later where no leader could be elected: a broker may not have answered, or the
        partition's state has changed.
        """
        self._asking.difference_update(candidates)
        try:
            results = done.result()
            again = not all(each in results and results[each] is None for each in candidates)
        except KafkaError as error:
            log.info("logs could not be compared: %s", error)
            return
        if again:
            self._events.clock.call_later(ASK_AGAIN_MS, self._ask_again)

    def _ask_again(self) -> None:
        if self._state.is_active:
            self.seek()

    async def compare(
        self, candidates: Mapping[TopicPartition, Sequence[BrokerId]], *, unclean: bool
    ) -> ElectionResults:
        """Ask for the logs of partitions, then elect the longest log of each partition's candidates
        in an event. Unless the election is ``unclean``, all of them have to answer. A partition
        whose state has changed since is left out of the results.
        """
        states = {each: self._partitions.find(each) for each in candidates}
        lives = self._lives()
        ends = await self._ask_logs(candidates)

        async def decide() -> ElectionResults:
            now = self._lives()
            same = {
                each: asked
                for each, asked in candidates.items()
                if states[each] is self._partitions.find(each)
            }
            found = {
                topic_partition: {
                    each: end
                    for each, end in ends.get(topic_partition, {}).items()
                    if each in now
                    and lives.get(each) == now[each]
                    and self._may_lead(topic_partition, each)
                }
                for topic_partition in same
            }
            return await self._elect(same, found, unclean=unclean)

        return await self._events.submit(decide)

    def _lives(self) -> dict[BrokerId, int]:
        """Return the broker epochs of all live brokers."""
        return {each: live.node.epoch for each, live in self._state.context.brokers.items()}

    def _may_lead(self, topic_partition: TopicPartition, broker_id: BrokerId) -> bool:
        """True while a broker is not about to stop and can serve its replica."""
        context = self._state.context
        topic_id = context.topics[topic_partition.topic].topic_id
        return broker_id in context.electorate_of(topic_id, topic_partition.partition).live

    async def _elect(
        self,
        candidates: Mapping[TopicPartition, Sequence[BrokerId]],
        ends: LogEnds,
        *,
        unclean: bool,
    ) -> ElectionResults:
        results: ElectionResults = {}
        changes: Changes = {}
        for topic_partition, asked in candidates.items():
            state = self._partitions.find(topic_partition)
            kept = () if state is None else state.replicas
            found = {
                each: end for each, end in ends.get(topic_partition, {}).items() if each in kept
            }
            complete = unclean or len(found) == len(asked)
            if state is None or state.leader != NO_LEADER or not found or not complete:
                results[topic_partition] = KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
                continue
            log.warning(
                "%s: no replica is known to have all records; of %s the one with the longest log "
                "will lead%s",
                topic_partition,
                sorted(found),
                " (unclean)" if unclean else "",
            )
            self.count += 1
            changes[topic_partition] = elect_longest(
                state,
                found,
                controller_epoch=self._state.context.controller_epoch,
                broker_epochs=self._state.broker_epochs(),
            )
            results[topic_partition] = None
        await self._apply(changes)
        return results
