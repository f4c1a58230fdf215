"""Keeps the state of share partitions at their share coordinators.

The leader of a share partition reads its state when it begins to serve it and writes what it must
not lose before it answers; the group coordinator initializes it, deletes it and reads summaries. A
share partition's coordinator leads the partition of ``__share_group_state`` that its key hashes to.

* Requests of one kind, of one group, to one coordinator go one after the other; what comes while
  one is on its way shares the next.
* Operations on one share partition are carried out in the order in which they were asked for, also
  where one of them is tried again: a write that is tried again never follows a later one.
* What may succeed later is tried again with a growing delay: errors of a coordinator that is
  elsewhere, loading or not there yet, and those of the network.

Kafka: ``DefaultStatePersister``, ``PersisterStateManager``.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, cast

from millstream.coordinator.group.partitioner import group_partition
from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError, MillstreamError
from millstream.model.topic import SHARE_GROUP_STATE_TOPIC
from millstream.runtime.metadata.metadata_cache import TopicImage
from millstream.runtime.share import state_requests
from millstream.runtime.share.state_requests import PartitionData, StateRequest, results_of
from millstream.share.state import (
    ANY_EPOCH,
    UNINITIALIZED_START_OFFSET,
    SharePartitionKey,
    ShareState,
    ShareStateSummary,
    ShareStateUpdate,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.model.clock import Clock, TimerHandle
    from millstream.protocol.message import Request, Response
    from millstream.runtime.metadata.metadata_cache import MetadataCache

log = logging.getLogger(__name__)

V = TypeVar("V")

FIRST_BACKOFF_MS: Final = 100.0
MAX_BACKOFF_MS: Final = 5_000.0
MAX_ATTEMPTS: Final = 9
"""With the delays above, an operation is given up after some 16 seconds."""

REQUEST_TIMEOUT_MS: Final = 15_000
"""Longer than a coordinator waits for its records to be committed."""

MAX_PARTITIONS: Final = 500
"""How many share partitions one request speaks of."""

_RETRIABLE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        # The coordinator's broker may not know of a new topic yet.
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)

_UNREACHED: Final = frozenset(
    {ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT}
)
"""Nobody answered; whoever asked the persister hears COORDINATOR_NOT_AVAILABLE."""


@dataclass(slots=True, eq=False)
class _Operation:
    kind: StateRequest
    key: SharePartitionKey
    data: PartitionData
    reply: Deferred[object]
    attempts: int = 0


_Lane: TypeAlias = tuple[BrokerId, str, str]
"""A coordinator's broker, a kind of request and a group."""


