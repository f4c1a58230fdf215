"""What a load shows of itself: a bar on a terminal, a line for each batch elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from millstream.cli.output import counted, human_bytes
from millstream.cli.progress import TerminalBar
from millstream.spark.lakehouse.pace import Pace, seconds_in_words

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
        self._pace = Pace()
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
        self._pace.add(report, time.monotonic())
        rate, lag = self._rate(), self._lag()
        self.update(completed=self.rows, total=self.rows + report.behind, rate=rate, lag=lag)
        if not self.is_shown and not self._quiet:
            print(
                f"batch {self.batches}: {report.rows:,} rows, {counted(report.files, 'file')}, "
                f"{rate}, {lag}",
                file=sys.stderr,
                flush=True,
            )

    def _rate(self) -> str:
        """Return the speed: of the last minute with --follow, of all of it otherwise."""
        if self._follow:
            rows, read_bytes = self._pace.rows_per_second, self._pace.bytes_per_second
        else:
            seconds = max(time.monotonic() - self._started, 1e-9)
            rows, read_bytes = self.rows / seconds, self.bytes / seconds
        return f"{rows:,.0f} rows/s, {human_bytes(read_bytes)}/s"

    def _lag(self) -> str:
        pace = self._pace
        told = [f"{pace.behind:,} {'' if self.is_shown else 'offsets '}behind"]
        if pace.lag_seconds:
            told.append(f"lag {seconds_in_words(pace.lag_seconds)}")
        if pace.behind:
            rest = pace.seconds_to_go
            told.append("not gaining" if rest is None else f"{seconds_in_words(rest)} to go")
        return ", ".join(told)

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
