"""What becomes of a batch: delivered, sent again, split, or failed.

``answers`` reads a response; this acts on it, tells sequences and the transaction, gives the memory
back, and completes futures and callbacks (Kafka: ``Sender.completeBatch``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from millstream.client.core.loop import ClientLoop
from millstream.client.core.metadata import MetadataView
from millstream.client.core.producer.accumulator import RecordAccumulator
from millstream.client.core.producer.answers import AnswerReader, Outcome
from millstream.client.core.producer.batch import ProducerBatch
from millstream.client.core.producer.metrics import ProducerMetrics
from millstream.client.core.producer.sequences import Sequences
from millstream.client.core.producer.transactions import TransactionManager
from millstream.client.core.settings import ProducerSettings
from millstream.client.core.waiting import backoff_ms
from millstream.client.errors import BrokerError, is_retriable
from millstream.model.errors import ErrorCode, KafkaError

log = logging.getLogger("millstream.client.producer")

_BUSY_BACKOFF_MS = 20.0
"""The first back-off while the transaction before is being ended."""


class BatchOutcomes:
    """The ends of one producer's batches. Runs on the loop."""

    def __init__(
        self,
        loop: ClientLoop,
        metadata: MetadataView,
        accumulator: RecordAccumulator,
        settings: ProducerSettings,
        metrics: ProducerMetrics,
        answers: AnswerReader,
        sequences: Sequences | None,
        transaction: TransactionManager | None,
    ) -> None:
        self.on_transaction_changed: Callable[[], None] = lambda: None
        """Called when a failed batch, or a recreated topic, may have ended the transaction."""
        self.is_closed = False
        """True once nothing is sent again."""
        self._loop = loop
        self._metadata = metadata
        self._accumulator = accumulator
        self._settings = settings
        self._metrics = metrics
        self._answers = answers
        self._sequences = sequences
        self._transaction = transaction

    def settle(self, outcome: Outcome) -> None:
        """Complete the batch, send it again, or give it up."""
        batch, error = outcome.batch, outcome.error
        if error is None or _code(error) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            if self._sequences is not None:
                self._sequences.acknowledged(batch)
            if self._transaction is not None and self._transaction.batch_acknowledged(batch):
                self.on_transaction_changed()
            if not batch.done:
                batch.succeed(outcome.base_offset, outcome.log_append_time_ms)
                self._tell(batch)
            return
        batch.is_ambiguous = batch.is_ambiguous or outcome.is_ambiguous
        if self.is_closed and not batch.done:
            self.finish(batch, error)
        elif _code(error) is ErrorCode.MESSAGE_TOO_LARGE and batch.count > 1 and not batch.done:
            self._split_or_fail(batch, outcome)
        elif self._is_tried_again(batch, error):
            self._try_again(batch, error)
        else:
            self.give_up(batch, error, outcome)
        if outcome.wants_metadata:
            self._metadata.request_update()

    def _is_tried_again(self, batch: ProducerBatch, error: Exception) -> bool:
        if batch.done or batch.attempts > self._settings.retries:
            return False
        if self._transaction is not None:
            if not self._transaction.retries_batches:
                return False
            if _code(error) in _GAPS:
                # A gap cannot be closed by another epoch: the transaction has to be aborted.
                assert self._sequences is not None
                return not self._sequences.is_first(batch)
        if self._sequences is not None and _code(error) in _GAPS:
            if self._sequences.is_first(batch):
                self._sequences.refused_as_gap(batch)
            return True
        return is_retriable(error)

    def _try_again(self, batch: ProducerBatch, error: Exception) -> None:
        settings = self._settings
        batch.last_error = error
        first_ms = settings.retry_backoff_ms
        if _code(error) is ErrorCode.CONCURRENT_TRANSACTIONS:
            first_ms = min(first_ms, _BUSY_BACKOFF_MS)
        batch.retry_at_ms = self._loop.now_ms() + backoff_ms(
            self._loop, batch.attempts - 1, first_ms, settings.retry_backoff_max_ms
        )
        log.debug("a batch for %s is sent again: %s", batch.topic_partition, error)
        self._metrics.retried(batch)
        self._accumulator.put_back([batch])

    def give_up(
        self, batch: ProducerBatch, error: Exception, outcome: Outcome | None = None
    ) -> None:
        """Abandon a batch: it is not sent again."""
        with self._accumulator.lock:
            self._accumulator.remove(batch)
        if self._sequences is not None:
            self._sequences.given_up(batch)
        if not batch.done:
            self.finish(batch, error, outcome)

    def finish(
        self, batch: ProducerBatch, error: Exception, outcome: Outcome | None = None
    ) -> None:
        """Fail a batch. One in the network stays known until its request has ended."""
        log.info("%d records for %s failed: %s", batch.count, batch.topic_partition, error)
        batch.fail(error, outcome.record_errors if outcome is not None else None)
        if self._transaction is not None and not self.is_closed:
            self._transaction.batch_failed(error)
            self.on_transaction_changed()
        self._metrics.failed(batch)
        self._tell(batch)

    def _tell(self, batch: ProducerBatch) -> None:
        """Release the memory, and complete the futures and callbacks."""
        with self._accumulator.lock:
            watchers, batch.watchers = batch.watchers, []
            callbacks, batch.callbacks = batch.callbacks or [], None
        self._accumulator.complete(batch)
        for watcher in watchers:
            watcher()
        for index, callback in callbacks:
            error = batch.error_of(index)
            try:
                callback(batch.metadata(index) if error is None else None, error)
            except KeyboardInterrupt:
                raise
            except BaseException:
                # Including SystemExit, which would end the client's thread and not the program.
                log.exception("an error in a delivery callback")

    def _split_or_fail(self, batch: ProducerBatch, outcome: Outcome) -> None:
        """Split a batch, unless an earlier attempt may have written it and it must not be doubled:
        brokers recognise a duplicate as a whole only, and look at the size first.
        """
        if self._sequences is None or not batch.is_ambiguous:
            self._split(batch)
            return
        told = BrokerError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{batch.count} records for {batch.topic_partition} may be there or not: an attempt "
            "was not answered, and the next one was refused",
        )
        self.give_up(batch, told, outcome)

    def _split(self, batch: ProducerBatch) -> None:
        """Send the halves of a batch that is too large for the broker."""
        log.info(
            "a batch of %d bytes for %s is too large and is split",
            batch.size,
            batch.topic_partition,
        )
        parts = self._answers.halves(batch)
        if self._sequences is not None:
            self._sequences.replaced(batch, parts)
        for part in parts:
            part.encode(
                self._settings.compression_type,
                self._settings.compression_level,
                is_transactional=self._transaction is not None,
            )
            part.held_bytes = batch.held_bytes // len(parts)
        batch.held_bytes -= sum(part.held_bytes for part in parts)
        self._accumulator.replace(batch, parts)
        self._metrics.split()
        self._answers.relay(batch, parts, lambda: self._tell(batch))
        self._accumulator.complete(batch)


_GAPS = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})


def _code(error: Exception) -> ErrorCode | None:
    return error.error if isinstance(error, KafkaError) else None
