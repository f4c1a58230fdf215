"""B2 from the command line to the results file: three brokers, one row, on a small load."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the ZooKeeper of the cluster is in PySpark's jars")

ROOT = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.system
@pytest.mark.slow
def test_a_quick_run_measures_three_brokers(tmp_path: Path) -> None:
    options = ["--quick", "--no-kafka", "--pairs", "1", "--only", "17 KB, acks=all"]
    directories = ["--data-dir", str(tmp_path), "--results-dir", str(tmp_path / "results")]

    done = subprocess.run(
        [sys.executable, "-m", "bench", "b2", *options, *directories],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "results").iterdir()
    tables = json.loads(file.read_text(encoding="utf-8"))["benchmarks"]["b2"]["tables"]
    throughput, cpu = (table["rows"][0] for table in tables)
    assert throughput["row"] == "raw produce 17 KB, acks=all"
    assert cpu["unit"] == "ms CPU/MB"
    subject = cpu["subjects"]["Millstream"]
    assert subject["failure"] is None
    (sample,) = subject["samples"]
    assert sample["moved_bytes"] == sample["requests"] * 17_000
    # Three brokers wrote every byte: what they took together is more than nothing.
    assert subject["median"] > 0
    assert [path.name for path in tmp_path.iterdir()] == ["results"]
