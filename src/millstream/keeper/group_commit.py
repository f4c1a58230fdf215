"""Work on the store, off the loop: what comes while a transaction is written shares the next one.

Reads go the same way, so that they see what was asked for before them and nothing that is not on
disk.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from millstream.model.deferred import Deferred
from millstream.model.errors import StorageError
from millstream.model.metadata_store import MetadataStoreError
from millstream.sqlite.database import Database

T = TypeVar("T")

LANE: Final = "metadata"
MAX_BATCH: Final = 256
"""Requests in one transaction: none of them is answered before all are carried out."""


class Lane(Protocol):
    """Runs blocking work on another thread, in order (``runtime.offload.Offload``)."""

    def run(self, lane: str, function: Callable[[], T]) -> Deferred[T]:
        """Run ``function`` after all earlier work of ``lane``."""


class GroupCommit:
    """The store of a keeper. ``on_failed`` is called once when the disk has failed: what was asked
    for since is never answered, because it is unknown what is on disk.
    """

    def __init__(
        self, lane: Lane, directory: Path, *, on_failed: Callable[[Exception], None]
    ) -> None:
        self._lane = lane
        self._directory = directory
        self._on_failed = on_failed
        self._database: Database | None = None
        self._queue: deque[tuple[Callable[[Database], Any], Deferred[Any]]] = deque()
        self._running = False
        self._failed = False
        self.commits = 0
        """How many transactions there have been, those that changed nothing included."""

    def open(self) -> Deferred[None]:
        """Open the file; fails with StorageError when another process has it."""
        return self._lane.run(LANE, self._open)

    def run(self, work: Callable[[Database], T]) -> Deferred[T]:
        """Do ``work`` after what was asked for before it; the Deferred is filled once it is on
        disk, or fails with a MetadataStoreError and has changed nothing.
        """
        outcome: Deferred[T] = Deferred()
        self._queue.append((work, outcome))
        self._begin()
        return outcome

    def close(self) -> Deferred[None]:
        """Close the file after what was asked for."""
        return self._lane.run(LANE, self._close)

    def _open(self) -> None:
        try:
            self._database = Database(self._directory, shared=True)
        except StorageError as error:
            if getattr(error.__cause__, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
                raise StorageError(
                    str(self._directory), "another process is using this directory"
                ) from error
            raise

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def _begin(self) -> None:
        if self._running or self._failed or not self._queue:
            return
        self._running = True
        count = min(len(self._queue), MAX_BATCH)
        jobs = [self._queue.popleft() for _ in range(count)]
        works = [work for work, _ in jobs]
        waiting = [outcome for _, outcome in jobs]
        done = self._lane.run(LANE, lambda: self._carry_out(works))
        done.on_done(lambda each: self._ended(each, waiting))

    def _carry_out(self, works: list[Callable[[Database], Any]]) -> list[Any]:
        database = self._database
        if database is None:
            raise StorageError(str(self._directory), "metadata: the store is closed")
        results: list[Any] = []
        with database.batch():
            for work in works:
                try:
                    results.append(work(database))
                except MetadataStoreError as error:
                    results.append(error)
        self.commits += 1
        return results

    def _ended(self, done: Deferred[list[Any]], waiting: list[Deferred[Any]]) -> None:
        self._running = False
        try:
            results = done.result()
        except Exception as error:
            self._failed = True
            self._queue.clear()
            self._on_failed(error)
            return
        self._begin()
        for outcome, result in zip(waiting, results, strict=True):
            if isinstance(result, MetadataStoreError):
                outcome.fail(result)
            else:
                outcome.complete(result)
