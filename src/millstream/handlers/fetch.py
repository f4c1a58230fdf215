"""Fetch (key 1), versions 4 to 18.

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
4        isolation level, aborted transactions
5        log start offset
7        fetch sessions (KIP-227)
9        the client's leader epoch (KIP-320)
11       rack of the client (KIP-392)
12       flexible; last fetched epoch, diverging epoch
13       topic ids (KIP-516)
15       replica state in place of replica id
16       the current leader with a refusal (KIP-951)
17, 18   fields of the metadata quorum: read and left alone
=======  ====================================================================================

A read begins at the batch that holds the offset and is answered as a reference to the file. The
promise of at least one batch, however large, holds once per request. A fetch that finds fewer than
``min_bytes`` waits at its partitions and is run again as a whole; it is dropped when its peer goes.
One that meets bytes that are not in memory is run again, too, when the disk has been read on a
thread of its own: sending them would hold up everybody.

A follower's fetch (``replica_id``, ``replica_state``) is the same with three differences: its
progress is recorded before it is answered, it reads up to the log end, and it waits for the log end
to move. One that is out of sync gets no records while the leader's rate limit is exceeded (KIP-73);
what it would get does not end its wait. A consumer that knows racks (from version 11 on) may read
from a follower, up to what that follower knows to be committed; with ``replica.selector.class`` the
leader sends it to the one in its rack.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final

from millstream.handlers.current_leader import current_leader, live_nodes
from millstream.handlers.fetch_refusals import (
    begins_later,
    divergence,
    ends_before,
    is_urgent,
    no_records,
    refused,
    shares_nothing,
)
from millstream.handlers.request import Answer, RequestContext
from millstream.model.broker import NO_BROKER_EPOCH, BrokerId
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError, StorageError
from millstream.model.offsets import NO_LEADER_EPOCH
from millstream.model.topic import ZERO_TOPIC_ID
from millstream.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from millstream.runtime.replicas.fetch_sessions import FetchContext, PartitionFetch
from millstream.runtime.replicas.partition import (
    READ_ALL,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Partition,
)
from millstream.runtime.replicas.waiters import FetchWaiter
from millstream.runtime.services import Services
from millstream.storage.log import ReadAhead

_FIRST_VERSION_WITH_SESSIONS: Final = 7
_FIRST_VERSION_WITH_RACKS: Final = 11
_FIRST_VERSION_WITH_DIVERGENCE: Final = 12
_FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
_FIRST_VERSION_WITH_LEADERS: Final = 16
_ISOLATION_LEVELS: Final = (READ_UNCOMMITTED, READ_COMMITTED)

_MOST_LOOKS: Final = 3
"""How often one fetch has the disk read: for indexes, for batches, and once more where memory is so
short that they are gone again. Then it is answered whatever it costs."""

_NOT_KNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_LEADER_CHANGED: Final = frozenset((6, 74))
"""NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH; who gets UNKNOWN_LEADER_EPOCH knows more than we."""

_Read = tuple[PartitionFetch, PartitionData]


def handle(
    services: Services, context: RequestContext, request: FetchRequest
) -> Answer | Coroutine[Deferred[Any], None, Answer]:
    """Read what the request names; wait where that is less than it asks for."""
    if request.isolation_level not in _ISOLATION_LEVELS:
        error = f"there is no isolation level {request.isolation_level}"
        return failed(context, request, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, error))
    if max(request.replica_id, request.replica_state.replica_id) >= 0:
        cluster = services.cluster
        if cluster is not None and context.connection.listener != cluster.listener_name:
            error = f"replicas do not fetch on {context.connection.listener}"
            return failed(
                context, request, KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error)
            )
    now_ms = services.clock.monotonic_ms()
    fetch_context = services.fetch_sessions.open(request, context.version, now_ms)
    if fetch_context.error is not ErrorCode.NONE:
        return FetchResponse(error_code=fetch_context.error.code, responses=[])
    operation = _Fetch(services, context, request, fetch_context)
    outcome = operation.run()
    if outcome.cold:
        return operation.read_ahead(outcome, request.max_wait_ms)
    if operation.is_enough(outcome) or request.max_wait_ms <= 0:
        return operation.answer(outcome)
    return operation.wait(outcome, request.max_wait_ms)


def failed(context: RequestContext, request: FetchRequest, error: KafkaError) -> FetchResponse:
    """Refuse the request as a whole; versions without topic ids say so in every partition too."""
    topics = request.topics if context.version < _FIRST_VERSION_WITH_TOPIC_IDS else []
    return FetchResponse(
        error_code=error.error.code if context.version >= _FIRST_VERSION_WITH_SESSIONS else 0,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[refused(wanted.partition, error) for wanted in topic.partitions],
            )
            for topic in topics
        ],
    )


@dataclass(slots=True)
class _Outcome:
    """What one run over the partitions found. With anything ``cold`` it is no answer yet."""

    reads: list[_Read]
    unknown: list[_Read]
    partitions: list[Partition]
    cold: list[ReadAhead]
    size: int = 0
    throttled_size: int = 0
    """Bytes that count under the leader's rate limit."""
    urgent: bool = False


