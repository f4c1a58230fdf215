from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parents[3] / "tools" / "other_pythons.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("other_pythons", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without Pythons; none is on the path either."""
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.delenv("PYENV_ROOT", raising=False)
    monkeypatch.delenv("PYTHONS", raising=False)
    return tmp_path


def interpreter(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_one_of_pyenv_is_found_where_the_path_has_one_that_does_not_start(
    tool: ModuleType, home: Path
) -> None:
    interpreter(home / "path" / "python3.12", "exit 127")  # a shim of a version that is not chosen
    interpreter(home / ".pyenv/versions/3.12.9/bin/python", "echo 3.1")
    wanted = interpreter(home / ".pyenv/versions/3.12.1/bin/python", "echo 3.12")
    interpreter(home / ".pyenv/versions/3.13.0/bin/python", "echo 3.13")
    assert tool.find("3.12", home) == str(wanted)


def test_a_version_that_is_nowhere_is_named_and_left_out(
    tool: ModuleType,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HOME", str(home))
    assert tool.main([]) == 0
    assert capsys.readouterr().out.count("is not on this machine: left out") == 3


def test_a_version_that_is_asked_for_and_nowhere_fails(
    tool: ModuleType,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PYTHONS", "3.13 3.12")
    assert tool.main([]) == 1
    assert "failed on Python 3.13, 3.12" in capsys.readouterr().out


@pytest.mark.parametrize("code", [0, 1])
def test_each_python_is_tested_and_a_failure_fails_all(
    tool: ModuleType,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    code: int,
) -> None:
    real = subprocess.run
    commands: list[Sequence[str]] = []

    def run(command: Sequence[str], **options: object) -> subprocess.CompletedProcess[str]:
        if "-c" in command:
            return real(command, **options)  # type: ignore[call-overload,no-any-return]
        commands.append(command)
        if "venv" in command:
            Path(command[-1]).mkdir()
        return subprocess.CompletedProcess(command, code if tool.RUN_TESTS in command else 0)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home)
    (home / "pyproject.toml").touch()
    for version in ("3.12.1", "3.13.0"):
        interpreter(home / f".pyenv/versions/{version}/bin/python", f"echo {version[:4]}")
    (home / ".pyenv/versions/3.14.0").mkdir()  # one that was not built to its end
    (home / ".venv-3.12").mkdir()  # an environment that was not installed to its end
    assert tool.main(["tests/unit"]) == code
    tested = [command for command in commands if tool.RUN_TESTS in command]
    assert [command[0] for command in tested] == [".venv-3.13/bin/python", ".venv-3.12/bin/python"]
    assert all(command[-1] == "tests/unit" for command in tested)
    assert ("failed on Python 3.13, 3.12" in capsys.readouterr().out) is bool(code)
