"""Side by side: each row runs on every subject in turn, A B C A B C …, and only ratios count."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bench.load.report import LoadReport

KAFKA, MILLSTREAM, RAW_LIMIT = "Apache Kafka", "Millstream", "raw limit"
ALSO = "Millstream, also"
"""Millstream on the interpreter of ``--also-on``."""

Measure = Callable[[], LoadReport]


@dataclass(frozen=True)
class Metric:
    """One number taken from a report, and how it is shown."""

    unit: str
    of: Callable[[LoadReport], float]
    digits: int = 0


@dataclass(frozen=True)
class Target:
    """What Millstream's value divided by another subject's must reach, or stay below."""

    against: str
    bound: float
    at_most: bool = False

    def met_by(self, ratio: float) -> bool:
        return ratio <= self.bound if self.at_most else ratio >= self.bound

    def missed_by(self, ratio: float) -> float:
        """Return the fraction by which a ratio is worse than the bound; below 0 when met."""
        return ratio / self.bound - 1 if self.at_most else 1 - ratio / self.bound


@dataclass(frozen=True)
class Row:
    """One line of a table: the same work on each subject.

    `throughput` and `cpu` are two metrics of the same samples, each with its own targets.
    """

    name: str
    measures: Mapping[str, Measure]
    throughput: Metric
    cpu: Metric
    targets: tuple[Target, ...] = ()
    cpu_targets: tuple[Target, ...] = ()
    note: str = ""


@dataclass
class RowResult:
    """The counted samples of one row per subject, pair by pair, or why a subject has none."""

    row: Row
    samples: dict[str, list[LoadReport]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def median(self, subject: str, metric: Metric) -> float | None:
        """Return the median over a subject's samples."""
        reports = self.samples.get(subject)
        return statistics.median(map(metric.of, reports)) if reports else None

    def ratios(self, subject: str, metric: Metric, *, to: str = MILLSTREAM) -> list[float]:
        """Return, pair by pair, the value of `to` divided by that of `subject`."""
        return [
            metric.of(ours) / metric.of(theirs)
            for ours, theirs in zip(
                self.samples.get(to, []), self.samples.get(subject, []), strict=False
            )
            if metric.of(theirs)
        ]

    def ratio(self, subject: str, metric: Metric, *, to: str = MILLSTREAM) -> float | None:
        """Return the median of the paired ratios."""
        ratios = self.ratios(subject, metric, to=to)
        return statistics.median(ratios) if ratios else None


def run_row(row: Row, *, pairs: int) -> RowResult:
    """Run one uncounted sample per subject, then `pairs` counted rounds of all of them.

    A subject that fails drops out of the row with its reason; the others go on.
    """
    result = RowResult(row, {name: [] for name in row.measures})
    for round_number in range(pairs + 1):
        for name, measure in row.measures.items():
            if name in result.failures:
                continue
            try:
                report = measure()
            except Exception as error:
                result.failures[name] = f"{type(error).__name__}: {error}"
                result.samples[name] = []
                continue
            if round_number > 0:
                result.samples[name].append(report)
    return result
