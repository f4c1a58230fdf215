"""A progress bar on standard error, where that is a terminal; counters everywhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bar


class Progress:
    """Counts bytes that were read and records that were acknowledged, and shows both."""

    def __init__(self, *, total_bytes: int | None, shows_records: bool = True) -> None:
        self.bytes = 0
        self.records = 0
        self._bar: Bar | None = None
        if sys.stderr.isatty():
            self._bar = _bar(shows_records=shows_records)
            self._task = self._bar.add_task("", total=total_bytes, records=0)

    def add_bytes(self, count: int) -> None:
        """Count bytes of input."""
        self.bytes += count
        if self._bar is not None:
            self._bar.update(self._task, completed=self.bytes)

    def add_records(self, count: int) -> None:
        """Count records that the brokers have."""
        self.records += count
        if self._bar is not None:
            self._bar.update(self._task, records=self.records)

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


def _bar(*, shows_records: bool) -> Bar:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    records = (TextColumn("{task.fields[records]:,} records"),) if shows_records else ()
    return Progress(
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        *records,
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
