"""Sends ready batches to their leaders, and retries them.

:meth:`Sender.wake` schedules a pass; a pass checks every queue with batches (Kafka:
``Sender.runOnce``):

1. batches older than ``delivery.timeout.ms`` fail;
2. a queue is ready when its first batch is full or not the last, has waited ``linger.ms``, or must
   not wait because memory is short, or because of a flush or close; and not while it backs off;
3. the ready queues of an available leader fill one Produce request after the other, a batch
   of each partition in each, up to ``max.request.size`` and
   ``max.in.flight.requests.per.connection``;
4. a timer is set for the earliest waiting queue.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from millstream.client.core.loop import TimerHandle
from millstream.client.core.metadata import NO_LEADER, MetadataView
from millstream.client.core.network import Network
from millstream.client.core.producer.accumulator import (
    PartitionQueue,
    RecordAccumulator,
    TopicBuffer,
)
from millstream.client.core.producer.answers import AnswerReader, Outcome
from millstream.client.core.producer.batch import ProducerBatch, expired
from millstream.client.core.producer.batch_outcomes import BatchOutcomes
from millstream.client.core.producer.metrics import ProducerMetrics
from millstream.client.core.producer.producer_id import ProducerIdSource
from millstream.client.core.producer.sequences import Sequences
from millstream.client.core.producer.transactions import TransactionManager, TransactionState
from millstream.client.core.settings import ProducerSettings
from millstream.client.core.waiting import sleep
from millstream.client.errors import AuthenticationError, BrokerError, ClientError
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.topic import ZERO_TOPIC_ID
from millstream.protocol.message import Response
from millstream.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

log = logging.getLogger("millstream.client.producer")

_LAST_VERSION_WITH_NAMES = 12
_LAST_VERSION_OF_TRANSACTIONS_V1 = 11
"""From 12 on, Produce adds its partitions to the transaction (KIP-890)."""
_NEVER = float("inf")


class Sender:
    """The Produce requests of one producer. Runs on the loop."""

    def __init__(
        self,
        network: Network,
        metadata: MetadataView,
        accumulator: RecordAccumulator,
        settings: ProducerSettings,
        metrics: ProducerMetrics,
    ) -> None:
        self.sequences = Sequences() if settings.enable_idempotence else None
        self.transaction: TransactionManager | None = None
        if settings.transactional_id is not None:
            assert self.sequences is not None, "transactions need idempotence"
            self.transaction = TransactionManager(settings.transactional_id, self.sequences)
        self.on_new_partitions: Callable[[], None] = lambda: None
        """Called when partitions have to be added to the transaction."""
        self._network = network
        self._loop = network.loop
        self._metadata = metadata
        self._accumulator = accumulator
        self._settings = settings
        self._metrics = metrics
        self._answers = AnswerReader(metadata)
        self._outcomes = BatchOutcomes(
            self._loop,
            metadata,
            accumulator,
            settings,
            metrics,
            self._answers,
            self.sequences,
            self.transaction,
        )
        self._producer_ids = ProducerIdSource(network, settings)
        self._in_flight: dict[int, int] = {}
        self._muted: set[object] = set()
        self._connecting: set[int] = set()
        self._unready_since: dict[int, float] = {}
        self._weighed: set[TopicBuffer] = set()
        self._timer: TimerHandle | None = None
        self._is_woken = False
        self._is_closed = False
        self._rounds = 0
        self._quiet_waiters: list[Deferred[None]] = []
        metadata.on_change(self.wake)
        metadata.on_recreated(self._forget_topic)
        metadata.on_refused(self._refused)

    def when_transaction_changes(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` when a failed batch, or another topic of the same name, may have ended
        the transaction.
        """
        self._outcomes.on_transaction_changed = listener

    def wake(self) -> None:
        """Schedule a pass over the queues."""
        if not self._is_woken and not self._is_closed:
            self._is_woken = True
            self._loop.call_soon(self._run_once)

    def close(self, error: ClientError) -> None:
        """Stop; all batches without an outcome fail with ``error``."""
        self._is_closed = self._outcomes.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for batch in list(self._accumulator.incomplete):
            with self._accumulator.lock:
                self._accumulator.remove(batch)
            if not batch.done:
                self._outcomes.finish(batch, error)

    # --- one pass --------------------------------------------------------------------------------

    def _run_once(self) -> None:
        self._is_woken = False
        if self._is_closed:
            return
        now = self._loop.now_ms()
        next_ms = self._expire(now)
        if self.transaction is not None:
            self._settle_transaction(self.transaction)
        elif self.sequences is not None:
            self._settle_sequences(self.sequences)
        ready, next_ready_ms = self._ready(now)
        for leader, queues in ready.items():
            self._serve(leader, queues, now)
        if self.transaction is not None and self.transaction.new_partitions:
            self.on_new_partitions()
        self._set_timer(min(next_ms, next_ready_ms))

    def _set_timer(self, when_ms: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if when_ms < _NEVER:
            self._timer = self._loop.call_at(when_ms, self.wake)

    def _expire(self, now: float) -> float:
        """Fail expired batches; return when the next one expires."""
        limit_ms = self._settings.delivery_timeout_ms
        for batch in list(self._accumulator.incomplete):
            expires_ms = batch.created_ms + limit_ms
            if expires_ms > now:
                # They are ordered by creation.
                return expires_ms
            if batch.in_network:
                # Its future fails now; a late response still updates the sequences.
                self._outcomes.finish(batch, expired(batch, limit_ms, self._network.whereabouts()))
            else:
                self._outcomes.give_up(batch, expired(batch, limit_ms, self._network.whereabouts()))
        return _NEVER

    def _ready(self, now: float) -> tuple[dict[int, list[PartitionQueue]], float]:
        accumulator, settings = self._accumulator, self._settings
        hurry = accumulator.waiting > 0 or accumulator.flushing > 0 or accumulator.is_closed
        ready: dict[int, list[PartitionQueue]] = {}
        next_ms = _NEVER
        for queue in list(accumulator.pending.values()):
            batch = queue.batches[0]
            if queue.topic_partition in self._muted:
                continue
            leader = self._metadata.leader(queue.topic_partition)
            if leader < 0:
                self._metadata.used(queue.topic_partition.topic)
                self._metadata.request_update()
                continue
            if batch.attempts and leader == batch.tried_leader and batch.retry_at_ms > now:
                next_ms = min(next_ms, batch.retry_at_ms)
                continue
            full = len(queue.batches) > 1 or batch.is_closed or batch.room <= 0
            due_ms = batch.created_ms + settings.linger_ms
            if full or hurry or batch.attempts or due_ms <= now:
                ready.setdefault(leader, []).append(queue)
            else:
                next_ms = min(next_ms, due_ms)
        if settings.partitioner_adaptive_partitioning_enable:
            self._weigh()
        return ready, next_ms

    def _weigh(self) -> None:
        """Update the sticky partitioners with the number of queued batches (KIP-794)."""
        # A copy, as above: threads of the user send meanwhile.
        busy = {queue.topic for queue in list(self._accumulator.pending.values())}
        for topic in busy | self._weighed:
            if len(topic.queues) > 1:
                topic.sticky.weigh(
                    {
                        partition: len(topic.queues[partition].batches)
                        for partition in topic.available
                        if partition < len(topic.queues) and self._is_available(topic, partition)
                    },
                    len(topic.queues),
                )
        self._weighed = busy

    def _is_available(self, topic: TopicBuffer, partition: int) -> bool:
        """Return False if the leader has been unavailable for longer than the settings allow."""
        limit_ms = self._settings.partitioner_availability_timeout_ms
        if limit_ms <= 0:
            return True
        leader = self._metadata.leader(topic.queues[partition].topic_partition)
        since = self._unready_since.get(leader)
        return since is None or self._loop.now_ms() - since <= limit_ms

    # --- requests --------------------------------------------------------------------------------

    def _serve(self, leader: int, queues: list[PartitionQueue], now: float) -> None:
        """Send requests to one leader up to its limit, as long as there are batches."""
        if not self._network.is_ready(leader):
            self._unready_since.setdefault(leader, now)
            self._connect(leader)
            return
        self._unready_since.pop(leader, None)
        most = self._settings.max_in_flight_requests_per_connection
        while self._in_flight.get(leader, 0) < most:
            self._rounds += 1
            first = self._rounds % len(queues)
            batches = self._drain(queues[first:] + queues[:first])
            if not batches:
                return
            self._send(leader, batches)

    def _connect(self, leader: int) -> None:
        """Connect; then, or if that fails, run another pass."""

        async def run() -> None:
            try:
                await self._network.ready(leader)
            except AuthenticationError as error:
                self._refused(error, leader)
            except ClientError as error:
                log.debug("broker %s is not available: %s", leader, error)
                self._metadata.request_update()
                await sleep(self._loop, self._settings.reconnect_backoff_ms)
            self._connecting.discard(leader)
            self.wake()

        if leader not in self._connecting:
            self._connecting.add(leader)
            spawn(run())

    def _refused(self, error: AuthenticationError, leader: int = NO_LEADER) -> None:
        """Fail what waits for a broker that refuses this client, or for any broker at all."""
        for queue in list(self._accumulator.pending.values()):
            if self._metadata.leader(queue.topic_partition) == leader:
                for batch in list(queue.batches):
                    self._outcomes.give_up(batch, error)

    def _drain(self, queues: Iterable[PartitionQueue]) -> list[ProducerBatch]:
        accumulator, sequences = self._accumulator, self.sequences
        transaction = self.transaction
        size = 0
        batches: list[ProducerBatch] = []
        for queue in queues:
            with accumulator.lock:
                if not queue.batches or queue.topic_partition in self._muted:
                    continue
                batch = queue.batches[0]
                if sequences is not None and not sequences.may_drain(batch):
                    continue
                if transaction is not None and not transaction.may_send(queue.topic_partition):
                    continue
                if batches and size + batch.size > self._settings.max_request_size:
                    break
                if batch.data is None and batch is queue.last and self._may_linger(queue):
                    continue
                accumulator.take_first(queue)
            self._prepare(batch)
            size += batch.size
            batches.append(batch)
            if self._settings.max_in_flight_requests_per_connection == 1:
                self._muted.add(queue.topic_partition)
        return batches

    def _may_linger(self, queue: PartitionQueue) -> bool:
        """After a request has taken the full batches, the open one may continue to wait."""
        accumulator = self._accumulator
        if accumulator.waiting or accumulator.flushing or accumulator.is_closed:
            return False
        due_ms = queue.batches[0].created_ms + self._settings.linger_ms
        return queue.batches[0].room > 0 and due_ms > self._loop.now_ms()

    def _prepare(self, batch: ProducerBatch) -> None:
        """Assign the batch's sequence, and encode it."""
        if self.sequences is not None and not batch.has_sequence:
            self.sequences.number(batch)
        if batch.data is None:
            raw = batch.size
            self._encode(batch)
            self._accumulator.shrink(batch, batch.size + 8 * batch.count)
            self._metrics.batch_encoded(batch, raw)
        elif not batch.attempts:
            self._metrics.batch_encoded(batch, batch.size)

    def _encode(self, batch: ProducerBatch) -> None:
        batch.encode(
            self._settings.compression_type,
            self.compression_level(),
            is_transactional=self.transaction is not None,
        )

    def compression_level(self) -> int | None:
        """Return the level that is set for the codec in use; None is Kafka's default."""
        return self._settings.compression_level

    def _send(self, leader: int, batches: list[ProducerBatch]) -> None:
        settings, now = self._settings, self._loop.now_ms()
        topics: dict[str, TopicProduceData] = {}
        by_name = False
        for batch in batches:
            name = batch.topic_partition.topic
            topic = topics.get(name)
            if topic is None:
                topic_id = self._metadata.topic_id(name)
                by_name = by_name or topic_id == ZERO_TOPIC_ID
                topic = TopicProduceData(name=name, topic_id=topic_id, partition_data=[])
                topics[name] = topic
            topic.partition_data.append(
                PartitionProduceData(index=batch.topic_partition.partition, records=batch.data)
            )
            batch.attempts += 1
            batch.tried_leader = leader
            batch.in_network = True
            self._metadata.used(name)
        max_version = _LAST_VERSION_WITH_NAMES if by_name else None
        if self.transaction is not None and not self.transaction.is_v2:
            max_version = _LAST_VERSION_OF_TRANSACTIONS_V1
        request = ProduceRequest(
            transactional_id=settings.transactional_id,
            acks=settings.acks,
            timeout_ms=int(settings.request_timeout_ms),
            topic_data=list(topics.values()),
        )
        self._in_flight[leader] = self._in_flight.get(leader, 0) + 1
        answer = self._network.send(
            leader,
            request,
            max_version=max_version,
            answered=settings.acks != 0,
        )
        self._metrics.request_sent(batches)
        answer.on_done(lambda source: self._answered(leader, request, batches, now, source))

    def _answered(
        self,
        leader: int,
        request: ProduceRequest,
        batches: list[ProducerBatch],
        sent_ms: float,
        source: Deferred[Response],
    ) -> None:
        self._in_flight[leader] -= 1
        self._metrics.request_ended(self._loop.now_ms() - sent_ms)
        for batch in batches:
            batch.in_network = False
            self._muted.discard(batch.topic_partition)
        try:
            response = source.result()
        except MillstreamError as error:
            outcomes = self._answers.failed(batches, error)
        else:
            if self._settings.acks == 0:
                outcomes = [Outcome(batch) for batch in batches]
            else:
                assert isinstance(response, ProduceResponse)
                self._metrics.throttled(response.throttle_time_ms)
                outcomes = self._answers.read(request, batches, response)
        for outcome in outcomes:
            self._outcomes.settle(outcome)
        if self._quiet_waiters:
            self._tell_quiet()
        self.wake()

    # --- transactions ----------------------------------------------------------------------------

    def _settle_transaction(self, transaction: TransactionManager) -> None:
        """Fail the batches that are not sent any more: of a failed or aborted transaction."""
        if not transaction.has_error and transaction.state is not TransactionState.ABORTING:
            return
        for batch in list(self._accumulator.incomplete):
            if batch.in_network:
                continue
            reason = transaction.drop_reason(was_sent=batch.has_sequence)
            if reason is not None:
                self._outcomes.give_up(batch, reason)

    def quiet(self) -> Deferred[None]:
        """Return a Deferred that completes once no Produce request is in flight."""
        cell: Deferred[None] = Deferred()
        self._quiet_waiters.append(cell)
        self._tell_quiet()
        return cell

    def _tell_quiet(self) -> None:
        if not any(self._in_flight.values()):
            waiters, self._quiet_waiters = self._quiet_waiters, []
            for cell in waiters:
                cell.complete(None)

    # --- sequences -------------------------------------------------------------------------------

    def _settle_sequences(self, sequences: Sequences) -> None:
        limit_ms = self._settings.delivery_timeout_ms
        for batch in sequences.renumber():
            with self._accumulator.lock:
                self._accumulator.remove(batch)
            if not batch.done:
                self._outcomes.finish(
                    batch,
                    BrokerError(
                        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                        f"{batch.count} records for {batch.topic_partition} may be there or not: "
                        f"a batch before them was given up after {limit_ms:.0f} ms",
                    ),
                )
        if not sequences.identity.is_known and self._accumulator.pending:
            self._producer_ids.ask(
                sequences.identity,
                is_wanted=lambda: bool(self._accumulator.pending) and not self._is_closed,
                on_refused=self._fail_all,
                on_end=self.wake,
            )

    def _fail_all(self, error: Exception) -> None:
        """Fail all batches: without a producer id nothing can be sent."""
        for batch in list(self._accumulator.incomplete):
            if not batch.in_network:
                self._outcomes.give_up(batch, error)

    def _forget_topic(self, name: str) -> None:
        for topic_partition in list(self._accumulator.queues):
            if topic_partition.topic != name:
                continue
            if self.transaction is not None:
                self.transaction.topic_recreated(topic_partition)
            elif self.sequences is not None:
                self.sequences.forget(topic_partition)
        if self.transaction is not None:
            self._outcomes.on_transaction_changed()
        self.wake()

    # --- waiting ---------------------------------------------------------------------------------

    def flush(self) -> Deferred[None]:
        """Return a Deferred that completes once everything appended before has an outcome."""

        async def run() -> None:
            self._accumulator.flushing += 1
            self.wake()
            try:
                for batch in list(self._accumulator.incomplete):
                    await self.outcome(batch)
            finally:
                self._accumulator.flushing -= 1

        return spawn(run())

    def outcome(self, batch: ProducerBatch) -> Deferred[None]:
        """Return a Deferred that completes once the batch is done."""
        with self._accumulator.lock:
            if batch.done:
                return Deferred.of(None)
            cell: Deferred[None] = Deferred()
            batch.watchers.append(lambda: cell.complete(None))
            return cell
