"""Lands the batch behind the one that is being committed, on a thread of its own.

A store or a catalogue takes its time for a commit, and a merge of changes takes longer; meanwhile
nobody would read. There is never more than one batch ahead (of each table, where several are loaded
together), and the thread runs its tasks and nothing else: what they have written is looked at, and
committed, by the thread that commits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, Protocol, TypeVar

from millstream.spark.lakehouse.kept_threads import on_kept_thread

log = logging.getLogger(__name__)

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")


class Inherit(Protocol):
    """Gives a function what the calling thread has, such as Spark's job group, pool and tags, for
    it is called on another one.
    """

    def __call__(self, run: Callable[[], T], /) -> Callable[[], T]:
        """Return the function to be called."""


def inherit_nothing(run: Callable[[], T], /) -> Callable[[], T]:
    """Return a function as it is: without Spark a thread has nothing of its own."""
    return run


class LandingAhead(Generic[P, R]):
    """The tasks of one batch, as they run."""

    def __init__(self, plan: P, run: Callable[[], R]) -> None:
        self.plan = plan
        self._landed: Future[R] = on_kept_thread(run)

    def result(self) -> R:
        """Wait for the tasks and return their results, or raise their error."""
        return self._landed.result()

    def drop(self, discard: Callable[[R], None]) -> None:
        """Wait for the tasks and give their files to ``discard``. Never fails: files that stay are
        orphans, which a later load removes.
        """
        try:
            discard(self._landed.result())
        except Exception as error:  # of Spark, of the network, of the store
            log.info("what was landed ahead was left: %s", error)
