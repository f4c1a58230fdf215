"""`python -m bench` from the command line to the results file, on a small load."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
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


@pytest.mark.long
@pytest.mark.system
@pytest.mark.parametrize(
    ("only", "figures"),
    [
        ("fetch 64 KB, 1", ["CPU of the open", "CPU with 1,000", "time", "CPU with byte", "time"]),
        ("load", ["start with Standard", "start with 2,000", "2,000 rules: mem", "2,000 rules: m"]),
        (
            "changes",
            ["from a change", "p99 of another client, no", "p99 of another client, beside"],
        ),
    ],
)
def test_a_quick_run_of_rules_and_quotas(tmp_path: Path, only: str, figures: list[str]) -> None:
    options = ["--quick", "--no-kafka", "--pairs", "1", "--only", only]
    directories = ["--data-dir", str(tmp_path), "--results-dir", str(tmp_path / "results")]

    done = subprocess.run(
        [sys.executable, "-m", "bench", "b17", *options, *directories],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "results").iterdir()
    benchmarks = json.loads(file.read_text(encoding="utf-8"))["benchmarks"]
    (table,) = benchmarks["b17"]["tables"]
    for row, name in zip(table["rows"], figures, strict=True):
        assert name in row["name"]
        assert row["failures"] == {}
        assert row["values"]["Millstream"]
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


@pytest.mark.system
def test_a_run_that_is_ended_from_outside_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "b1", "--no-kafka", "--data-dir", str(tmp_path)]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as run:
        deadline = time.monotonic() + 60
        while not (brokers := brokers_of(run.pid)):
            assert time.monotonic() < deadline
            assert run.poll() is None
            time.sleep(0.05)
        run.terminate()
        assert run.wait(60) == 143
    assert not [each for each in brokers if each.is_running()]
    assert list(tmp_path.iterdir()) == []


def brokers_of(pid: int) -> list[psutil.Process]:
    children = psutil.Process(pid).children(recursive=True)
    return [each for each in children if "serve" in each.cmdline()]


@pytest.mark.long
@pytest.mark.system
@pytest.mark.timeout(400)
def test_a_quick_run_on_a_topic_of_200_partitions(tmp_path: Path) -> None:
    options = ["--quick", "--no-kafka", "--pairs", "1", "--spark-mb", "200", "--partitions", "200"]
    directories = ["--data-dir", str(tmp_path), "--results-dir", str(tmp_path / "results")]

    done = subprocess.run(
        [
            *(sys.executable, "-m", "bench", "b10", "--only", "landing, delta"),
            *options,
            *directories,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=350,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "results").iterdir()
    benchmarks = json.loads(file.read_text(encoding="utf-8"))["benchmarks"]
    (row,) = benchmarks["b10"]["tables"][0]["rows"]
    assert row["row"] == "landing, delta"
    assert set(row["subjects"]) == {"Millstream", "Millstream, files"}
    for subject in row["subjects"].values():
        assert subject["failure"] is None
        assert subject["samples"][0]["rows"]
