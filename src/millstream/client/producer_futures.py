"""What ``send`` and its like return: a thread may wait for the outcome."""

from __future__ import annotations

import threading

from millstream.client.core.producer.batch import Delivery, RecordMetadata, reason_of
from millstream.client.core.producer.encoded import RowsMetadata, RowsOutcome
from millstream.client.errors import TimedOutError
from millstream.client.thread_loop import check_may_wait


class RecordFuture(Delivery):
    """The outcome of one ``send``, with the interface of ``concurrent.futures.Future``."""

    __slots__ = ()

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait, ``timeout`` seconds at most, and return the record's metadata, or raise its error.

        TimedOutError if it is unknown by then; the record may still be delivered.
        WaitInCallbackError in a delivery callback, which runs on the thread that completes the
        future.
        """
        self._wait(timeout)
        return self._outcome()

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Wait as :meth:`result` does and return the error, None for a delivered record."""
        self._wait(timeout)
        return self._batch.error_of(self._index)

    def _wait(self, timeout: float | None) -> None:
        batch = self._batch
        if batch.done:
            return
        check_may_wait()
        event = threading.Event()
        batch.watchers.append(event.set)
        # The batch may have completed before the watcher was added.
        if not batch.done and not event.wait(timeout):
            raise TimedOutError(
                f"no outcome within {timeout} s; the record for {batch.topic_partition} is still "
                f"on its way{reason_of(batch)}"
            )


class RowsFuture:
    """The outcome of many rows that were sent at once."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.outcome = RowsOutcome(self._event.set)

    def done(self) -> bool:
        """True once the outcome of every row is known."""
        return self._event.is_set()

    def result(self, timeout: float | None = None) -> RowsMetadata:
        """Wait, ``timeout`` seconds at most, and return the rows' metadata.

        If some were not delivered the first error is raised, with a note of how many.
        TimedOutError if it is unknown by then. WaitInCallbackError in a delivery callback.
        """
        if not self.done():
            check_may_wait()
        if not self._event.wait(timeout):
            raise TimedOutError(f"no outcome within {timeout} s; the rows are still on their way")
        return self.outcome.metadata()
