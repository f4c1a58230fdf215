"""The bar of long commands: on a terminal only, and gone after its block."""

from __future__ import annotations

import sys

import pytest

from millstream.cli.load_progress import LoadProgress
from millstream.cli.progress import Progress
from millstream.spark.lakehouse.batches import BatchReport


def be_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Called in the test itself: pytest makes standard error anew for it."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)


def test_without_a_terminal_there_are_counters_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(total_bytes=100) as progress:
        progress.add_bytes(40)
        progress.add_records(3)
    assert (progress.bytes, progress.records) == (40, 3)
    assert capsys.readouterr().err == ""


def test_a_bar_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    be_a_terminal(monkeypatch)
    with Progress(total_bytes=100) as progress:
        progress.add_bytes(40)
        progress.add_records(1234)
    assert "1,234 records" in capsys.readouterr().err


def report(rows: int) -> BatchReport:
    return BatchReport(
        batch=1,
        rows=rows,
        dead_letters=0,
        files=1,
        read_bytes=1000,
        behind=50,
        seconds=1.0,
        offsets=10,
        lag_seconds=90.0,
    )


def test_batches_of_a_load(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    be_a_terminal(monkeypatch)
    with LoadProgress("delta:t", follow=False, as_json=False) as progress:
        progress.add(report(10))
    shown = capsys.readouterr().err
    assert "delta:t" in shown
    assert "10 rows" in shown
    assert "50 behind, lag 90 s, 5 s to go" in shown


def test_batches_of_a_load_as_lines_and_not_at_all(capsys: pytest.CaptureFixture[str]) -> None:
    with LoadProgress("delta:t", follow=False, as_json=False) as progress:
        progress.add(report(10))
    told = capsys.readouterr().err
    assert told.startswith("batch 1: 10 rows, 1 file, ")
    assert told.endswith("50 offsets behind, lag 90 s, 5 s to go\n")
    with LoadProgress("delta:t", follow=False, as_json=True) as progress:
        progress.add(report(10))
    assert progress.rows == 10
    assert capsys.readouterr().err == ""
