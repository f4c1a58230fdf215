"""The scripts, with every rule in force: nothing is wrong."""

from __future__ import annotations

import pytest
from tests.unit.sim.scripts import SCRIPTS, Script, play


@pytest.mark.parametrize(("script", "min_isr"), SCRIPTS, ids=lambda s: getattr(s, "__name__", None))
def test_script(script: Script, min_isr: int) -> None:
    assert play(script, 1, min_isr=min_isr).problems == []
