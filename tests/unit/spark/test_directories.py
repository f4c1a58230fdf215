"""A local directory as a place of tables."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millstream import platform
from millstream.spark.locations import directories
from millstream.spark.locations.directories import LocalPath


def test_a_file_that_is_settled_is_flushed_and_its_directory_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []

    def note(descriptor: int) -> None:
        flushed.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    monkeypatch.setattr(directories, "flush_file", note)
    monkeypatch.setattr(platform, "flush_file", note)
    file = LocalPath(tmp_path / "data" / "part.parquet")
    with file.open_output() as output:
        output.write(b"rows")
    file.settle()
    assert flushed == [str(file), str(file.parent)]
