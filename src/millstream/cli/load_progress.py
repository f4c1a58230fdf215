"""What a load shows of itself: a bar on a terminal, a line for each batch elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from millstream.cli.output import counted, human_bytes
from millstream.cli.progress import TerminalBar

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

    from millstream.spark.lakehouse.batches import BatchReport


class LoadProgress(TerminalBar):
    """Counts batches and shows rows, rate and lag on standard error."""

    def __init__(self, table: str, *, follow: bool, as_json: bool) -> None:
        self.batches = 0
        self.rows = 0
        self.dead_letters = 0
        self.reasons: Mapping[str, int] = {}
        self.bytes = 0
        self._follow = follow
        self._quiet = as_json
        self._started = time.monotonic()
        super().__init__(table, total=None, transient=False, wanted=not as_json, rate="", lag="")

    def add(self, report: BatchReport) -> None:
        """Take note of a batch that is in the table."""
        self.batches += 1
        self.rows += report.rows
        self.dead_letters += report.dead_letters
        if report.reasons:
            from millstream.spark.lakehouse.reject_limit import add_reasons

            self.reasons = add_reasons([self.reasons, report.reasons])
        self.bytes += report.read_bytes
        seconds = max(time.monotonic() - self._started, 1e-9)
        if self._follow:
            seconds = max(report.seconds, 1e-9)
            rate = (
                f"{report.rows / seconds:,.0f} rows/s, {human_bytes(report.read_bytes / seconds)}/s"
            )
        else:
            rate = f"{self.rows / seconds:,.0f} rows/s, {human_bytes(self.bytes / seconds)}/s"
        self.update(
            completed=self.rows,
            total=self.rows + report.behind,
            rate=rate,
            lag=f"{report.behind:,} behind",
        )
        if not self.is_shown and not self._quiet:
            print(
                f"batch {self.batches}: {report.rows:,} rows, {counted(report.files, 'file')}, "
                f"{rate}, {report.behind:,} offsets behind",
                file=sys.stderr,
                flush=True,
            )

    def columns(self) -> Sequence[ProgressColumn | str]:
        """Table, bar, rows, rate, lag, time."""
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

        return (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f} rows"),
            TextColumn("{task.fields[rate]}"),
            TextColumn("{task.fields[lag]}"),
            TimeElapsedColumn(),
        )
