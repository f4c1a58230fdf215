"""Finds the position of every assigned partition, and validates it after leader changes.

In this order: the committed offset; without one, ``auto.offset.reset``; and after a change of
leaders, a check that the new leader's log still has what was read (KIP-320). One round runs at a
time; temporary errors are retried by the next.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from millstream.client.core.consumer.errors import LogTruncationError, NoOffsetError
from millstream.client.core.consumer.group_commits import GroupCommits
from millstream.client.core.consumer.offset_lookup import OffsetLookup
from millstream.client.core.consumer.record import OffsetAndMetadata, OffsetAndTimestamp
from millstream.client.core.consumer.reset import LATEST, NONE
from millstream.client.core.consumer.settings import ConsumerSettings
from millstream.client.core.consumer.subscription import PartitionState, Phase, Subscription
from millstream.client.core.loop import ClientLoop
from millstream.client.core.metadata import MetadataView
from millstream.client.errors import ClientError, ClosedError, UnsupportedVersionError, is_retriable
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import KafkaError
from millstream.model.offsets import LeaderEpoch, Offset
from millstream.model.topic import TopicPartition

_log = logging.getLogger("millstream.client.consumer")


class Positions:
    """Moves partitions towards FETCHING. ``on_ready`` is called when some have reached it."""

    def __init__(
        self,
        loop: ClientLoop,
        metadata: MetadataView,
        settings: ConsumerSettings,
        subscription: Subscription,
        lookup: OffsetLookup,
        commits: GroupCommits | None,
    ) -> None:
        self.on_ready: Callable[[], None] = lambda: None
        self.on_failure: Callable[[Exception], None] = lambda error: None
        self._loop = loop
        self._metadata = metadata
        self._settings = settings
        self._subscription = subscription
        self._lookup = lookup
        self._commits = commits
        self._running = False
        self._again = False
        self._closed = False
        self._waiting: list[Deferred[None]] = []

    def update(self) -> None:
        """Schedule a round that finds missing positions."""
        if self._closed:
            return
        if self._running:
            self._again = True
            return
        self._running = True
        self._loop.call_soon(self._begin)

    def close(self) -> None:
        """Stop."""
        self._closed = True
        self._wake()

    def notify(self, ready: Deferred[None]) -> None:
        """Complete ``ready`` after the present round, or the next one."""
        self._waiting.append(ready)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done:
                each.complete(None)

    def learn_leaders(self) -> None:
        """Take leader epochs from metadata; a new one may require validation."""
        for topic_partition, state in self._subscription.partitions.items():
            partition = self._metadata.partition(topic_partition)
            if partition is not None and partition.leader >= 0:
                state.on_leader(partition.leader_epoch)
        self.update()

    def _begin(self) -> None:
        spawn(self._round())

    async def _round(self) -> None:
        self._again = False
        steps: list[tuple[Phase, Callable[[list[PartitionState]], Awaitable[None]]]] = [
            (Phase.AWAIT_COMMITTED, self._from_committed),
            (Phase.AWAIT_RESET, self._from_reset),
            (Phase.AWAIT_VALIDATION, self._validate),
        ]
        for phase, step in steps:
            states = self._subscription.in_phase(phase, self._loop.now_ms())
            if states and not self._closed:
                await self._try(step, states)
        self._running = False
        self._wake()
        if self._closed:
            return
        self.on_ready()
        if self._again:
            self.update()

    async def _try(
        self,
        step: Callable[[list[PartitionState]], Awaitable[None]],
        states: list[PartitionState],
    ) -> None:
        fences = [state.fence for state in states]
        try:
            await step(states)
        except ClosedError:
            self._closed = True
        except (ClientError, KafkaError) as error:
            if not is_retriable(error):
                self.on_failure(error)
            else:
                _log.debug("positions: %s", error)
            self._later(states, fences)

    def _later(self, states: Sequence[PartitionState], fences: Sequence[int]) -> None:
        retry_at = self._loop.now_ms() + self._settings.retry_backoff_ms
        for state, fence in zip(states, fences, strict=True):
            if state.fence == fence and state.phase is not Phase.FETCHING:
                state.retry_at_ms = retry_at
        self._loop.call_at(retry_at, self.update)

    # --- committed offsets -----------------------------------------------------------------------

    async def _from_committed(self, states: list[PartitionState]) -> None:
        fences = {state: state.fence for state in states}
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        if self._commits is not None:
            found = await self._commits.committed(state.topic_partition for state in states)
        without: list[TopicPartition] = []
        for state, fence in fences.items():
            if state.fence != fence or state.phase is not Phase.AWAIT_COMMITTED:
                continue
            committed = found.get(state.topic_partition)
            if committed is not None:
                self._learn_leader(state)
                state.seek(committed.offset, committed.leader_epoch)
            elif self._settings.auto_offset_reset == NONE:
                without.append(state.topic_partition)
            else:
                state.await_reset(self._settings.auto_offset_reset)
        if without:
            raise NoOffsetError(without)

    def _learn_leader(self, state: PartitionState) -> None:
        partition = self._metadata.partition(state.topic_partition)
        if partition is not None and partition.leader >= 0:
            state.on_leader(partition.leader_epoch)

    # --- auto.offset.reset -----------------------------------------------------------------------

    async def _from_reset(self, states: list[PartitionState]) -> None:
        fences = {state: state.fence for state in states}
        now = self._loop.wall_clock_ms()
        timestamps: dict[TopicPartition, int] = {}
        for state in states:
            assert state.reset is not None
            timestamps[state.topic_partition] = state.reset.timestamp(now)
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        try:
            await self._find(timestamps, found)
        finally:
            for state, fence in fences.items():
                topic_partition = state.topic_partition
                if (
                    topic_partition in found
                    and state.fence == fence
                    and state.phase is Phase.AWAIT_RESET
                ):
                    self._learn_leader(state)
                    self._reset_to(state, found[topic_partition])

    async def _find(
        self,
        timestamps: dict[TopicPartition, int],
        found: dict[TopicPartition, OffsetAndTimestamp | None],
    ) -> None:
        """Look the offsets up; a time after the last record means the end (KIP-1106)."""
        first: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        try:
            await self._lookup.find_once(timestamps, first)
        finally:
            found.update(
                {
                    topic_partition: each
                    for topic_partition, each in first.items()
                    if each is not None
                }
            )
        late = [topic_partition for topic_partition, each in first.items() if each is None]
        if late:
            end = LATEST.timestamp(0)
            await self._lookup.find_once(dict.fromkeys(late, end), found)

    def _reset_to(self, state: PartitionState, found: OffsetAndTimestamp | None) -> None:
        offset = 0 if found is None else found.offset
        _log.info("offset of %s reset to %d", state.topic_partition, offset)
        state.seek(offset)

    # --- KIP-320 ---------------------------------------------------------------------------------

    async def _validate(self, states: list[PartitionState]) -> None:
        fences = {state: state.fence for state in states}
        epochs = {
            state.topic_partition: (state.leader_epoch, _fetch_epoch(state)) for state in states
        }
        found: dict[TopicPartition, tuple[LeaderEpoch, Offset]] = {}
        try:
            await self._lookup.ends_of_epochs(epochs, found)
        except UnsupportedVersionError:
            for state, fence in fences.items():
                if state.fence == fence and state.phase is Phase.AWAIT_VALIDATION:
                    state.phase = Phase.FETCHING
            return
        finally:
            for state, fence in fences.items():
                end = found.get(state.topic_partition)
                valid = state.fence == fence and state.phase is Phase.AWAIT_VALIDATION
                if (
                    end is not None
                    and valid
                    and epochs[state.topic_partition][0] == (state.leader_epoch)
                ):
                    self._judge(state, *end)
        if any(state.phase is Phase.AWAIT_VALIDATION for state in states):
            self._again = True

    def _judge(self, state: PartitionState, epoch: LeaderEpoch, end_offset: Offset) -> None:
        """Continue, or go back to where the leader's log diverges from what was read."""
        position = state.position
        undefined = end_offset < 0 or epoch < 0
        if not undefined and end_offset >= position:
            state.phase = Phase.FETCHING
            if end_offset < state.fetch_offset:
                # Buffered records beyond the end were truncated: fetch again from the position.
                state.void()
            return
        _log.warning(
            "%s was truncated below %d: its log ends for epoch %d at %d",
            state.topic_partition,
            position,
            epoch,
            end_offset,
        )
        strategy = self._settings.auto_offset_reset
        if strategy != NONE:
            if undefined:
                state.await_reset(strategy)
                self._again = True
            else:
                state.seek(end_offset, epoch)
                state.phase = Phase.FETCHING
            return
        topic_partition = state.topic_partition
        divergent = None if undefined else OffsetAndMetadata(end_offset, "", epoch)
        state.retry_at_ms = self._loop.now_ms() + self._settings.retry_backoff_max_ms
        self.on_failure(
            LogTruncationError({topic_partition: position}, {topic_partition: divergent})
        )


def _fetch_epoch(state: PartitionState) -> LeaderEpoch:
    return state.position_epoch
