"""Who is told how a load goes: when it starts, after each batch, when it restarts, when it ends.

Observers only watch. What they raise is logged and does not end the load.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.spark.lakehouse.batches import BatchReport

log = logging.getLogger(__name__)


class LoadObserver:
    """Is told about one load; by default it does nothing."""

    def started(self) -> None:
        """The load begins."""

    def batch(self, report: BatchReport) -> None:
        """A batch is in the table."""

    def restarted(self, error: Exception) -> None:
        """The load begins again after a temporary error."""

    def ended(self, error: BaseException | None, *, stopped: bool) -> None:
        """The load is over. ``stopped``: it was asked to stop, and did."""


class LoadObservers(LoadObserver):
    """Tells several observers."""

    def __init__(self, observers: Sequence[LoadObserver]) -> None:
        self._observers = list(observers)

    def started(self) -> None:
        """See :class:`LoadObserver`."""
        self._tell(lambda each: each.started())

    def batch(self, report: BatchReport) -> None:
        """See :class:`LoadObserver`."""
        self._tell(lambda each: each.batch(report))

    def restarted(self, error: Exception) -> None:
        """See :class:`LoadObserver`."""
        self._tell(lambda each: each.restarted(error))

    def ended(self, error: BaseException | None, *, stopped: bool) -> None:
        """See :class:`LoadObserver`."""
        self._tell(lambda each: each.ended(error, stopped=stopped))

    def _tell(self, what: Callable[[LoadObserver], None]) -> None:
        for each in self._observers:
            try:
                what(each)
            except Exception as error:  # whatever an observer's libraries raise
                log.warning("%s: %s", type(each).__name__, error)
