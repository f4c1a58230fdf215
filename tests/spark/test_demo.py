"""`millstream demo`, from the log to the table, as `make demo` runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def run_demo(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "millstream.cli.main", "demo", *words],
        cwd=cwd,
        env=None,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_the_main_job(tmp_path: Path) -> None:
    home = tmp_path / "kept"
    done = run_demo("--lines", "3000", "--seed", "7", "--dir", str(home), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "millstream listening on 127.0.0.1:" in done.stdout
    assert "consumer-1 has partitions 0, 1, 2, 3" in done.stdout
    assert "consumer-1 has partitions 0, 1; consumer-2 has partitions 2, 3" in done.stdout
    assert done.stdout.count("equal to the input") == 4
    assert "instead of" not in done.stdout
    for heading in ("hits by status", "segments and indexes", "time of each step"):
        assert heading in done.stdout
    assert list((home / "parquet").glob("*.parquet"))
    left = [
        each.info["cmdline"]
        for each in psutil.process_iter(["cmdline"])
        if str(home) in " ".join(each.info["cmdline"] or ())
    ]
    assert left == []


def test_a_directory_that_is_in_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "mine").write_text("precious")
    done = run_demo("--dir", str(tmp_path / "kept"), cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("millstream: ")
    assert (tmp_path / "kept" / "mine").read_text() == "precious"
