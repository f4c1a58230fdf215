"""Runs the tasks of batches, and stops around their commits, so that a test decides what happens
meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from millstream.spark.lakehouse.commits import Commits
from millstream.spark.lakehouse.landing import Landed, Landing
from millstream.spark.lakehouse.load import Runner, local_runner
from millstream.spark.ranges import OffsetRange

PATIENCE_S = 60.0


class CrashError(Exception):
    """The driver dies here."""


class WatchedRunner:
    """Runs tasks, and tells which batches have been landed."""

    def __init__(
        self, before: Callable[[int], None] = lambda batch: None, *, run: Runner = local_runner
    ) -> None:
        self.batches: list[int] = []
        self._before = before
        self._run = run
        self._landed = threading.Condition()

    def __call__(self, tasks: Sequence[Sequence[OffsetRange]], landing: Landing) -> list[Landed]:
        self._before(landing.files.batch)
        landed = self._run(tasks, landing)
        with self._landed:
            self.batches.append(landing.files.batch)
            self._landed.notify_all()
        return landed

    def wait(self, batch: int) -> bool:
        """Wait until a batch is landed; False where that takes too long."""
        with self._landed:
            return self._landed.wait_for(lambda: batch in self.batches, PATIENCE_S)


@contextmanager
def around_commits(
    patch: pytest.MonkeyPatch, before: Callable[[int], None], after: Callable[[int], None]
) -> Iterator[None]:
    """Call something with a batch's number before and after its commit."""
    commit = Commits._commit

    def watched(self: Commits, ready: Any, rules: Any) -> None:
        before(ready.plan.batch)
        commit(self, ready, rules)
        after(ready.plan.batch)

    with patch.context() as context:
        context.setattr(Commits, "_commit", watched)
        yield


def nothing(batch: int) -> None:
    """Do nothing."""
