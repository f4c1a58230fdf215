"""The scripts, with every rule in force: nothing is wrong."""

from __future__ import annotations

import pytest
from tests.unit.sim import reachability_scripts, scripts, service_scripts

SCRIPTS = scripts.SCRIPTS | service_scripts.SCRIPTS | reachability_scripts.SCRIPTS


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_script(script: scripts.Script) -> None:
    assert scripts.play(script, SCRIPTS[script], 1).problems == []
