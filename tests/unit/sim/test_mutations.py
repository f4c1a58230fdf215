"""Every rule of replication is needed: without it, the simulator finds something wrong within a
bounded number of seeds. ``mutations`` says which and how.
"""

from __future__ import annotations

import pytest
from tests.unit.sim.mutations import MUTATIONS, Mutation

SEEDS = 40

SHOWN = [each for each in MUTATIONS if each.is_shown]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[each.name for each in MUTATIONS])
def test_patches_what_there_is(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that has another name by now would leave its rule in force unnoticed."""
    mutation.patch(monkeypatch)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutation", SHOWN, ids=[each.name for each in SHOWN])
def test_without(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.patch(monkeypatch)
    assert any(mutation.problems(seed) for seed in mutation.seeds(SEEDS)), mutation.rule
