"""docs/log-tools.md shows what the commands really print."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from millstream.cli.main import main

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "log-tools.md"


def commands() -> list[tuple[str, str]]:
    """Return each command of the page with the output that follows it."""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


def test_every_command_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("kafka-4.3.0", "kafka-2.8.2"):
        shutil.copytree(ROOT / "tests" / "data" / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    assert len(commands()) > 12
    for command, output in commands():
        if not command.startswith("millstream "):
            subprocess.run(["bash", "-c", command], check=True, timeout=10)
            continue
        main(command.split()[1:])
        said = capfd.readouterr()
        assert said.out == output, command
        assert said.err == ""
