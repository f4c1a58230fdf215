"""The scripts, with every rule in force: nothing is wrong."""

from __future__ import annotations

import pytest
from tests.unit.sim import reachability_scripts, scripts, service_scripts

from millstream.sim.coordination import Ensemble

SCRIPTS = scripts.SCRIPTS | service_scripts.SCRIPTS | reachability_scripts.SCRIPTS


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_script(script: scripts.Script) -> None:
    assert scripts.play(script, SCRIPTS[script], 1).problems == []


@pytest.mark.slow
def test_a_session_that_is_ended_early_makes_a_lease_worth_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the model's word for it, what the old coordinator answers is an anomaly."""
    script = scripts.a_session_of_a_coordinator_is_ended_early
    assert scripts.play(script, SCRIPTS[script], 3).problems == []
    monkeypatch.setattr(Ensemble, "was_misled", lambda *_: False)
    problems = scripts.play(script, SCRIPTS[script], 3).problems
    assert problems
    assert all("had committed" in each for each in problems)
