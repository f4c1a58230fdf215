"""Millstream answers as Apache Kafka did when its answers were recorded. Needs no Java."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.interop.differential import recorded, runner
from tests.interop.differential.allowed import ALLOWED, unexplained
from tests.interop.differential.scenario import Scenario, all_scenarios
from tests.interop.differential.session import Session

ROOT = Path(__file__).parents[3]


def by_function() -> dict[str, list[Scenario]]:
    """All scenarios, those of one function (its versions and cases) together."""
    groups: dict[str, list[Scenario]] = {}
    for scenario in all_scenarios():
        groups.setdefault(f"{scenario.api}/{scenario.name.partition('/')[0]}", []).append(scenario)
    return groups


GROUPS = by_function()
PRODUCING = [name for name in GROUPS if name.startswith(("Produce/", "Fetch/"))]


def running(directory: Path, **settings: str) -> Iterator[str]:
    """A broker with the settings that Kafka had, and those."""
    with BrokerProcess(directory, recorded.settings() | settings) as broker:
        runner.prepare(Session(broker.bootstrap))
        yield broker.bootstrap


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from running(tmp_path_factory.mktemp("differential"))


@pytest.fixture(scope="module")
def strict_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    strict = {"log.record.validation": "strict"}
    yield from running(tmp_path_factory.mktemp("strict"), **strict)


def compare_all(name: str, bootstrap: str, *, is_strict: bool) -> None:
    problems = []
    for scenario in GROUPS[name]:
        expected = recorded.load(scenario.api)[scenario.name]
        lines = runner.compare(runner.perform(scenario, Session(bootstrap)), expected)
        lines = unexplained(str(scenario), lines, is_strict=is_strict)
        if lines:
            problems.append(f"{scenario}\n  " + "\n  ".join(lines))
    assert not problems, "\n".join(problems)


@pytest.mark.interop
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", GROUPS)
def test_answers_as_kafka(bootstrap: str, name: str) -> None:
    compare_all(name, bootstrap, is_strict=False)


@pytest.mark.interop
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", PRODUCING)
def test_answers_as_kafka_with_strict_validation(strict_bootstrap: str, name: str) -> None:
    compare_all(name, strict_bootstrap, is_strict=True)


def test_every_scenario_is_recorded_and_nothing_else() -> None:
    defined: dict[str, set[str]] = {}
    for scenario in all_scenarios():
        defined.setdefault(scenario.api, set()).add(scenario.name)
    kept = {api: set(recorded.load(api)) for api in recorded.recorded_apis()}
    assert kept == defined


def test_there_are_enough_scenarios() -> None:
    assert len(all_scenarios()) >= 400


def test_every_allowed_difference_has_its_decision_record() -> None:
    for entry in ALLOWED:
        assert (ROOT / "docs" / "decisions" / entry.decision).is_file(), entry
