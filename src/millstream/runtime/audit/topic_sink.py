"""Writes records of the audit log into ``__audit_log``: to the leader of a partition, in batches.

The principal is the key of a record and decides its partition, so what one principal did is in
order. Each partition has one batch on its way at a time; what comes meanwhile shares the next one.
A batch that failed is sent again with a growing delay, wherever the leader is by then, for
``DELIVERY_MS``: after a request that was not answered in time its records may be there twice, with
the same ids. What is lost after that is told to ``on_lost``.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from millstream.client.partitioner import partition_for_key
from millstream.model.clock import Clock, TimerHandle
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import AUDIT_LOG_TOPIC
from millstream.protocol.messages.write_audit_log import (
    WriteAuditLogRequest,
    WriteAuditLogResponse,
)
from millstream.records.builder import BatchBuilder
from millstream.runtime.metadata.metadata_cache import MetadataCache, TopicImage
from millstream.security.audit.machine import Entry

if TYPE_CHECKING:
    from millstream.model.broker import BrokerId
    from millstream.protocol.message import Request, Response

EnsureTopic: TypeAlias = "Callable[[str], Deferred[TopicImage]]"
SendRequest: TypeAlias = "Callable[[BrokerId, Request, int], Deferred[Response]]"
"""As those of ``Services``."""

log = logging.getLogger(__name__)

MAX_BATCH_BYTES: Final = 256 * 1024
REQUEST_TIMEOUT_MS: Final = 10_000
COMMIT_TIMEOUT_MS: Final = 8_000
"""The leader answers before the request times out."""
FIRST_BACKOFF_MS: Final = 100.0
MAX_BACKOFF_MS: Final = 3_000.0
DELIVERY_MS: Final = 120_000
"""How long a record is tried to be delivered, from when it was made."""

_FINAL: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    }
)
"""Refusals that another attempt would meet again."""


@dataclass(slots=True)
class _Lane:
    """One partition: what waits for it, and how often its first batch has failed."""

    queue: deque[Entry] = field(default_factory=deque)
    is_busy: bool = False
    attempts: int = 0
    timer: TimerHandle | None = None


class TopicSink:
    """``on_room`` is called when records were written, ``on_lost`` with those that are given up."""

    def __init__(
        self,
        *,
        clock: Clock,
        metadata: MetadataCache,
        ensure_topic: EnsureTopic,
        send_request: SendRequest,
        max_bytes: int,
        on_room: Callable[[], None],
        on_lost: Callable[[list[Entry]], None],
    ) -> None:
        self._clock = clock
        self._metadata = metadata
        self._ensure_topic = ensure_topic
        self._send_request = send_request
        self._max_bytes = max_bytes
        self._on_room = on_room
        self._on_lost = on_lost
        self._unassigned: deque[Entry] = deque()
        """What waits for the topic to be there."""
        self._lanes: dict[int, _Lane] = {}
        self._bytes = 0
        self._creation_timer: TimerHandle | None = None
        self._is_creating = False
        self._failure = ""
        self._is_closed = False
        self.failures = 0
        """How many requests have failed since the start."""

    def add(self, entry: Entry) -> bool:
        """Take a record; False where there is no room for it."""
        size = len(entry.value)
        if self._bytes + size > self._max_bytes:
            return False
        self._bytes += size
        self._unassigned.append(entry)
        if not self._is_creating and self._creation_timer is None:
            self._assign()
        return True

    @property
    def is_empty(self) -> bool:
        """True when all that was taken is committed."""
        return not self._bytes

    def hurry(self) -> None:
        """Try what failed again now."""
        if self._creation_timer is not None:
            self._creation_timer.cancel()
            self._creation_timer = None
            self._assign()
        for index, lane in list(self._lanes.items()):
            if lane.timer is not None:
                lane.timer.cancel()
                lane.timer = None
                self._send(index, lane)

    def close(self) -> list[Entry]:
        """Send nothing more; return what was not committed."""
        self._is_closed = True
        if self._creation_timer is not None:
            self._creation_timer.cancel()
        for lane in self._lanes.values():
            if lane.timer is not None:
                lane.timer.cancel()
        return [*self._unassigned, *(each for lane in self._lanes.values() for each in lane.queue)]

    # The topic

    def _assign(self) -> None:
        """Give each record its partition; have the topic made where it is not there."""
        image = self._metadata.topic(AUDIT_LOG_TOPIC)
        if image is None:
            self._create()
            return
        count = len(image.partitions)
        while self._unassigned:
            entry = self._unassigned.popleft()
            index = partition_for_key(entry.key, count)
            lane = self._lanes.get(index)
            if lane is None:
                lane = self._lanes[index] = _Lane()
            lane.queue.append(entry)
            if not lane.is_busy and lane.timer is None:
                lane.is_busy = True
                # What else comes in this pass of the loop shares the request.
                self._clock.call_soon(partial(self._send, index, lane))

    def _create(self) -> None:
        self._is_creating = True

        def made(outcome: Deferred[TopicImage]) -> None:
            self._is_creating = False
            if self._is_closed:
                return
            try:
                outcome.result()
            except KafkaError as error:
                self._failed(error)
                self._give_up_late(self._unassigned)
                self._creation_timer = self._clock.call_later(MAX_BACKOFF_MS, again)
            else:
                if self._metadata.topic(AUDIT_LOG_TOPIC) is not None:
                    self._assign()
                else:  # it was made, and is pushed to this broker in a moment
                    self._creation_timer = self._clock.call_later(FIRST_BACKOFF_MS, again)

        def again() -> None:
            self._creation_timer = None
            if self._unassigned:
                self._assign()

        self._ensure_topic(AUDIT_LOG_TOPIC).on_done(made)

    # One partition

    def _send(self, index: int, lane: _Lane) -> None:
        lane.is_busy = bool(lane.queue) and not self._is_closed
        if not lane.is_busy:
            return
        image = self._metadata.topic(AUDIT_LOG_TOPIC)
        if image is None or index >= len(image.partitions):
            self._reassign(lane)
            return
        leader = image.partitions[index].leader
        if not self._metadata.is_reachable(leader):
            self._retry(index, lane, KafkaError(ErrorCode.LEADER_NOT_AVAILABLE))
            return
        count, records = _batch(lane.queue)
        request = WriteAuditLogRequest(
            partition_index=index, timeout_ms=COMMIT_TIMEOUT_MS, records=records
        )

        def answered(outcome: Deferred[Response]) -> None:
            if not self._is_closed:
                self._answered(index, lane, count, _refusal(outcome))

        self._send_request(leader, request, REQUEST_TIMEOUT_MS).on_done(answered)

    def _answered(self, index: int, lane: _Lane, count: int, refusal: KafkaError | None) -> None:
        if refusal is None:
            self._written(lane, count)
            self._send(index, lane)
        elif refusal.error in _FINAL:
            self._failed(refusal)
            self._on_lost(self._take(lane.queue, count))
            self._send(index, lane)
        else:
            self._retry(index, lane, refusal)

    def _written(self, lane: _Lane, count: int) -> None:
        lane.attempts = 0
        self._take(lane.queue, count)
        if self._failure:
            self._failure = ""
            log.warning("the audit log is written to %s again", AUDIT_LOG_TOPIC)
        self._on_room()

    def _retry(self, index: int, lane: _Lane, error: KafkaError) -> None:
        """Send the batch again after a while; give up what is too old."""
        # A leader that has just moved is no failure that anybody has to know of.
        if lane.attempts:
            self._failed(error)
        lane.attempts += 1
        lane.is_busy = False
        self._give_up_late(lane.queue)
        if not lane.queue:
            lane.attempts = 0
            return

        def again() -> None:
            lane.timer = None
            self._send(index, lane)

        delay_ms = min(FIRST_BACKOFF_MS * 2 ** min(lane.attempts - 1, 10), MAX_BACKOFF_MS)
        lane.timer = self._clock.call_later(delay_ms, again)

    def _reassign(self, lane: _Lane) -> None:
        """Look for partitions anew: the topic was deleted."""
        lane.is_busy = False
        lane.attempts = 0
        self._unassigned.extendleft(reversed(lane.queue))
        lane.queue.clear()
        if not self._is_creating and self._creation_timer is None:
            self._assign()

    def _give_up_late(self, queue: deque[Entry]) -> None:
        since_ms = self._clock.now_ms() - DELIVERY_MS
        count = 0
        while count < len(queue) and queue[count].time_ms < since_ms:
            count += 1
        if count:
            self._on_lost(self._take(queue, count))

    def _take(self, queue: deque[Entry], count: int) -> list[Entry]:
        taken = [queue.popleft() for _ in range(count)]
        self._bytes -= sum(len(each.value) for each in taken)
        return taken

    def _failed(self, error: KafkaError) -> None:
        self.failures += 1
        if not self._failure:
            log.error(
                "the audit log cannot be written to %s (%s): records wait up to %d s, and are lost "
                "when %d bytes of them do",
                AUDIT_LOG_TOPIC,
                error,
                DELIVERY_MS // 1_000,
                self._max_bytes,
            )
        self._failure = str(error)


def _refusal(outcome: Deferred[Response]) -> KafkaError | None:
    """Return why a batch was not appended, or not surely; None where it is committed."""
    try:
        response = outcome.result()
    except KafkaError as error:
        return error
    except Exception:  # what is not settled blocks its partition
        log.exception("a request of the audit log failed")
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert isinstance(response, WriteAuditLogResponse)
    if not response.error_code:
        return None
    return KafkaError(ErrorCode.of(response.error_code), response.error_message)


def _batch(queue: deque[Entry]) -> tuple[int, bytes]:
    """Return how many of the first records fit into one batch, and the batch."""
    builder = BatchBuilder()
    count = 0
    for entry in queue:
        if count and builder.size + len(entry.value) > MAX_BATCH_BYTES:
            break
        builder.append(entry.time_ms, entry.key or None, entry.value)
        count += 1
    return count, builder.build()
