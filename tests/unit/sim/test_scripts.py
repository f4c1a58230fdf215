"""The scripts, with every rule in force: nothing is wrong."""

from __future__ import annotations

import pytest
from tests.unit.sim.scripts import SCRIPTS, Script, play


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_script(script: Script) -> None:
    assert play(script, 1).problems == []
