"""One run of the benchmarks: the subjects, what was measured so far, and where it is told."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console

from bench.admin import BrokerAnswerError
from bench.figures import Figure
from bench.options import MB, Options
from bench.pairs import ALSO, KAFKA, MILLSTREAM, Row, RowResult, run_row
from bench.peers.subject import SubjectFailedError
from bench.rows import raw_fetch_rows, raw_produce_rows
from bench.stage import Stage
from bench.work import warm_up


class Session:
    """Runs rows and keeps the raw ones, which B1 and B6 read in two ways."""

    def __init__(self, stage: Stage, progress: Console) -> None:
        self.stage = stage
        self._progress = progress
        self._raw_results: list[RowResult] | None = None
        self._is_warm = False

    @property
    def options(self) -> Options:
        """What the command line decided."""
        return self.stage.options

    def say(self, text: str) -> None:
        """Tell the person who waits what is going on."""
        self._progress.print(f"  {text}", style="dim", highlight=False, markup=False)

    def say_figures(self, name: str, figures: list[Figure]) -> None:
        """Tell that a part is done, and who failed in it."""
        self.say(f"{name}: done")
        reasons = {subject: why for figure in figures for subject, why in figure.failures.items()}
        for subject, reason in reasons.items():
            self.say(f"  {subject} failed: {reason.splitlines()[-1]}")

    def raw_results(self) -> list[RowResult]:
        """Return the rows of the raw load, run at the first call."""
        if self._raw_results is None:
            self._raw_results = self.run(
                [*raw_produce_rows(self.stage), *raw_fetch_rows(self.stage)]
            )
        return self._raw_results

    def run(self, rows: list[Row], *, warm_up: Callable[[], None] | None = None) -> list[RowResult]:
        """Run those rows that `--only` leaves, on warm brokers: those of the stage, unless
        `warm_up` warms others.
        """
        wanted = [row for row in rows if self.options.only in row.name]
        if wanted:
            (warm_up or self._warm_up)()
        results = []
        for row in wanted:
            start = time.monotonic()
            result = run_row(row, pairs=self.options.pairs)
            results.append(result)
            self.say(f"{row.name}: {time.monotonic() - start:.0f} s")
            for subject, reason in result.failures.items():
                self.say(f"  {subject} failed: {reason.splitlines()[-1]}")
        return results

    def _warm_up(self) -> None:
        if self._is_warm:
            return
        self._is_warm = True
        for name, broker in (
            (KAFKA, self.stage.kafka()),
            (MILLSTREAM, self.stage.millstream()),
            (ALSO, self.stage.millstream_also()),
        ):
            if broker is None:
                continue
            try:
                moved = warm_up(self.stage, broker)
            except (OSError, BrokerAnswerError, SubjectFailedError) as error:
                # Its rows will say what fails; the other subjects still have theirs.
                self.say(f"{name} did not warm up: {error}")
            else:
                self.say(f"{name} warmed up with {moved / MB:.0f} MB")
