"""Every rule of transactions and of the newer groups is needed: without it, the simulator finds
something wrong.
"""

from __future__ import annotations

import pytest
from tests.unit.sim.coordinator_mutations import MUTATIONS, CoordinatorMutation

SEEDS = 25

SHOWN = [each for each in MUTATIONS if each.is_shown]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[each.rule for each in MUTATIONS])
def test_patches_what_there_is(
    mutation: CoordinatorMutation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function that has another name by now would leave its rule in force unnoticed."""
    mutation.patch(monkeypatch)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutation", SHOWN, ids=[each.rule for each in SHOWN])
def test_without(mutation: CoordinatorMutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.patch(monkeypatch)
    seeds = range(mutation.first_seed, mutation.first_seed + SEEDS)
    assert any(mutation.is_caught(seed) for seed in seeds), mutation.rule
