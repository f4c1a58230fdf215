"""The whole consumer on a client's loop: what the blocking and the asyncio API drive.

Each API returns records by ``delivery``, on the user's thread, and calls this for everything else.
Everything in this class runs on the loop, except that ``user.attention``, which shows whether the
next poll must call the core, is read on other threads, and ``note_poll`` may be called on any.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, Final

from millstream.client.core.consumer.classic_membership import ClassicMembership
from millstream.client.core.consumer.commits import Commits
from millstream.client.core.consumer.consumer_membership import ConsumerMembership
from millstream.client.core.consumer.fetcher import Fetcher
from millstream.client.core.consumer.group_commits import CommitCallback, GroupCommits
from millstream.client.core.consumer.membership import Membership, MemberSite
from millstream.client.core.consumer.metrics import (
    CONSUMER_GROUP,
    COORDINATOR_GROUP,
    FETCH_GROUP,
    CoordinatorMetrics,
    FetchMetrics,
)
from millstream.client.core.consumer.offset_lookup import OffsetLookup
from millstream.client.core.consumer.positions import Positions
from millstream.client.core.consumer.record import (
    GroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    SubscriptionPattern,
)
from millstream.client.core.consumer.reset import EARLIEST, LATEST, NONE
from millstream.client.core.consumer.settings import ConsumerSettings, check_settings
from millstream.client.core.consumer.subscription import (
    PartitionState,
    Subscription,
)
from millstream.client.core.consumer.user_calls import RebalanceListener, UserCall
from millstream.client.core.consumer.user_side import UserSide
from millstream.client.core.loop import ClientLoop
from millstream.client.core.metadata import MetadataView, check_names
from millstream.client.core.network import Network
from millstream.client.core.statistics import StatisticsReports
from millstream.client.core.waiting import retrying, sleep, within
from millstream.client.errors import ClientError, ClosedError, TimedOutError
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ConfigError, KafkaError
from millstream.model.offsets import LeaderEpoch, Offset
from millstream.model.topic import TopicPartition

_LEAVING_MS: Final = 1_000

_log = logging.getLogger("millstream.client.consumer")


class ConsumerCore:
    """One consumer."""

    def __init__(self, loop: ClientLoop, settings: ConsumerSettings) -> None:
        check_settings(settings)
        self.loop = loop
        self.settings = settings
        self.network = Network(loop, settings)
        self.metadata = MetadataView(self.network, create_topics=settings.allow_auto_create_topics)
        self.subscription = Subscription()
        self.fetch_metrics = FetchMetrics(loop)
        self.coordinator_metrics = CoordinatorMetrics(loop)
        self.fetcher = Fetcher(
            self.network, self.metadata, settings, self.subscription, self.fetch_metrics
        )
        self.lookup = OffsetLookup(self.network, self.metadata, settings)
        self.user = UserSide(loop, lambda: len(self.fetcher.buffer) > 0)
        self._membership: Membership | None = None
        self._group_commits: GroupCommits | None = None
        if settings.group_id is not None:
            self._make_member(settings.group_id)
        self.positions = Positions(
            loop, self.metadata, settings, self.subscription, self.lookup, self._group_commits
        )
        self._closed = False
        self._connect_parts()
        self._statistics = StatisticsReports(loop, settings, "consumer", self.metrics)
        self._statistics.start()

    def _make_member(self, group_id: str) -> None:
        kind = ConsumerMembership if self.settings.speaks_consumer_protocol else ClassicMembership
        membership: Membership = kind(
            self.network,
            self.metadata,
            self.settings,
            self.subscription,
            self.coordinator_metrics,
        )
        commits = Commits(self.network, group_id, self.coordinator_metrics)
        self._membership = membership
        self._group_commits = GroupCommits(
            self.loop, self.settings, self.subscription, commits, membership
        )

    def _connect_parts(self) -> None:
        self.metadata.on_change(self._on_metadata)
        self.metadata.on_recreated(self._on_recreated)
        self.metadata.on_refused(self.user.fail)
        self.fetcher.on_data = self.user.data_came
        self.fetcher.on_failure = self.user.fail
        self.fetcher.on_reset = self.positions.update
        self.positions.on_ready = self.fetcher.poke
        self.positions.on_failure = self.user.fail
        if self._membership is not None and self._group_commits is not None:
            self._membership.connect(
                MemberSite(
                    attend=self.user.attend,
                    fail=self.user.fail,
                    is_polling=lambda: self.user.is_waiting,
                    run=self.user.run,
                    commit=self._group_commits.commit_by_itself,
                    assigned=self._on_assigned,
                )
            )
            self._group_commits.on_attention = self.user.attend
            self._group_commits.run = self.user.run

    # --- what is read ----------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str] | SubscriptionPattern,
        listener: RebalanceListener | None,
    ) -> None:
        """Subscribe to these topics, or to those that match, as a member of the group.

        ConfigError for a SubscriptionPattern under the classic protocol.
        """
        membership, _ = self._grouped("subscribe")
        if isinstance(topics, re.Pattern):
            self.subscription.subscribe_pattern(topics)
            self.metadata.want_all()
        elif isinstance(topics, SubscriptionPattern):
            if not self.settings.speaks_consumer_protocol:
                raise ConfigError("a SubscriptionPattern needs group.protocol=consumer")
            self.metadata.want_all(wanted=False)
            self.subscription.subscribe_expression(topics.pattern)
            self.metadata.want_only(self._topics())
        else:
            chosen = check_names(topics)
            self.metadata.want_all(wanted=False)
            self.subscription.subscribe(chosen)
            if not self.subscription.topics:
                self.unsubscribe_now()
                return
            self.metadata.want_only(self._topics())
        membership.subscribed(listener)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, without the group's assignment; an empty list unsubscribes."""
        chosen = list(partitions)
        check_names(topic_partition.topic for topic_partition in chosen)
        if not chosen and not self.subscription.uses_group:
            self.unsubscribe_now()
            return
        self.subscription.assign(chosen)
        self.metadata.want_only(self._topics())
        self._on_assigned()

    def unsubscribe_now(self) -> None:
        """Unsubscribe; leave the group without waiting."""
        if self._membership is not None:
            if self.subscription.uses_group:
                spawn(self._membership.leave("the consumer unsubscribed from all topics"))
            self._membership.unsubscribed()
        self.subscription.unsubscribe()
        self.metadata.want_all(wanted=False)
        self.metadata.want_only(())

    async def unsubscribe(self) -> None:
        """Call the listener, leave the group, unsubscribe."""
        if self.subscription.uses_group and self._membership is not None:
            await self._membership.release()
        self.unsubscribe_now()

    def state(self, topic_partition: TopicPartition) -> PartitionState:
        """Return the state of an assigned partition; ValueError for another."""
        state = self.subscription.partitions.get(topic_partition)
        if state is None:
            raise ValueError(f"{topic_partition} is not assigned to this consumer")
        return state

    def seek(
        self, topic_partition: TopicPartition, offset: Offset, leader_epoch: LeaderEpoch = -1
    ) -> None:
        """Read on from ``offset``."""
        if offset < 0:
            raise ValueError(f"offset {offset}")
        state = self.state(topic_partition)
        state.seek(offset, leader_epoch)
        self.user.drop_failures()
        self.positions.learn_leaders()
        self.fetcher.poke()

    def reset(self, topic_partitions: Iterable[TopicPartition], *, to_end: bool) -> None:
        """Read on from the beginning or the end, looked up when it is needed."""
        states = [self.state(topic_partition) for topic_partition in topic_partitions] or list(
            self.subscription.partitions.values()
        )
        for state in states:
            state.await_reset(LATEST if to_end else EARLIEST)
        self.user.drop_failures()
        self.positions.update()

    def pause(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until they are resumed."""
        for state in [self.state(topic_partition) for topic_partition in topic_partitions]:
            state.paused = True

    def resume(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Return records of these partitions again."""
        for state in [self.state(topic_partition) for topic_partition in topic_partitions]:
            state.paused = False
        self.fetcher.poke()

    # --- polling ---------------------------------------------------------------------------------

    def note_poll(self) -> None:
        """Record a poll of the user that does not call the core; may be called on any thread."""
        if self._membership is not None:
            self._membership.last_poll_ms = self.loop.now_ms()

    def poll(self, timeout_ms: float) -> Deferred[UserCall | None]:
        """Do the work of a poll, and wait until there is something for the user.

        The Deferred completes with a function to run (then poll again), or with None when there may
        be records or the time has passed; it fails with an error for the user.
        """
        self._check_open()
        self.user.attention = False
        if self.metadata.refusal is not None:
            self.metadata.request_update()
        if self._membership is not None and self.subscription.uses_group:
            self._membership.poll()
        if self._group_commits is not None:
            self._group_commits.poll()
        self.positions.update()
        self.fetcher.poke()
        return self.user.wait(timeout_ms)

    # --- offsets ---------------------------------------------------------------------------------

    async def find_offsets(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first offsets at or after times; −1 and −2 are the end and the beginning."""
        self._check_open()
        self.metadata.want(
            {topic_partition.topic for topic_partition in timestamps} | self._topics()
        )
        return await self.lookup.find(timestamps, timeout_ms=timeout_ms)

    async def position(self, topic_partition: TopicPartition, timeout_ms: float) -> Offset:
        """Return the next offset that will be returned; waits until that is known."""
        deadline = self.loop.now_ms() + timeout_ms
        while True:
            self._check_open()
            self.user.raise_failure()
            state = self.state(topic_partition)
            if state.has_position:
                return state.position
            left = deadline - self.loop.now_ms()
            if left <= 0:
                raise self._no_position(topic_partition, timeout_ms)
            self.positions.update()
            ready: Deferred[None] = Deferred()
            self.positions.notify(ready)
            try:
                await within(self.loop, ready, left, f"the position of {topic_partition}")
            except TimedOutError:
                raise self._no_position(topic_partition, timeout_ms) from None
            if not self.state(topic_partition).has_position:
                await sleep(self.loop, min(left, self.settings.retry_backoff_ms))

    def _no_position(self, topic_partition: TopicPartition, waited_ms: float) -> TimedOutError:
        return TimedOutError(
            f"no position of {topic_partition} after {waited_ms:.0f} ms "
            f"({self.network.whereabouts()})"
        )

    async def committed(
        self, topic_partitions: Iterable[TopicPartition], timeout_ms: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return what the group has committed, None where nothing."""
        _, commits = self._grouped("committed")
        wanted = list(topic_partitions)
        failures: list[Exception] = []
        asking = retrying(
            self.loop,
            lambda: commits.committed(wanted),
            timeout_ms=timeout_ms,
            first_ms=self.settings.retry_backoff_ms,
            most_ms=self.settings.retry_backoff_max_ms,
            failures=failures,
        )
        return await within(
            self.loop,
            spawn(asking),
            timeout_ms,
            "committed offsets",
            failures,
            where=self.network.whereabouts,
        )

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, timeout_ms: float
    ) -> None:
        """Commit, by default all positions; retries until the time-out."""
        self._check_open()
        _, commits = self._grouped("commit")
        chosen = self.subscription.consumed() if offsets is None else dict(offsets)
        await commits.commit(chosen, timeout_ms)

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None,
        callback: CommitCallback | None,
    ) -> None:
        """Commit once; ``callback(offsets, error or None)`` is run in a later call of the user."""
        self._check_open()
        _, commits = self._grouped("commit_async")
        chosen = self.subscription.consumed() if offsets is None else dict(offsets)
        commits.commit_async(chosen, callback)

    # --- the group -------------------------------------------------------------------------------

    @property
    def group(self) -> GroupMetadata:
        """The group metadata of this consumer."""
        membership, _ = self._grouped("group_metadata")
        return membership.group

    def enforce_rebalance(self, reason: str) -> None:
        """Rebalance the group at the next poll; without effect under the consumer protocol."""
        membership, _ = self._grouped("enforce_rebalance")
        membership.enforce_rebalance(reason)

    def _grouped(self, what: str) -> tuple[Membership, GroupCommits]:
        self._check_open()
        if self._membership is None or self._group_commits is None:
            raise ConfigError(f"{what} needs a group.id")
        return self._membership, self._group_commits

    def _on_assigned(self) -> None:
        self.metadata.want(self._topics())
        self.positions.learn_leaders()
        self.fetcher.poke()

    def _topics(self) -> set[str]:
        topics = {topic_partition.topic for topic_partition in self.subscription.partitions}
        topics |= self.subscription.topics
        if self._membership is not None:
            topics |= self._membership.wanted_topics
        return topics

    def _on_metadata(self) -> None:
        self.positions.learn_leaders()
        if self._membership is not None and self.subscription.uses_group:
            self._membership.review()
        self.fetcher.poke()

    def _on_recreated(self, name: str) -> None:
        """A recreated topic: its offsets start again.

        Without a reset strategy and a committed offset, the user gets an error.
        """
        strategy = self.settings.auto_offset_reset
        for topic_partition, state in self.subscription.partitions.items():
            if topic_partition.topic == name:
                _log.warning(
                    "topic %s was deleted and created again: %s is reset", name, topic_partition
                )
                state.leader_epoch = -1
                if strategy == NONE:
                    state.await_committed()
                else:
                    state.await_reset(strategy)
        self.positions.update()

    # --- the rest --------------------------------------------------------------------------------

    def metrics(self) -> dict[tuple[str, str], float]:
        """Return all metrics by group and name, as Kafka's Java client has them."""
        values: dict[tuple[str, str], float] = {}
        for name, value in self.fetch_metrics.values(self.subscription).items():
            values[FETCH_GROUP, name] = value
        if self._membership is not None:
            assigned = len(self.subscription.partitions)
            for name, value in self.coordinator_metrics.values(assigned).items():
                values[COORDINATOR_GROUP, name] = value
            since = self.loop.now_ms() - self._membership.last_poll_ms
            values[CONSUMER_GROUP, "last-poll-seconds-ago"] = since / 1000
        return values

    async def close(self, timeout_ms: float) -> None:
        """Commit if that is automatic, call the listener, leave the group, disconnect."""
        if self._closed:
            return
        deadline = self.loop.now_ms() + timeout_ms

        def left_ms() -> float:
            return max(deadline - self.loop.now_ms(), 0.0)

        async def attempt(
            step: Coroutine[Deferred[Any], None, None], limit_ms: float, about: str
        ) -> None:
            try:
                where = self.network.whereabouts
                await within(self.loop, spawn(step), limit_ms, about, where=where)
            except (ClientError, KafkaError) as error:
                _log.warning("closing: %s", error)

        try:
            if self._group_commits is not None:
                # A failing commit must leave time for LeaveGroup: otherwise this member's
                # partitions are unassigned until its session expires.
                commit_ms = max(left_ms() - _LEAVING_MS, left_ms() / 2)
                await attempt(self._group_commits.finish(commit_ms), commit_ms, "the last commit")
            membership = self._membership
            if self.subscription.uses_group and membership is not None:
                # The listener's time is not limited: the caller of close runs it.
                await membership.release()
                if self.settings.internal_leave_group_on_close:
                    leaving = membership.leave("the consumer is being closed")
                    await attempt(leaving, left_ms(), "leaving the group")
        finally:
            self.end()

    async def abandon(self) -> None:
        """Leave the group and disconnect, without callbacks: the consumer was garbage-collected."""
        try:
            if self._membership is not None and self.subscription.uses_group:
                leaving = self._membership.leave("the consumer was dropped")
                with contextlib.suppress(ClientError):
                    await within(self.loop, spawn(leaving), _LEAVING_MS, "leaving the group")
        finally:
            self.end()

    def end(self) -> None:
        """Disconnect at once, without leaving the group. Further calls do nothing."""
        self._closed = True
        self._statistics.stop()
        if self._membership is not None:
            self._membership.close()
        self.positions.close()
        self.fetcher.close()
        self.metadata.close()
        self.network.close()
        self.user.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the consumer is closed")
