"""``bench.request_cost`` measures a broker as it is now composed."""

from __future__ import annotations

from pathlib import Path

from bench import request_cost
from bench.request_cost import Effort


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
