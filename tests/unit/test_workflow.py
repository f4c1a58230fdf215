"""The workflow of a hosted CI names commands, files, extras and Pythons that exist."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

ROOT: Final = Path(__file__).parents[2]
WORKFLOW: Final = ROOT / ".github/workflows/tests.yml"
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
JOBS: Final[dict[str, Any]] = yaml.safe_load(WORKFLOW.read_text())["jobs"]
CLASSIFIER: Final = re.compile(r"Programming Language :: Python :: (3\.\d+)")


def commands(job: dict[str, Any]) -> Iterator[list[str]]:
    for step in job["steps"]:
        if "run" in step:
            yield shlex.split(step["run"].replace("${{ matrix.python }}", "3.99"))


def pythons(job: dict[str, Any]) -> list[str]:
    """Return the versions that a job runs on."""
    (setup,) = (step for step in job["steps"] if "setup-python" in step.get("uses", ""))
    version = setup["with"]["python-version"]
    if version == "${{ matrix.python }}":
        found: list[str] = job["strategy"]["matrix"]["python"]
        return found
    return [version]


def paths_of(job: dict[str, Any]) -> list[str]:
    return [
        word for command in commands(job) for word in command if word.startswith(("tests", "tools"))
    ]


@pytest.mark.parametrize("name", JOBS)
def test_a_job_runs_what_there_is(name: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    found = list(commands(JOBS[name]))
    assert found
    for program, *arguments in found:
        if program == "make":
            target, *variables = arguments
            assert re.search(rf"^{target}:.*##", makefile, re.MULTILINE), target
            for variable in variables:
                assert f"$({variable.partition('=')[0]})" in makefile, variable
        else:
            assert program == "python"
    assert all((ROOT / path).exists() for path in paths_of(JOBS[name]))


def test_each_makefile_target_that_tests_without_java_is_run() -> None:
    run = {command[1] for job in JOBS.values() for command in commands(job) if command[0] == "make"}
    assert run == {"check", "test", "test-pythons"}


def test_extras_exist() -> None:
    words = [word for job in JOBS.values() for command in commands(job) for word in command]
    installed = [match[1] for word in words if (match := re.fullmatch(r"\.\[(.*)\]", word))]
    assert len(installed) == 2
    for extras in installed:
        assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])


def test_classifiers_are_the_pythons_that_have_to_pass() -> None:
    """One that may fail is told of and not claimed."""
    may_fail = set(re.findall(r"== '([\d.]+)'", JOBS["pythons"]["continue-on-error"]))
    assert may_fail < set(pythons(JOBS["pythons"]))
    run = {version for job in JOBS.values() for version in pythons(job)}
    claimed = {match[1] for each in PROJECT["classifiers"] if (match := CLASSIFIER.match(each))}
    assert claimed == run - may_fail
    oldest = min(run, key=lambda version: int(version[2:]))
    assert PROJECT["requires-python"] == f">={oldest}"
    text = (ROOT / "tools/other_pythons.py").read_text()
    others = re.findall(r'"(3\.\d+)"', re.search(r"^VERSIONS = .*", text, re.MULTILINE)[0])  # type: ignore[index]
    assert set(others) == run - {oldest} == set(pythons(JOBS["pythons"]))


def test_macos_runs_the_tests_that_the_status_names() -> None:
    status = (ROOT / "docs/status.md").read_text()
    (named,) = re.findall(r"`MILLSTREAM_PORTABLE=1 pytest ([^`]+)`", status)
    assert set(named.split()) <= set(paths_of(JOBS["macos"]))


def test_actions_are_pinned_and_nothing_is_secret() -> None:
    text = WORKFLOW.read_text()
    used = re.findall(r"uses: (.*)", text)
    assert len(used) == 2 * len(JOBS)
    for action in used:
        assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action
    assert yaml.safe_load(text)["permissions"] == {"contents": "read"}
    assert "secrets" not in text
    assert "://" not in text


def test_each_job_ends() -> None:
    for name, job in JOBS.items():
        assert job["timeout-minutes"] <= 90, name
