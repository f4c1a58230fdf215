"""Run the fast tests on the other Pythons of this machine: 3.14, 3.13, 3.12, as far as it has them.

``python tools/other_pythons.py`` (``make test-pythons``) looks for ``python3.12`` and so on along
the path and among the versions of pyenv, makes a virtual environment for each (``.venv-3.12``) and
runs the tests of ``make check`` there, but for those that need PySpark. A Python that is not found
is named and left out. The exit code is 1 when a test fails on one of them. ``PYTHONS=3.13`` in the
environment (several: ``"3.13 3.12"``) names those to test; there one that is not found is a
failure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

VERSIONS = ("3.14", "3.13", "3.12")
EXTRAS = ".[lake,sql,dev]"
MARKERS = "not slow and not interop and not system and not spark"
DIRECTORIES = ("tests/unit", "tests/property", "tests/scenarios")
ASKED = "PYTHONS"
STAMP = "installed"
RUN_TESTS = str(Path(__file__).with_name("run_tests.py"))


def main(arguments: Sequence[str]) -> int:
    """Test each version that is found; `arguments` go to pytest in place of the directories."""
    failed = []
    asked = os.environ.get(ASKED, "").split()
    for version in asked or VERSIONS:
        interpreter = find(version)
        if interpreter is None:
            print(f"Python {version} is not on this machine: left out", flush=True)
            if asked:
                failed.append(version)
            continue
        print(f"Python {version}: {interpreter}", flush=True)
        python = environment(version, interpreter)
        command = [str(python), RUN_TESTS, "-n", "2", "--one-example-of", "5", "-m", MARKERS]
        if _run([*command, *(arguments or DIRECTORIES)]):
            failed.append(version)
    if failed:
        print(f"failed on Python {', '.join(failed)}")
    return 1 if failed else 0


def find(version: str, home: Path | None = None) -> str | None:
    """Return an interpreter that starts and is of this version, or None."""
    for candidate in _candidates(version, home or Path.home()):
        command = [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError:
            continue
        if answer.returncode == 0 and answer.stdout.strip() == version:
            return candidate
    return None


def _candidates(version: str, home: Path) -> Iterator[str]:
    on_path = shutil.which(f"python{version}")
    if on_path is not None:
        yield on_path
    root = Path(os.environ.get("PYENV_ROOT") or home / ".pyenv")
    for directory in sorted(root.glob(f"versions/{version}.*"), reverse=True):
        yield str(directory / "bin" / "python")


def environment(version: str, interpreter: str) -> Path:
    """Make the virtual environment, or take the one that is there and newer than the project."""
    directory = Path(f".venv-{version}")
    python, stamp = directory / "bin" / "python", directory / STAMP
    if stamp.exists() and stamp.stat().st_mtime > Path("pyproject.toml").stat().st_mtime:
        return python
    shutil.rmtree(directory, ignore_errors=True)
    for command in (
        [interpreter, "-m", "venv", str(directory)],
        [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "-e", EXTRAS],
    ):
        if _run(command):
            raise SystemExit(f"the environment for Python {version} could not be made")
    stamp.touch()
    return python


def _run(command: Sequence[str]) -> int:
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
