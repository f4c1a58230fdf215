"""``bench.request_cost`` measures a broker as it is now composed."""

from __future__ import annotations

from collections.abc import Mapping
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


def test_what_an_authorizer_adds_to_a_request_is_a_fortieth(tmp_path: Path) -> None:
    """Bytecodes do not depend on what else the machine does."""

    def counted(name: str, settings: Mapping[str, str]) -> dict[str, float]:
        with request_cost.broker_in(str(tmp_path / name), settings) as broker:
            found = {}
            for kind, request in request_cost.requests(broker, 130).items():
                request()  # the first one is decided, and kept
                found[kind], _ = request_cost.executed(request, 1)
        return found

    open_to_all = counted("open", {})
    guarded = counted("guarded", request_cost.AUTHORIZING)
    for kind in ("produce, one 100-byte record", "fetch, 64 KiB", "fetch, 1024 KiB"):
        assert open_to_all[kind] < guarded[kind] < 1.025 * open_to_all[kind], kind