class SharePersister:
    """Sends operations on the state of share partitions to their share coordinators.

    Every method answers with a Deferred. It fails with a KafkaError: what the coordinator says of
    the share partition (FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH, INVALID_REQUEST and others), or,
    after all attempts, the last of the errors that are tried again: COORDINATOR_NOT_AVAILABLE,
    COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR or UNKNOWN_TOPIC_OR_PARTITION. After
    COORDINATOR_NOT_AVAILABLE nobody knows whether a write was stored.

    ``ensure_topic`` creates ``__share_group_state`` at the first use.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        metadata: MetadataCache,
        ensure_topic: Callable[[str], Deferred[TopicImage]],
        send_request: Callable[[BrokerId, Request, int], Deferred[Response]],
    ) -> None:
        self._clock = clock
        self._metadata = metadata
        self._ensure_topic = ensure_topic
        self._send_request = send_request
        self._queues: dict[SharePartitionKey, deque[_Operation]] = {}
        """The operations of each share partition; the first of each queue is being carried out."""
        self._ready: dict[_Lane, list[_Operation]] = {}
        self._in_flight: set[_Lane] = set()
        self._timers: dict[_Operation, TimerHandle] = {}
        self._is_stopped = False

    # Operations

    def initialize(
        self,
        key: SharePartitionKey,
        *,
        state_epoch: int,
        start_offset: int = UNINITIALIZED_START_OFFSET,
    ) -> Deferred[None]:
        """Begin a share partition's state anew: at ``start_offset``, without state batches.

        Fails with FENCED_STATE_EPOCH when a newer state epoch is known.
        """
        data = state_requests.initialize_data(
            key.partition, state_epoch=state_epoch, start_offset=start_offset
        )
        return self._begin(state_requests.INITIALIZE, key, data)

    def read(self, key: SharePartitionKey, *, leader_epoch: int) -> Deferred[ShareState]:
        """Return the state, and make ``leader_epoch`` known: writes of older leaders are refused
        from now on.

        Fails with INVALID_REQUEST when the share partition was never initialized, and
        FENCED_LEADER_EPOCH when a newer leader is known.
        """
        data = state_requests.read_data(key.partition, leader_epoch=leader_epoch)
        return self._begin(state_requests.READ, key, data)

    def write(self, key: SharePartitionKey, update: ShareStateUpdate) -> Deferred[None]:
        """Store what has changed; answered when it is committed.

        Fails with FENCED_LEADER_EPOCH or FENCED_STATE_EPOCH when a newer epoch is known, and
        INVALID_REQUEST when the share partition was never initialized.
        """
        data = state_requests.write_data(key.partition, update)
        return self._begin(state_requests.WRITE, key, data)

    def read_summary(
        self, key: SharePartitionKey, *, leader_epoch: int = ANY_EPOCH
    ) -> Deferred[ShareStateSummary]:
        """Return the start offset and epochs; its start offset is -1 where there is no state."""
        data = state_requests.summary_data(key.partition, leader_epoch=leader_epoch)
        return self._begin(state_requests.READ_SUMMARY, key, data)

    def delete(self, key: SharePartitionKey) -> Deferred[None]:
        """Forget a share partition's state; it succeeds where there is none."""
        data = state_requests.delete_data(key.partition)
        return self._begin(state_requests.DELETE, key, data)

    def stop(self) -> None:
        """Fail everything that waits with COORDINATOR_NOT_AVAILABLE, and whatever comes later."""
        self._is_stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._ready.clear()
        queues, self._queues = self._queues, {}
        for queue in queues.values():
            for operation in queue:
                operation.reply.fail(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))

    # Order

    def _begin(
        self, kind: StateRequest, key: SharePartitionKey, data: PartitionData
    ) -> Deferred[V]:
        reply: Deferred[object] = Deferred()
        if self._is_stopped:
            reply.fail(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return cast("Deferred[V]", reply)
        operation = _Operation(kind, key, data, reply)
        queue = self._queues.setdefault(key, deque())
        queue.append(operation)
        if len(queue) == 1:
            self._find_coordinator(operation)
        return cast("Deferred[V]", reply)

    def _end(self, operation: _Operation) -> bool:
        """Let the next operation on the share partition begin; False when the persister was
        stopped meanwhile.
        """
        if self._is_stopped:
            return False
        queue = self._queues[operation.key]
        assert queue[0] is operation, "operations on one share partition end in order"
        queue.popleft()
        if queue:
            self._find_coordinator(queue[0])
        else:
            del self._queues[operation.key]
        return True

    def _fail(self, operation: _Operation, error: KafkaError) -> None:
        """Try an operation again, or give it up."""
        if self._is_stopped:
            return
        operation.attempts += 1
        if error.error in _RETRIABLE and operation.attempts < MAX_ATTEMPTS:
            delay_ms = min(FIRST_BACKOFF_MS * 2 ** (operation.attempts - 1), MAX_BACKOFF_MS)

            def again() -> None:
                del self._timers[operation]
                self._find_coordinator(operation)

            self._timers[operation] = self._clock.call_later(delay_ms, again)
            return
        if error.error in _UNREACHED:
            error = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
        if self._end(operation):
            operation.reply.fail(error)

    # Coordinators

    def _find_coordinator(self, operation: _Operation) -> None:
        image = self._metadata.topic(SHARE_GROUP_STATE_TOPIC)
        if image is not None:
            self._queue_for_leader(operation, image)
            return

        def created(outcome: Deferred[TopicImage]) -> None:
            try:
                image = outcome.result()
            except KafkaError as error:
                refused = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
                self._fail(operation, refused)
            else:
                self._queue_for_leader(operation, image)

        self._ensure_topic(SHARE_GROUP_STATE_TOPIC).on_done(created)

    def _queue_for_leader(self, operation: _Operation, image: TopicImage) -> None:
        if self._is_stopped:
            return
        index = group_partition(operation.key.coordinator_key, len(image.partitions))
        leader = image.partitions[index].leader
        if not self._metadata.is_reachable(leader):
            self._fail(operation, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        lane = (leader, operation.kind.name, operation.key.group_id)
        waiting = self._ready.setdefault(lane, [])
        waiting.append(operation)
        if len(waiting) == 1 and lane not in self._in_flight:
            # What else is asked for in this pass of the loop shares the request.
            self._clock.call_soon(lambda: self._send(lane))

    def _send(self, lane: _Lane) -> None:
        waiting = self._ready.pop(lane, [])
        if not waiting or lane in self._in_flight:
            if waiting:
                self._ready[lane] = waiting
            return
        batch, rest = waiting[:MAX_PARTITIONS], waiting[MAX_PARTITIONS:]
        if rest:
            self._ready[lane] = rest
        leader, _, group_id = lane
        request = batch[0].kind.request(group_id, ((each.key, each.data) for each in batch))
        self._in_flight.add(lane)

        def answered(outcome: Deferred[Response]) -> None:
            self._in_flight.discard(lane)
            try:
                self._settle(batch, outcome)
            finally:
                self._send(lane)

        self._send_request(leader, request, REQUEST_TIMEOUT_MS).on_done(answered)

    def _settle(self, batch: list[_Operation], outcome: Deferred[Response]) -> None:
        try:
            results = results_of(outcome.result())
        except Exception as error:  # whatever it is: what is not settled here blocks its queue
            if not isinstance(error, MillstreamError):
                log.exception("a request about share partitions failed")
            known = error if isinstance(error, KafkaError) else None
            for operation in batch:
                self._fail(
                    operation, known or KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
                )
            return
        for operation in batch:
            result = results.get((operation.key.topic_id, operation.key.partition))
            if result is None:
                self._fail(
                    operation,
                    KafkaError(
                        ErrorCode.UNKNOWN_SERVER_ERROR,
                        "the share coordinator's answer leaves out the share partition",
                    ),
                )
            elif result.error_code:
                refusal = KafkaError(ErrorCode.of(result.error_code), result.error_message or "")
                self._fail(operation, refusal)
            else:
                value = operation.kind.read(result)
                if self._end(operation):
                    operation.reply.complete(value)
