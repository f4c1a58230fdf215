"""``bench.transaction_cost`` measures a broker as it is now composed."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import transaction_cost
from bench.request_cost import broker_in
from bench.transaction_cost import SETTINGS


@pytest.mark.slow
@pytest.mark.parametrize("version_2", [False, True])
def test_every_step_of_a_transaction_is_measured(tmp_path: Path, version_2: bool) -> None:
    with broker_in(str(tmp_path), SETTINGS) as broker:
        cost = transaction_cost.measured(broker, 4, version_2=version_2)
    steps = (cost.produce, cost.end, cost.markers, *(() if version_2 else (cost.add,)))
    # A request that is refused before its handler runs executes far fewer.
    assert min(steps) > 1_000, cost
    assert cost.total == pytest.approx(sum(steps))
