"""When offsets are committed, as whom, and in which order.

Commits are sent one after the other: a retried commit never overtakes, or is overtaken by, another
one of this consumer, so committed offsets do not go back. Automatic commits happen in the user's
polls, every ``auto.commit.interval.ms``, before partitions are revoked, and at close: records of a
poll count as processed at the next poll.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeAlias

from millstream.client.core.consumer.commits import Commits
from millstream.client.core.consumer.errors import (
    CommitFailedError,
    RebalanceInProgressError,
    RetriableCommitError,
)
from millstream.client.core.consumer.membership import Membership
from millstream.client.core.consumer.record import GroupMetadata, OffsetAndMetadata
from millstream.client.core.consumer.settings import ConsumerSettings
from millstream.client.core.consumer.subscription import Subscription
from millstream.client.core.loop import ClientLoop
from millstream.client.core.waiting import retrying, sleep, within
from millstream.client.errors import BrokerError, ClientError, ClosedError, is_retriable
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicPartition

Offsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata]

CommitCallback: TypeAlias = Callable[
    [dict[TopicPartition, OffsetAndMetadata], Exception | None], object
]
"""Called with the offsets, and with the error or None."""

_OF_MEMBERS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
"""How a coordinator refuses offsets that are not those of a member."""

_MOST_RENEWALS: Final = 10
"""How often one commit is sent again with a newer identity."""

_log = logging.getLogger("millstream.client.consumer")


class GroupCommits:
    """The commits of one consumer."""

    def __init__(
        self,
        loop: ClientLoop,
        settings: ConsumerSettings,
        subscription: Subscription,
        commits: Commits,
        membership: Membership,
    ) -> None:
        self.on_attention: Callable[[], None] = lambda: None
        self.run: Callable[[Callable[[], object]], Deferred[None]] = lambda function: Deferred.of(
            None
        )
        self._loop = loop
        self._settings = settings
        self._subscription = subscription
        self._commits = commits
        self._membership = membership
        self._previous: Deferred[None] = Deferred.of(None)
        self._due_at_ms = loop.now_ms() + settings.auto_commit_interval_ms
        self._auto_running = False
        if settings.auto_commits:
            self._plan()

    # --- asked for -------------------------------------------------------------------------------

    async def commit(
        self,
        offsets: Offsets,
        timeout_ms: float,
        once: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Commit, and retry temporary errors until ``timeout_ms`` have passed.

        TimedOutError after that: a commit in flight may still be applied, and later ones wait for
        it; one that was not sent by then is not sent at all. ``once`` is one attempt.
        """
        deadline = self._loop.now_ms() + timeout_ms
        failures: list[Exception] = []

        async def attempt() -> None:
            left = deadline - self._loop.now_ms()
            if left > 0:
                await retrying(
                    self._loop,
                    once or (lambda: self._once(offsets)),
                    timeout_ms=left,
                    first_ms=self._settings.retry_backoff_ms,
                    most_ms=self._settings.retry_backoff_max_ms,
                    failures=failures,
                )

        running = spawn(self._one_after_another(attempt))
        where = self._commits.whereabouts
        await within(self._loop, running, timeout_ms, "the commit", failures, where=where)

    def commit_async(self, offsets: Offsets, callback: CommitCallback | None) -> None:
        """Commit once; the callback gets the result, in a later call of the user."""

        async def run() -> None:
            failure: Exception | None = None
            try:
                await self._one_after_another(lambda: self._once(offsets))
            except (ClientError, KafkaError) as error:
                failure = error
                if is_retriable(error) and not isinstance(error, RebalanceInProgressError):
                    failure = RetriableCommitError(error)
                    failure.__cause__ = error
            if callback is not None:
                chosen = dict(offsets)
                await self.run(lambda: callback(chosen, failure))
            elif failure is not None:
                _log.warning("asynchronous commit failed: %s", failure)

        spawn(run())

    # --- by itself -------------------------------------------------------------------------------

    def poll(self) -> None:
        """In a poll of the user: commit if it is due. Earlier records count as processed."""
        if not self._settings.auto_commits or self._loop.now_ms() < self._due_at_ms:
            return
        if self._auto_running or (
            self._subscription.uses_group and not self._membership.can_commit
        ):
            return
        offsets = self._subscription.consumed()
        self._due_at_ms = self._loop.now_ms() + self._settings.auto_commit_interval_ms
        self._plan()
        if offsets:
            self._auto_running = True
            spawn(self._auto(offsets))

    async def _auto(self, offsets: Offsets) -> None:
        try:
            await self._one_after_another(lambda: self._once(offsets))
        except ClosedError:
            pass
        except (ClientError, KafkaError) as error:
            _log.warning("auto commit failed: %s", error)
            if is_retriable(error):
                soon = self._loop.now_ms() + self._settings.retry_backoff_ms
                self._due_at_ms = min(self._due_at_ms, soon)
                self._plan()
        finally:
            self._auto_running = False

    def _plan(self) -> None:
        self._loop.call_at(self._due_at_ms, self.on_due)

    def on_due(self) -> None:
        """Request a poll: only in a poll positions are those of processed records."""
        self.on_attention()

    async def commit_by_itself(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Commit the positions of partitions that are revoked, if commits are automatic.

        A failure is logged: the partitions are reassigned in any case, and records are read again.
        """
        if not self._settings.auto_commits:
            return
        consumed = self._subscription.consumed()
        offsets = {
            topic_partition: consumed[topic_partition]
            for topic_partition in topic_partitions
            if topic_partition in consumed
        }
        if not offsets:
            return
        try:
            await self.commit(
                offsets,
                min(self._settings.max_poll_interval_ms, 30_000),
                once=lambda: self._once_if_there(offsets),
            )
        except ClosedError:
            raise
        except (ClientError, KafkaError) as error:
            _log.warning("commit before a rebalance failed: %s", error)

    async def finish(self, timeout_ms: float) -> None:
        """At close: finish requested commits, and commit the positions."""
        if self._settings.auto_commits:
            offsets = self._subscription.consumed()
            if offsets:
                await self.commit(offsets, timeout_ms)
        await self._previous
        # Callbacks of commits that ended just now are queued after this returns to the loop.
        await sleep(self._loop, 0)

    # --- one commit ------------------------------------------------------------------------------

    async def _one_after_another(self, operation: Callable[[], Awaitable[None]]) -> None:
        before, mine = self._previous, Deferred[None]()
        self._previous = mine
        await before
        try:
            await operation()
        finally:
            mine.complete(None)

    async def _once(self, offsets: Offsets) -> None:
        if not offsets:
            return
        if not self._subscription.uses_group:
            await self._commit_alone(offsets)
            return
        for _ in range(_MOST_RENEWALS):
            group = self._membership.commits_as()
            try:
                await self._commits.commit(offsets, group)
            except BrokerError as error:
                await self._membership.after_refused_commit(group, error)
            else:
                return
        raise CommitFailedError("the coordinator refuses every epoch of this member")

    async def _once_if_there(self, offsets: Offsets) -> None:
        """Commit; a topic that was deleted is not waited for, and the others are committed.

        Kafka: ``CommitRequestManager.autoCommitSyncBeforeRebalanceWithRetries``.
        """
        try:
            await self._once(offsets)
        except BrokerError as error:
            if error.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise CommitFailedError("a topic or partition was deleted") from error
            raise

    async def _commit_alone(self, offsets: Offsets) -> None:
        """Commit partitions that the user has assigned, as nobody's member."""
        try:
            await self._commits.commit(offsets, GroupMetadata(self._membership.group.group_id))
        except BrokerError as error:
            if error.error is ErrorCode.REBALANCE_IN_PROGRESS:
                raise RebalanceInProgressError from error
            if error.error in _OF_MEMBERS:
                raise CommitFailedError("the group has members") from error
            raise

    async def committed(
        self, topic_partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets, None where nothing was committed; one attempt."""
        wanted = list(topic_partitions)
        for _ in range(_MOST_RENEWALS):
            group = self._membership.fetches_offsets_as if self._subscription.uses_group else None
            try:
                return await self._commits.committed(wanted, group)
            except BrokerError as error:
                if group is None:
                    raise
                await self._membership.after_refused_fetch(group, error)
        return await self._commits.committed(wanted)
