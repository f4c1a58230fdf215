"""Lands the batch behind the one that is being committed, on a thread of its own.

A store or a catalogue takes its time for a commit, and a merge of changes takes longer; meanwhile
nobody would read. There is never more than one batch ahead, and the thread runs its tasks and
nothing else: what they have written is looked at, and committed, by the thread that commits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from millstream.spark.lakehouse.batches import Plan
from millstream.spark.lakehouse.landing import Landed

log = logging.getLogger(__name__)


class LandingAhead:
    """The tasks of one batch, as they run."""

    def __init__(self, plan: Plan, run: Callable[[], Sequence[Landed]]) -> None:
        self.plan = plan
        self._threads = ThreadPoolExecutor(1, "landing-ahead")
        self._landed: Future[Sequence[Landed]] = self._threads.submit(run)
        self._threads.shutdown(wait=False)

    def result(self) -> Sequence[Landed]:
        """Wait for the tasks and return their results, or raise their error."""
        return self._landed.result()

    def drop(self, discard: Callable[[Sequence[Landed]], None]) -> None:
        """Wait for the tasks and give their files to ``discard``. Never fails: files that stay are
        orphans, which a later load removes.
        """
        try:
            discard(self._landed.result())
        except Exception as error:  # of Spark, of the network, of the store
            log.info("batch %d, landed ahead, was left: %s", self.plan.batch, error)
