"""Millstream answers about security as Apache Kafka did when its answers were recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.interop.differential import recorded, runner
from tests.interop.differential.allowed import unexplained
from tests.interop.differential.security.session import SecuredSession
from tests.interop.differential.security.sets import SETS
from tests.interop.differential.security.site import Site, millstream_site

KINDS = [(each.name, api) for each in SETS.values() for api in each.apis()]


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Site]]:
    with ExitStack() as running:
        found = {}
        for each in SETS.values():
            directory = tmp_path_factory.mktemp(each.name)
            found[each.name] = running.enter_context(millstream_site(directory, each.settings))
            runner.prepare(SecuredSession(found[each.name]))
        yield found


@pytest.mark.interop
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("name", "api"), KINDS)
def test_answers_as_kafka(sites: dict[str, Site], name: str, api: str) -> None:
    chosen = SETS[name]
    expected = recorded.load(api, chosen.answers)
    problems = []
    for scenario in chosen.scenarios():
        if scenario.api != api:
            continue
        outcome = runner.perform(scenario, SecuredSession(sites[name]))
        lines = unexplained(str(scenario), runner.compare(outcome, expected[scenario.name]))
        if lines:
            problems.append(f"{scenario}\n  " + "\n  ".join(lines))
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("name", SETS)
def test_every_scenario_is_recorded_and_nothing_else(name: str) -> None:
    chosen = SETS[name]
    defined: dict[str, set[str]] = {}
    for scenario in chosen.scenarios():
        defined.setdefault(scenario.api, set()).add(scenario.name)
    kept = {
        api: set(recorded.load(api, chosen.answers))
        for api in recorded.recorded_apis(chosen.answers)
    }
    assert kept == defined


@pytest.mark.parametrize("name", SETS)
def test_the_settings_are_those_of_the_recording(name: str) -> None:
    assert recorded.settings(SETS[name].answers) == SETS[name].settings
