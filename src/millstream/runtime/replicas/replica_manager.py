"""The replicas of this broker and who they talk to: leaders' timers, followers' fetchers.

``partitions`` says which replica leads and which follows; here each gets what its role needs.
Kafka: ``ReplicaManager``, ``ReplicaFetcherManager``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from millstream.model.broker import BrokerId
from millstream.model.clock import TimerHandle
from millstream.model.leadership import NO_LEADER, PartitionState
from millstream.model.topic import TopicPartition
from millstream.replication.contact import FetchContact
from millstream.runtime.broker_channels import BrokerChannels
from millstream.runtime.replicas.follower_role import FollowerRole
from millstream.runtime.replicas.leader_role import LeaderRole, ReplicationContext
from millstream.runtime.replicas.partition import Partition
from millstream.runtime.replicas.replica_fetcher import ReplicaFetcher

log = logging.getLogger(__name__)

FETCH_LANE = "replica-fetch"

CONTACT_INTERVAL_MS: Final = 250
"""How often :meth:`ReplicaManager.check_contact` has to be called."""


class ReplicaManager:
    """Gives partitions their roles among other replicas."""

    def __init__(self, context: ReplicationContext, channels: BrokerChannels) -> None:
        self.context = context
        self._channels = channels
        self._fetchers: dict[BrokerId, ReplicaFetcher] = {}
        self._leading: dict[Partition, None] = {}
        self._state_changes = 0
        """Counts what may have changed the ISR of a partition led here."""
        self._silent_in_sync: tuple[int, frozenset[BrokerId], frozenset[BrokerId]] = (
            -1,
            frozenset(),
            frozenset(),
        )
        """After which state change which silent brokers were looked for, and which were in sync."""
        self._contact = FetchContact(CONTACT_INTERVAL_MS)
        self._timer: TimerHandle | None = None
        self._stopped = False

    def lead(self, partition: Partition, state: PartitionState) -> None:
        """Let a partition lead its followers, from its log end as it is now on.

        Raises StorageError when its new epoch cannot be written.
        """
        self._state_changes += 1
        if partition.leading is not None:
            if state.leader_epoch > partition.leader_epoch:
                partition.log.assign_epoch_start(state.leader_epoch)
                partition.leader_epoch = state.leader_epoch
            partition.leading.on_state(state)
            return
        partition.leader_epoch = state.leader_epoch
        partition.log.assign_epoch_start(state.leader_epoch)
        partition.leading = LeaderRole(partition, state, self.context)
        self._leading[partition] = None
        self._arm()
        partition.leading.begin()

    def follow(self, partition: Partition, state: PartitionState) -> None:
        """Let a partition follow the leader in ``state``; with no leader it waits for one.

        Epochs of the log that begin at its end or beyond are dropped: nothing was written in them,
        and a leader asked about them would send the follower in a circle. Raises StorageError.
        """
        kept = partition.log
        kept.truncation.truncate_to(kept.log_end_offset, now_ms=self.context.clock.now_ms())
        partition.leader_epoch = state.leader_epoch
        role = partition.following = FollowerRole(partition, state, self.context)
        if state.leader != NO_LEADER and not self._stopped:
            self._fetcher(state.leader).add(role)

    def leave(self, partition: Partition) -> None:
        """End whatever role a partition has."""
        self._state_changes += 1
        self._leading.pop(partition, None)
        role = partition.following
        fetcher = None if role is None else self._fetchers.get(role.machine.leader)
        if role is not None and fetcher is not None:
            fetcher.remove(role)
            if fetcher.is_idle:
                fetcher.stop()
                del self._fetchers[fetcher.leader]
        partition.following = None

    def heard_from(self, follower: BrokerId) -> None:
        """Take note that another broker has sent a fetch, whatever it asks for."""
        self._contact.heard(follower, self.context.clock.monotonic_ms())

    def begin_pending_fetch(self, follower: BrokerId) -> Callable[[], None]:
        """Record that a follower's fetch is answered later; return what to call, once, when it is
        answered or its connection is closed.
        """
        self._contact.begin_pending(follower)
        return partial(self._contact.end_pending, follower)

    def check_contact(self) -> frozenset[BrokerId]:
        """Return the live followers in sync with a partition led here that have stopped to fetch;
        called every ``CONTACT_INTERVAL_MS`` (`replication.contact`).
        """
        context = self.context
        now_ms = context.clock.monotonic_ms()
        self._contact.tick(now_ms)
        for fetcher in self._fetchers.values():
            fetcher.look_for_progress(now_ms)
        silent = self._contact.silent(
            (each for each in context.metadata.brokers if each != context.broker_id),
            now_ms,
            max_wait_ms=context.config.current.replica_fetch_wait_max_ms,
        )
        return self._in_sync(silent) if silent else silent

    def _in_sync(self, silent: frozenset[BrokerId]) -> frozenset[BrokerId]:
        """Return which of some brokers are in sync with a partition led here. A broker that follows
        nothing here is silent for ever, so partitions are looked at only after changes.
        """
        change, looked_for, found = self._silent_in_sync
        if change != self._state_changes or looked_for != silent:
            in_sync: set[BrokerId] = set()
            for partition in self._leading:
                if partition.leading is not None:
                    in_sync.update(partition.leading.machine.state.isr)
            found = silent & in_sync
            self._silent_in_sync = (self._state_changes, silent, found)
        return found

    def read_states_of(self, followers: Collection[BrokerId]) -> None:
        """Read the stored states of the partitions led here that some brokers follow in sync.

        A leader that other brokers do not reach does not hear either that it leads no more.
        """
        for partition in tuple(self._leading):
            leading = partition.leading
            if leading is not None and not set(followers).isdisjoint(leading.machine.state.isr):
                self.context.read_state(partition.topic_partition)

    def read_all_states(self) -> None:
        """Read the stored states of all partitions that have a replica here."""
        context = self.context
        for image in tuple(context.metadata.topics()):
            for index, state in enumerate(image.partitions):
                if context.broker_id in state.replicas:
                    context.read_state(TopicPartition(image.name, index))

    def unreachable_leaders(self) -> frozenset[BrokerId]:
        """Return the leaders that this broker follows and that do not answer its fetches."""
        context = self.context
        return self._contact.unreachable(
            self.unanswered_since_ms(),
            context.clock.monotonic_ms(),
            max_wait_ms=context.config.current.replica_fetch_wait_max_ms,
        )

    def unanswered_since_ms(self) -> dict[BrokerId, float]:
        """Return the leaders that owe this broker an answer to a fetch, each with the moment (of
        the monotonic clock) since which it has answered none; see ``ReplicaFetcher``.
        """
        return {
            leader: fetcher.unanswered_since_ms
            for leader, fetcher in self._fetchers.items()
            if fetcher.unanswered_since_ms is not None
        }

    def stop(self) -> None:
        """Fetch no more and propose nothing, whatever the controller says from now on."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for fetcher in self._fetchers.values():
            fetcher.stop()
        self._fetchers.clear()
        self._leading.clear()

    def _fetcher(self, leader: BrokerId) -> ReplicaFetcher:
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            channel = self._channels.channel(leader, FETCH_LANE)
            fetcher = self._fetchers[leader] = ReplicaFetcher(leader, channel, self.context)
        return fetcher

    def _arm(self) -> None:
        """Look for followers that lag, twice in every ``replica.lag.time.max.ms``."""
        if self._timer is None and self._leading and not self._stopped:
            delay_ms = max(1.0, self.context.config.current.replica_lag_time_max_ms / 2)
            self._timer = self.context.clock.call_later(delay_ms, self._check_shrink)

    def _check_shrink(self) -> None:
        self._timer = None
        for partition in tuple(self._leading):
            if partition.leading is not None:
                partition.leading.check_shrink()
        self._arm()
