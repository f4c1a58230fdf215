"""What a load shows of itself: a bar on a terminal, a line for each batch elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from millstream.cli.output import human_bytes

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from millstream.spark.lakehouse.load import BatchReport


class LoadProgress:
    """Counts batches and shows rows, rate and lag on standard error."""

    def __init__(self, table: str, *, follow: bool, as_json: bool) -> None:
        self.batches = 0
        self.rows = 0
        self.dead_letters = 0
        self.bytes = 0
        self._table = table
        self._follow = follow
        self._quiet = as_json
        self._started = time.monotonic()
        self._bar: Bar | None = None
        if sys.stderr.isatty() and not as_json:
            self._bar = _bar()
            self._task = self._bar.add_task(table, total=None, rate="", lag="")

    def add(self, report: BatchReport) -> None:
        """Take note of a batch that is in the table."""
        self.batches += 1
        self.rows += report.rows
        self.dead_letters += report.dead_letters
        self.bytes += report.read_bytes
        seconds = max(time.monotonic() - self._started, 1e-9)
        if self._follow:
            seconds = max(report.seconds, 1e-9)
            rate = (
                f"{report.rows / seconds:,.0f} rows/s, {human_bytes(report.read_bytes / seconds)}/s"
            )
        else:
            rate = f"{self.rows / seconds:,.0f} rows/s, {human_bytes(self.bytes / seconds)}/s"
        if self._bar is not None:
            self._bar.update(
                self._task,
                completed=self.rows,
                total=self.rows + report.behind,
                rate=rate,
                lag=f"{report.behind:,} behind",
            )
        elif not self._quiet:
            print(
                f"batch {report.batch}: {report.rows:,} rows, {report.files} files, {rate}, "
                f"{report.behind:,} offsets behind",
                file=sys.stderr,
                flush=True,
            )

    def __enter__(self) -> LoadProgress:
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


def _bar() -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} rows"),
        TextColumn("{task.fields[rate]}"),
        TextColumn("{task.fields[lag]}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )
