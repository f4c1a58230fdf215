"""`python -m bench` from the command line to the results file, on a small load."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.system
def test_a_quick_run_has_figures_for_the_broker_and_the_raw_limit(tmp_path: Path) -> None:
    options = ["--quick", "--no-kafka", "--pairs", "1", "--only", "64 KB, 4"]
    directories = ["--data-dir", str(tmp_path), "--results-dir", str(tmp_path / "results")]

    done = subprocess.run(
        [sys.executable, "-m", "bench", "b1", "b6", *options, *directories],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "left out by --no-kafka" in done.stdout
    (file,) = (tmp_path / "results").iterdir()
    benchmarks = json.loads(file.read_text(encoding="utf-8"))["benchmarks"]
    (row,) = benchmarks["b1"]["tables"][0]["rows"]
    assert row["row"] == "fetch 64 KB, 4 connections"
    assert set(row["subjects"]) == {"Millstream", "raw limit"}
    for subject in row["subjects"].values():
        assert subject["failure"] is None
        (sample,) = subject["samples"]
        assert sample["moved_bytes"] == sample["requests"] << 16
    assert benchmarks["b6"]["tables"][0]["rows"][0]["unit"] == "ms CPU/MB"
    # The directory of the run is gone with everything in it.
    assert [path.name for path in tmp_path.iterdir()] == ["results"]
