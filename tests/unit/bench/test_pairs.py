"""Order of the rounds, medians of paired ratios, and the verdicts on targets."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from bench import results
from bench.figures import Figure
from bench.load.report import LoadReport
from bench.metrics import CPU_PER_MB, MB_PER_S
from bench.pairs import (
    ALSO,
    KAFKA,
    MILLSTREAM,
    RAW_LIMIT,
    Measure,
    Row,
    RowResult,
    Target,
    run_row,
)
from bench.tables import Section, Tally, cpu_table, figures_table, throughput_table
from rich.console import Console


def report(seconds: float, cpu_s: float = 1.0) -> LoadReport:
    return LoadReport(
        seconds=seconds,
        requests=100,
        records=100,
        moved_bytes=1_000_000_000,
        broker_cpu_s=cpu_s,
        load_cpu_s=0.5,
    )


def row(measures: dict[str, Measure], *targets: Target) -> Row:
    half = (Target(KAFKA, 0.5, at_most=True),)
    return Row("a row", measures, MB_PER_S, CPU_PER_MB, targets, half)


def result(ours: list[LoadReport], kafka: list[LoadReport], *targets: Target) -> RowResult:
    return RowResult(row({}, *targets), {KAFKA: kafka, MILLSTREAM: ours})


def shown(section: Section) -> str:
    out = io.StringIO()
    Console(file=out, width=200).print(section.table)
    return out.getvalue()


def test_subjects_take_turns_and_the_first_round_does_not_count() -> None:
    calls: list[str] = []

    def measure(name: str) -> Measure:
        def run() -> LoadReport:
            calls.append(name)
            return report(seconds=len(calls))

        return run

    found = run_row(row({KAFKA: measure("A"), MILLSTREAM: measure("B")}), pairs=2)

    assert "".join(calls) == "ABABAB"
    assert [each.seconds for each in found.samples[KAFKA]] == [3, 5]
    assert [each.seconds for each in found.samples[MILLSTREAM]] == [4, 6]


def test_a_subject_that_fails_drops_out_and_the_others_go_on() -> None:
    def fail() -> LoadReport:
        raise ValueError("no such topic")

    found = run_row(row({KAFKA: lambda: report(1.0), MILLSTREAM: fail}), pairs=3)

    assert len(found.samples[KAFKA]) == 3
    assert found.failures == {MILLSTREAM: "ValueError: no such topic"}
    assert found.ratio(KAFKA, MB_PER_S) is None
    assert "failed" in shown(throughput_table("t", [found]))


def test_the_ratio_is_the_median_of_the_pairs_and_not_the_ratio_of_medians() -> None:
    # The machine slows down tenfold during the last pair; ours is twice as fast all along.
    found = result(
        [report(1.0), report(2.0), report(10.0)], [report(2.0), report(4.0), report(20.0)]
    )
    assert found.ratio(KAFKA, MB_PER_S) == pytest.approx(2.0)
    assert found.ratios(KAFKA, MB_PER_S) == pytest.approx([2.0, 2.0, 2.0])
    assert found.median(MILLSTREAM, MB_PER_S) == pytest.approx(500.0)


@pytest.mark.parametrize(
    ("target", "ratio", "met", "missed_by"),
    [
        (Target(KAFKA, 2.0), 2.0, True, 0.0),
        (Target(KAFKA, 2.0), 1.5, False, 0.25),
        (Target(KAFKA, 0.5, at_most=True), 0.5, True, 0.0),
        (Target(KAFKA, 0.5, at_most=True), 0.6, False, 0.2),
    ],
)
def test_targets(target: Target, ratio: float, met: bool, missed_by: float) -> None:
    assert target.met_by(ratio) is met
    assert target.missed_by(ratio) == pytest.approx(missed_by)


def test_tables_say_what_was_met_and_by_how_much_it_was_missed() -> None:
    targets = (Target(KAFKA, 2.0), Target(RAW_LIMIT, 0.7))
    found = result([report(1.0, cpu_s=0.4)], [report(1.5, cpu_s=1.0)], *targets)

    throughput, cpu = throughput_table("t", [found]), cpu_table("c", [found])

    assert "1.50 (≥ 2) missed by 25%" in shown(throughput)
    assert throughput.tally == Tally(met=0, missed=1, open=1)
    assert "0.40 (≤ 0.5) met" in shown(cpu)
    assert cpu.tally == Tally(met=1, missed=0, open=0)
    json.dumps([throughput.data, cpu.data])


def test_a_further_interpreter_has_a_column_and_ratios_of_its_own() -> None:
    found = result([report(1.0)], [report(2.0)], Target(KAFKA, 2.0))
    assert "also" not in shown(throughput_table("t", [found]))

    found.samples[ALSO] = [report(0.5)]
    section = throughput_table("t", [found])

    assert "also / Apache Kafka" in shown(section)
    assert "4.00" in shown(section)
    assert section.tally == Tally(met=1, missed=0, open=0)
    assert isinstance(section.data, dict)
    (data,) = section.data["rows"]
    ratios = {name: each["median"] for name, each in data["ratios"].items()}
    assert ratios == {KAFKA: 2.0, f"{ALSO}, to {KAFKA}": 4.0, f"{ALSO}, to {MILLSTREAM}": 2.0}


def test_figures_have_medians_percentiles_and_bounds() -> None:
    figure = Figure("start", "s", 2, at_most=0.25)
    for value in range(1, 21):
        figure.add(MILLSTREAM, value / 100)
        figure.add(KAFKA, value / 10)

    section = figures_table("f", [figure])

    assert figure.median(MILLSTREAM) == pytest.approx(0.105)
    assert figure.p95(MILLSTREAM) == pytest.approx(0.19)
    assert "1.05 (1.90)" in shown(section)
    assert "≤ 0.25 met" in shown(section)
    assert section.tally == Tally(met=1)


def test_a_second_run_of_a_day_keeps_the_first_file(tmp_path: Path) -> None:
    first = results.results_path(quick=False, directory=tmp_path)
    results.write(first, {"benchmarks": {}})
    second = results.results_path(quick=False, directory=tmp_path)

    assert json.loads(first.read_text()) == {"benchmarks": {}}
    assert second.name == f"{first.stem}-2.json"
    assert [path.name for path in tmp_path.iterdir()] == [first.name]
