"""B9 and B13 from the command line to the results file, on a small load of their quickest parts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from bench.b13 import refusals
from bench.pairs import KAFKA

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.long]


@pytest.mark.parametrize(
    ("name", "part", "figures"),
    [
        ("b9", "recovery", {"recovery of", "cat of", "recovery's time"}),
        ("b13", "connections", {"500 idle", "produce p50"}),
    ],
)
def test_a_part_has_its_figures(tmp_path: Path, name: str, part: str, figures: set[str]) -> None:
    options = ["--quick", "--no-kafka", "--pairs", "1", "--only", part, "--log-gb", "0.4"]
    directories = ["--data-dir", str(tmp_path), "--results-dir", str(tmp_path / "results")]

    done = subprocess.run(
        [sys.executable, "-m", "bench", name, *options, *directories],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "results").iterdir()
    (table,) = json.loads(file.read_text(encoding="utf-8"))["benchmarks"][name]["tables"]
    for wanted in figures:
        assert any(row["name"].startswith(wanted) for row in table["rows"])
    for row in table["rows"]:
        assert row["failures"] == {}
        assert all(value >= 0 for value in row["values"]["Millstream"])
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_kafka_is_left_out_where_it_cannot_map_its_indexes() -> None:
    limit = int(Path("/proc/sys/vm/max_map_count").read_text())
    assert refusals(1) == {}
    assert str(limit) in refusals(limit // 1_000)[KAFKA]
