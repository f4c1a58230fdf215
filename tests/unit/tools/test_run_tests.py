from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[3] / "tools" / "run_tests.py"

pytestmark = pytest.mark.slow

FAILS = """
from pathlib import Path

def test_it() -> None:
    count = Path(__file__).with_suffix(".count")
    attempts = len(count.read_text()) if count.exists() else 0
    count.write_text("x" * (attempts + 1))
    assert attempts >= {times}
"""


def run(directory: Path, tests: dict[str, int], *arguments: str) -> tuple[int, str, dict[str, int]]:
    """Run tests that fail so many times; the code, the output and how often each ran."""
    for name, times in tests.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(FAILS.format(times=times))
    (directory / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    done = subprocess.run(
        [sys.executable, str(TOOL), *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    counts = {name: (directory / name).with_suffix(".count") for name in tests}
    runs = {name: len(path.read_text()) if path.exists() else 0 for name, path in counts.items()}
    return done.returncode, done.stdout, runs


def test_a_test_that_failed_once_is_run_again_and_named(tmp_path: Path) -> None:
    code, output, runs = run(tmp_path, {"tests/system/test_a.py": 1, "tests/system/test_b.py": 0})
    assert code == 0
    assert "second attempt only:\n  tests/system/test_a.py::test_it" in output
    assert runs == {"tests/system/test_a.py": 2, "tests/system/test_b.py": 1}
    assert output.count("slowest 25 durations") == 1


@pytest.mark.parametrize(("check", "code"), [("python", 0), ("pytest", 1)])
def test_checks_run_beside_the_tests_and_can_fail_the_run(
    tmp_path: Path, check: str, code: int
) -> None:
    """A Python without words ends well; `pytest` runs the other test too, which is red."""
    (tmp_path / "test_red.py").write_text("def test_red():\n    assert not 'green'\n")
    tests = {"tests/system/test_a.py": 0}
    found, output, runs = run(tmp_path, tests, "--checks", "python", check, "--", "tests")
    assert (found, runs) == (code, {"tests/system/test_a.py": 1 + code})
    assert output.index("1 passed") < output.index(f"Beside the tests ran: python, {check}")
    assert ("test_red" in output) == bool(code)


def test_one_that_fails_twice_fails_the_run(tmp_path: Path) -> None:
    code, _, runs = run(tmp_path, {"tests/system/test_a.py": 2})
    assert code == 1
    assert runs == {"tests/system/test_a.py": 2}


def test_many_failures_have_no_second_attempt(tmp_path: Path) -> None:
    code, _, runs = run(tmp_path, {f"tests/system/test_{each}.py": 1 for each in "abcdef"})
    assert code == 1
    assert set(runs.values()) == {1}


BESIDE = ("tests/test_a.py", "--beside", "tests/test_b.py")


def test_failures_of_both_runs_have_a_second_attempt(tmp_path: Path) -> None:
    code, output, runs = run(tmp_path, {"tests/test_a.py": 1, "tests/test_b.py": 1}, *BESIDE)
    assert code == 0
    assert output.index("Beside it ran: tests/test_b.py") < output.index("A second attempt")
    assert "only:\n  tests/test_a.py::test_it\n  tests/test_b.py::test_it" in output
    assert runs == {"tests/test_a.py": 2, "tests/test_b.py": 2}


@pytest.mark.parametrize("failing", ["a", "b"])
def test_one_that_fails_twice_in_either_run_fails_both(tmp_path: Path, failing: str) -> None:
    times = {f"tests/test_{each}.py": 2 if each == failing else 0 for each in "ab"}
    code, _, runs = run(tmp_path, times, *BESIDE)
    assert code == 1
    assert runs == {name: 2 if count else 1 for name, count in times.items()}


def test_a_run_that_has_no_tests_fails_both(tmp_path: Path) -> None:
    code, _, _ = run(tmp_path, {"tests/test_a.py": 0, "tests/test_b.py": 0}, *BESIDE, "-k", "none")
    assert code == 5


def test_failures_of_an_earlier_run_are_not_run_again(tmp_path: Path) -> None:
    run(tmp_path, {"tests/system/test_a.py": 2})
    (tmp_path / "tests/system/test_a.py").unlink()
    code, output, _ = run(tmp_path, {"tests/system/test_b.py": 1})
    assert code == 0
    assert "test_a" not in output


def test_many_files_are_rewritten_before_the_run_and_kept(tmp_path: Path) -> None:
    """Also where the environment asks Python to keep nothing."""
    tests = tmp_path / "tests"
    tests.mkdir()
    for number in range(120):
        (tests / f"test_{number}.py").write_text("def test_it() -> None:\n    assert True\n")
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); import run_tests\n"
        "first = run_tests.stale(); run_tests.rewrite(first); then = run_tests.stale()\n"
        "print(len(first), len(then))\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")

    def rewritten() -> str:
        return subprocess.run(
            [sys.executable, "-c", code, str(TOOL.parent)],
            cwd=tmp_path,
            env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    assert rewritten() == "120 0\n"
    changed = tests / "test_7.py"
    changed.write_text("def test_other() -> None:\n    assert 1\n")
    later = changed.stat().st_mtime + 5
    os.utime(changed, (later, later))
    assert rewritten() == "1 1\n", "a few are left to the workers"
