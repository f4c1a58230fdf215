"""``bench.request_cost`` measures a broker as it is now composed."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from bench import request_cost
from bench.request_cost import Effort

AUTHORIZER = 1.025 if sys.version_info < (3, 12) else 1.03
"""It adds as many bytecodes on newer Pythons, which execute fewer for the rest of a request."""


def test_every_kind_of_request_is_measured(tmp_path: Path) -> None:
    effort = Effort(fetch_batches=130, rounds=1, requests_in_a_round=2, counted_requests=1)

    with request_cost.broker_in(str(tmp_path)) as broker:
        costs = {cost.request: cost for cost in request_cost.measured(broker, effort)}

    assert list(costs) == [
        "produce, one 100-byte record",
        "produce, 17 KB",
        "produce, 110 KB",
        "fetch, 64 KiB",
        "fetch, 1024 KiB",
        "metadata, one topic",
    ]
    # A request that is refused before its handler runs executes far fewer.
    assert all(cost.bytecodes > 500 and cost.calls > 10 for cost in costs.values()), costs


def counted(directory: Path, settings: Mapping[str, str]) -> dict[str, float]:
    """Return the bytecodes of a request of each kind: they do not depend on what else the machine
    does.
    """
    with request_cost.broker_in(str(directory), settings) as broker:
        found = {}
        for kind, request in request_cost.requests(broker, 130).items():
            request()  # what the first one finds out is kept
            found[kind], _ = request_cost.executed(request, 1)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "most"),
    [(request_cost.AUTHORIZING, AUTHORIZER), (request_cost.LIMITING, 1.3)],
    ids=["an authorizer", "byte quotas"],
)
def test_what_is_asked_of_each_request_adds_little(
    settings: Mapping[str, str], most: float, tmp_path: Path
) -> None:
    free = counted(tmp_path / "free", {})
    guarded = counted(tmp_path / "guarded", settings)
    for kind in ("produce, one 100-byte record", "fetch, 64 KiB", "fetch, 1024 KiB"):
        assert free[kind] < guarded[kind] < most * free[kind], kind
