"""Results as tables for people and as plain data for the results file."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from rich.table import Table

from bench.figures import Figure
from bench.metrics import LOAD_CORES
from bench.pairs import ALSO, KAFKA, MILLSTREAM, RAW_LIMIT, Metric, RowResult, Target

JsonValue = str | int | float | bool | None | list["JsonValue"] | dict[str, "JsonValue"]

NOTHING = "—"
_ALWAYS = (KAFKA, MILLSTREAM)


@dataclass
class Tally:
    """How many targets were met, missed, or could not be judged for want of a figure."""

    met: int = 0
    missed: int = 0
    open: int = 0

    def count(self, met: bool | None) -> None:
        """Take one verdict; None when there is no figure."""
        if met is None:
            self.open += 1
        elif met:
            self.met += 1
        else:
            self.missed += 1

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.met + other.met, self.missed + other.missed, self.open + other.open)


@dataclass(frozen=True)
class Section:
    """One table, the same as data, and how its targets fared."""

    table: Table
    data: JsonValue
    tally: Tally


def throughput_table(title: str, results: list[RowResult]) -> Section:
    """Show how much went through, higher is better."""
    return _paired_table(title, results, cpu=False)


def cpu_table(title: str, results: list[RowResult]) -> Section:
    """Show what it cost, lower is better."""
    return _paired_table(title, results, cpu=True)


def _paired_table(title: str, results: list[RowResult], *, cpu: bool) -> Section:
    measured = {subject for result in results for subject in result.samples}
    subjects = [e for e in (KAFKA, MILLSTREAM, ALSO, RAW_LIMIT) if e in (*_ALWAYS, *measured)]
    compared = [e for e in (KAFKA, RAW_LIMIT) if e in subjects]
    has_also = ALSO in subjects
    table = Table(title=title, title_justify="left")
    table.add_column("row", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    for subject in subjects:
        table.add_column(subject, justify="right", no_wrap=True)
    for subject in compared:
        table.add_column(f"ours / {subject}", no_wrap=True)
    if has_also:
        table.add_column(f"also / {KAFKA}", no_wrap=True)
    table.add_column("load, cores", justify="right", no_wrap=True)
    rows: list[JsonValue] = []
    tally = Tally()
    for result in results:
        metric = result.row.cpu if cpu else result.row.throughput
        targets = result.row.cpu_targets if cpu else result.row.targets
        table.add_row(
            result.row.name,
            metric.unit,
            *(_value(result, subject, metric) for subject in subjects),
            *(_ratio(result, subject, metric, targets) for subject in compared),
            *([_shown(result.ratio(KAFKA, metric, to=ALSO))] if has_also else []),
            f"{_load_cores(result):.2f}",
        )
        for target in targets:
            ratio = result.ratio(target.against, metric)
            tally.count(None if ratio is None else target.met_by(ratio))
        rows.append(_row_data(result, metric, targets))
    return Section(table, {"title": title, "rows": rows}, tally)


def _load_cores(result: RowResult) -> float:
    """Return how many cores the load used where it used most."""
    return max((result.median(name, LOAD_CORES) or 0.0 for name in result.samples), default=0.0)


def _value(result: RowResult, subject: str, metric: Metric) -> str:
    if subject in result.failures:
        return "[red]failed[/red]"
    value = result.median(subject, metric)
    return NOTHING if value is None else f"{value:,.{metric.digits}f}"


def _ratio(result: RowResult, subject: str, metric: Metric, targets: tuple[Target, ...]) -> str:
    ratio = result.ratio(subject, metric)
    target = next((target for target in targets if target.against == subject), None)
    if ratio is None or target is None:
        return _shown(ratio)
    return f"{ratio:.2f} {_verdict(target, ratio)}"


def _shown(ratio: float | None) -> str:
    return NOTHING if ratio is None else f"{ratio:.2f}"


def _verdict(target: Target, ratio: float) -> str:
    wanted = f"({'≤' if target.at_most else '≥'} {target.bound:g})"
    if target.met_by(ratio):
        return f"[green]{wanted} met[/green]"
    return f"[red]{wanted} missed by {_percent(target.missed_by(ratio))}[/red]"


def _percent(fraction: float) -> str:
    return f"{fraction:.0%}" if fraction >= 0.01 else f"{fraction:.1%}"


def _row_data(result: RowResult, metric: Metric, targets: tuple[Target, ...]) -> JsonValue:
    subjects: dict[str, JsonValue] = {}
    for name, reports in result.samples.items():
        subjects[name] = {
            "median": result.median(name, metric),
            "samples": [dict(asdict(report)) for report in reports],
            "failure": result.failures.get(name),
        }
    ratios: dict[str, JsonValue] = {}
    for shown, name, to in (
        (KAFKA, KAFKA, MILLSTREAM),
        (RAW_LIMIT, RAW_LIMIT, MILLSTREAM),
        (f"{ALSO}, to {KAFKA}", KAFKA, ALSO),
        (f"{ALSO}, to {MILLSTREAM}", MILLSTREAM, ALSO),
    ):
        paired = result.ratios(name, metric, to=to)
        if paired:
            ratios[shown] = {
                "median": result.ratio(name, metric, to=to),
                "least": min(paired),
                "greatest": max(paired),
            }
    wanted: list[JsonValue] = []
    for target in targets:
        ratio = result.ratio(target.against, metric)
        wanted.append({**asdict(target), "met": None if ratio is None else target.met_by(ratio)})
    return {
        "row": result.row.name,
        "unit": metric.unit,
        "note": result.row.note,
        "subjects": subjects,
        "ratios": ratios,
        "targets": wanted,
    }


def figures_table(title: str, figures: list[Figure]) -> Section:
    """Show figures that have bounds of their own; median, and 95th percentile (or, where the worst
    counts, the largest value) in parentheses.
    """
    table = Table(title=title, title_justify="left")
    table.add_column("figure")
    table.add_column("unit", no_wrap=True)
    table.add_column(KAFKA, justify="right")
    table.add_column(MILLSTREAM, justify="right")
    table.add_column(f"{KAFKA} / Millstream", justify="right")
    table.add_column("target for Millstream")
    rows: list[JsonValue] = []
    tally = Tally()
    for figure in figures:
        theirs, ours = figure.median(KAFKA), figure.median(MILLSTREAM)
        verdict = NOTHING
        if figure.at_most is not None:
            judged = figure.judged(MILLSTREAM)
            tally.count(None if judged is None else judged <= figure.at_most)
            verdict = _bound_verdict(judged, figure.at_most)
        table.add_row(
            figure.name,
            figure.unit,
            _median_and_upper(figure, KAFKA),
            _median_and_upper(figure, MILLSTREAM),
            f"{theirs / ours:.1f}" if theirs and ours else NOTHING,
            verdict,
        )
        rows.append({**_plain(figure), "medians": {KAFKA: theirs, MILLSTREAM: ours}})
    return Section(table, {"title": title, "rows": rows}, tally)


def _bound_verdict(judged: float | None, bound: float) -> str:
    if judged is None:
        return f"≤ {bound:g}"
    if judged <= bound:
        return f"[green]≤ {bound:g} met[/green]"
    by = f" by {_percent(judged / bound - 1)}" if bound else ""
    return f"[red]≤ {bound:g} missed{by}[/red]"


def _median_and_upper(figure: Figure, subject: str) -> str:
    median = figure.median(subject)
    upper = figure.largest(subject) if figure.worst else figure.p95(subject)
    if median is None or upper is None:
        return "[red]failed[/red]" if subject in figure.failures else NOTHING
    if len(figure.values[subject]) == 1:
        return f"{median:,.{figure.digits}f}"
    return f"{median:,.{figure.digits}f} ({upper:,.{figure.digits}f})"


def _plain(figure: Figure) -> dict[str, JsonValue]:
    data: dict[str, JsonValue] = dict(asdict(figure))
    return data