class _Fetch:
    """One fetch request, which may run more than once."""

    __slots__ = (
        "_by_id",
        "_connection",
        "_context",
        "_fetches",
        "_isolation",
        "_limited",
        "_looks_left",
        "_max_bytes",
        "_min_bytes",
        "_rack",
        "_recorded",
        "_replica_epoch",
        "_replica_id",
        "_services",
        "_skips_quiet",
        "_throttle",
        "_version",
    )

    def __init__(
        self,
        services: Services,
        context: RequestContext,
        request: FetchRequest,
        fetch_context: FetchContext,
    ) -> None:
        self._services = services
        self._connection = context.connection
        self._version = context.version
        self._by_id = context.version >= _FIRST_VERSION_WITH_TOPIC_IDS
        self._context = fetch_context
        self._fetches = fetch_context.partitions
        self._isolation = request.isolation_level
        self._replica_id = request.replica_id
        self._replica_epoch = NO_BROKER_EPOCH
        if self._replica_id < 0:
            self._replica_id = request.replica_state.replica_id
            self._replica_epoch = request.replica_state.replica_epoch
        if self._replica_id >= 0:
            self._isolation = READ_ALL
        replicas = services.partitions.replicas
        self._throttle = (
            None if self._replica_id < 0 or replicas is None else replicas.context.throttle.leader
        )
        """The rate limit of a follower's fetch."""
        self._limited = False
        """True while followers out of sync are held back by it."""
        self._recorded = False
        """True once a follower's progress is noted: running again says nothing new."""
        config = services.config.current
        self._rack = request.rack_id if config.selects_replicas_by_rack else ""
        self._skips_quiet = fetch_context.session is not None and not self._rack
        self._looks_left = _MOST_LOOKS
        self._max_bytes = min(request.max_bytes, config.fetch_max_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)

    def run(self) -> _Outcome:
        """Read every partition in order, until the bytes are used up."""
        outcome = _Outcome([], [], [], [])
        if self._throttle is not None:
            self._limited = self._throttle.is_exceeded()
        left = self._max_bytes
        min_one_batch = True
        for fetch in self._fetches:
            quiet = fetch.quiet_at
            if quiet is not None and self._skips_quiet and not self._has_news(quiet, fetch):
                outcome.partitions.append(quiet)
                continue
            try:
                partition = self._partition(fetch)
            except KafkaError as error:
                outcome.unknown.append((fetch, refused(fetch.partition, error)))
                # What nobody knows does not end the wait for the rest, as in Kafka.
                outcome.urgent |= error.error not in _NOT_KNOWN
                continue
            outcome.partitions.append(partition)
            try:
                found = self._read(partition, fetch, left, min_one_batch)
                if isinstance(found, ReadAhead):
                    outcome.cold.append(found)
                    left = max(0, left - found.size)
                    continue
                data, size = found
            except KafkaError as error:
                data, size = refused(fetch.partition, error, aborted=None), 0
            outcome.reads.append((fetch, data))
            if size:
                min_one_batch = False
                left = max(0, left - size)
                outcome.size += size
                if self._throttle is not None and self._throttle.names(partition):
                    outcome.throttled_size += size
            else:
                urgent = is_urgent(data)
                outcome.urgent |= urgent
                fetch.quiet_at = None if urgent else partition
        if not outcome.partitions:
            outcome.urgent = True
        self._recorded = True
        return outcome

    async def read_ahead(self, outcome: _Outcome, wait_ms: float) -> Answer:
        """Answer, or wait for more, once what is cold is in memory."""
        outcome = await self._in_memory(outcome)
        if self.is_enough(outcome) or wait_ms <= 0:
            return self.answer(outcome)
        return await self.wait(outcome, wait_ms)

    async def _in_memory(self, outcome: _Outcome) -> _Outcome:
        """Return the outcome of a run that met nothing cold, or that would not look any more."""
        while outcome.cold:
            self._looks_left -= 1
            reading = [
                self._services.offload.run(f"read {cold.log_directory}", cold.run)
                for cold in outcome.cold
            ]
            for read in reading:
                try:
                    await read
                except StorageError as error:
                    self._services.partitions.storage_failed(error)
            outcome = self.run()
        return outcome

    def is_enough(self, outcome: _Outcome) -> bool:
        """Tell whether there is something to say now."""
        return outcome.urgent or outcome.size >= self._min_bytes

    async def wait(self, outcome: _Outcome, wait_ms: float) -> Answer:
        """Park at the partitions until there is enough, something changes or the time is up."""
        clock = self._services.clock
        end_ms = clock.monotonic_ms() + wait_ms
        while True:
            woken: Deferred[bool] = Deferred()
            waiter = FetchWaiter(
                clock,
                partitions=outcome.partitions,
                missing_bytes=self._min_bytes - outcome.size,
                wait_ms=end_ms - clock.monotonic_ms(),
                on_woken=woken.complete,
                of_replica=self._replica_id >= 0,
            )
            self._connection.abandon = waiter.cancel
            data_arrived = await woken
            self._connection.abandon = None
            outcome = await self._in_memory(self.run())
            # Bytes that arrived are not always for this reader: it may see committed ones alone.
            if not data_arrived or self.is_enough(outcome) or clock.monotonic_ms() >= end_ms:
                return self.answer(outcome)

    def answer(self, outcome: _Outcome) -> FetchResponse:
        """Choose what the client has to be told, by its session."""
        reads = outcome.reads + outcome.unknown
        if self._throttle is not None and outcome.throttled_size:
            self._throttle.record(outcome.throttled_size)
        context = self._context
        session = context.session
        session_id = 0
        if session is not None:
            session_id = session.session_id
            reads = [read for read in reads if session.select(*read)]
        elif context.opens_session:
            session_id = self._open_session(reads)
        response = FetchResponse(
            session_id=session_id, responses=_by_topic(reads, by_id=self._by_id)
        )
        if outcome.urgent and self._version >= _FIRST_VERSION_WITH_LEADERS:
            self._name_leaders(response, reads)
        return response

    def _name_leaders(self, response: FetchResponse, reads: list[_Read]) -> None:
        """Say who leads what is refused for another leadership (KIP-951)."""
        leaders = []
        for fetch, data in reads:
            if data.error_code in _LEADER_CHANGED:
                leader, epoch = current_leader(self._services, fetch.topic, fetch.partition)
                data.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
                leaders.append(leader)
        listener = self._connection.listener
        for node in live_nodes(self._services, leaders, listener):
            at = node.endpoint(listener)
            response.node_endpoints.append(
                NodeEndpoint(node_id=node.broker_id, host=at.host, port=at.port, rack=node.rack)
            )

    def _open_session(self, reads: list[_Read]) -> int:
        for fetch, data in reads:
            fetch.told_high_watermark = data.high_watermark
            fetch.told_log_start_offset = data.log_start_offset
        session = self._services.fetch_sessions.create(
            (fetch for fetch, _ in reads),
            self._version,
            self._services.clock.monotonic_ms(),
            of_follower=self._replica_id >= 0,
        )
        return 0 if session is None else session.session_id

    def _partition(self, fetch: PartitionFetch) -> Partition:
        partitions = self._services.partitions
        slots = (
            partitions.by_id.get(fetch.topic_id)
            if self._by_id
            else partitions.by_name.get(fetch.topic)
        )
        if slots is not None and 0 <= fetch.partition < len(slots):
            partition = slots[fetch.partition]
            if partition is not None:
                fetch.topic = partition.topic_partition.topic
                return partition
        if not self._by_id:
            return self._led_or_followed(fetch.topic, fetch.partition)
        image = self._services.metadata.topic_by_id(fetch.topic_id)
        if image is not None:
            fetch.topic = image.name
        elif not fetch.topic:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        # A session remembers the name of an id whose topic is gone since; another may have it now.
        partition = self._led_or_followed(fetch.topic, fetch.partition)
        if partition.topic_id != fetch.topic_id:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        return partition

    def _led_or_followed(self, topic: str, index: int) -> Partition:
        """Return a partition that is led here, or followed where the reader may be so served."""
        partitions = self._services.partitions
        if self._replica_id < 0 and self._version >= _FIRST_VERSION_WITH_RACKS:
            partition = partitions.replica(topic, index)
            if partition is not None and partition.following is not None:
                return partition
        return partitions.get(topic, index)

    def _read(
        self, partition: Partition, fetch: PartitionFetch, left: int, min_one_batch: bool
    ) -> tuple[PartitionData, int] | ReadAhead:
        if fetch.current_leader_epoch >= 0:
            partition.check_leader_epoch(fetch.current_leader_epoch)
        max_bytes = min(fetch.max_bytes, left)
        if max_bytes < 0 and fetch.fetch_offset < partition.high_watermark:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"a limit of {max_bytes} bytes")
        log = partition.log
        instead = self._before_reading(partition, fetch)
        if instead is not None:
            return instead, 0
        read = partition.read(
            fetch.fetch_offset,
            max_bytes=max_bytes,
            isolation=self._isolation,
            min_one_batch=min_one_batch,
            wait_for_disk=self._looks_left == 0,
        )
        if read.cold is not None:
            return read.cold
        aborted = None
        if self._isolation == READ_COMMITTED:
            aborted = [
                AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
                for one in read.aborted
            ]
        data = PartitionData(
            partition_index=fetch.partition,
            error_code=0,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=aborted,
            records=b"" if read.records is None else read.records,
        )
        return data, read.size

    def _before_reading(self, partition: Partition, fetch: PartitionFetch) -> PartitionData | None:
        """Look at what a reader has; return what it is told in place of records, if anything."""
        of_replica = self._replica_id >= 0
        may_diverge = of_replica and self._version >= _FIRST_VERSION_WITH_DIVERGENCE
        if of_replica and shares_nothing(partition, fetch):
            return begins_later(partition, fetch)
        if fetch.last_fetched_epoch >= 0:
            diverging = divergence(partition, fetch)
            if diverging is not None:
                return diverging
        elif may_diverge and fetch.fetch_offset > partition.log.log_end_offset:
            return ends_before(partition, fetch)
        if of_replica:
            self._record(partition, fetch)
            leading, replica = partition.leading, BrokerId(self._replica_id)
            if self._limited and leading is not None and leading.is_throttled(replica):
                return no_records(partition, fetch)
        elif self._rack and partition.leading is not None:
            near = partition.leading.preferred_read_replica(self._rack, fetch.fetch_offset)
            if near is not None:
                return no_records(partition, fetch, instead_at=near)
        return None

    def _has_news(self, partition: Partition, fetch: PartitionFetch) -> bool:
        """Tell whether a partition that had nothing to say has to be looked at again. Most of a
        session with many have nothing new: no records, and all else as the reader was told.
        """
        log = partition.log
        if (
            partition.is_gone
            or fetch.fetch_offset != log.log_end_offset
            or fetch.told_high_watermark != log.high_watermark
            or fetch.told_log_start_offset != log.log_start_offset
            or fetch.current_leader_epoch not in (NO_LEADER_EPOCH, partition.leader_epoch)
        ):
            return True
        if self._replica_id < 0 or self._recorded:
            return False
        leading = partition.leading
        return leading is None or not leading.on_same_fetch(
            BrokerId(self._replica_id),
            fetch.fetch_offset,
            self._replica_epoch,
            fetch.log_start_offset,
        )

    def _record(self, partition: Partition, fetch: PartitionFetch) -> None:
        """Take note of how far a follower has come."""
        if self._recorded:
            return
        if partition.leading is None:
            # The partition has no other replicas, whoever asks.
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if fetch.fetch_offset > partition.log.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        partition.leading.on_follower_fetch(
            BrokerId(self._replica_id),
            fetch.fetch_offset,
            self._replica_epoch,
            fetch.log_start_offset,
        )


def _by_topic(reads: list[_Read], *, by_id: bool) -> list[FetchableTopicResponse]:
    """Put neighbours of one topic together; the order of partitions stays."""
    responses: list[FetchableTopicResponse] = []
    last: PartitionFetch | None = None
    for fetch, data in reads:
        if last is not None and last.topic == fetch.topic and last.topic_id == fetch.topic_id:
            responses[-1].partitions.append(data)
        else:
            responses.append(
                FetchableTopicResponse(
                    topic=fetch.topic,
                    topic_id=fetch.topic_id if by_id else ZERO_TOPIC_ID,
                    partitions=[data],
                )
            )
        last = fetch
    return responses
