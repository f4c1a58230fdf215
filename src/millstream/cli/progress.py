"""A progress bar on standard error, where that is a terminal; counters everywhere."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import ProgressColumn


class TerminalBar(ABC):
    """A bar for as long as a block runs; where standard error is no terminal, or where it is not
    ``wanted``, there is none and updates go nowhere.

    ``fields`` are what the columns show beside what a bar knows, at the beginning.
    """

    def __init__(
        self,
        description: str = "",
        *,
        total: float | None,
        transient: bool = True,
        wanted: bool = True,
        **fields: object,
    ) -> None:
        self.is_shown = wanted and sys.stderr.isatty()
        if self.is_shown:
            from rich.console import Console
            from rich.progress import Progress as Bar

            self._bar = Bar(*self.columns(), console=Console(stderr=True), transient=transient)
            self._task = self._bar.add_task(description, total=total)
            self._bar.tasks[0].fields.update(fields)

    @abstractmethod
    def columns(self) -> Sequence[ProgressColumn | str]:
        """Return what the bar is made of; asked once, where there is one."""

    def update(
        self, *, completed: float | None = None, total: float | None = None, **fields: object
    ) -> None:
        """Show how far it is."""
        if self.is_shown:
            self._bar.tasks[0].fields.update(fields)
            self._bar.update(self._task, completed=completed, total=total)

    def __enter__(self) -> Self:
        if self.is_shown:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.is_shown:
            self._bar.stop()


class Progress(TerminalBar):
    """Counts bytes that were read and records that were acknowledged, and shows both."""

    def __init__(self, *, total_bytes: int | None, shows_records: bool = True) -> None:
        self.bytes = 0
        self.records = 0
        self.under_way = 0
        """Records that were handed over and have no outcome yet."""
        self._shows_records = shows_records
        super().__init__(total=total_bytes, records=0)

    def columns(self) -> Sequence[ProgressColumn | str]:
        """Bar, bytes, rate, records, time."""
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        shown = (TextColumn("{task.fields[records]:,} records"),) if self._shows_records else ()
        return (
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            *shown,
            TimeRemainingColumn(),
        )

    def add_bytes(self, count: int) -> None:
        """Count bytes of input."""
        self.bytes += count
        self.update(completed=self.bytes)

    def add_records(self, count: int) -> None:
        """Count records that the brokers have."""
        self.records += count
        self.update(records=self.records)
