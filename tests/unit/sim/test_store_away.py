"""A metadata store that is away for long: what brokers log, and that they come back."""

from __future__ import annotations

import logging
from collections import Counter

import pytest
from tests.unit.sim.test_message_order import whole

from millstream.sim.cluster import SimCluster


def cut_from_the_store(cluster: SimCluster) -> None:
    cluster.ensemble.cuts.update(
        (number, direction) for number in cluster.numbers for direction in ("to", "from")
    )


@pytest.mark.slow
def test_an_outage_of_the_store_is_logged_when_it_begins_and_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The controller's process ends meanwhile, so everybody has reason to ask the store."""
    cluster = whole(3)  # another broker than the controller leads, and reads states
    cluster.go_on(5_000)
    controller = cluster.controller_number()
    assert controller is not None
    caplog.set_level(logging.INFO, "millstream")
    caplog.clear()
    cut_from_the_store(cluster)
    cluster.go_on(1_000)
    cluster.lives[controller].vanish()
    del cluster.lives[controller]
    cluster.go_on(120_000)
    counts = Counter((record.name, record.msg) for record in caplog.records)
    often = {message: count for message, count in counts.items() if count > len(cluster.lives)}
    assert not often, "no broker says the same twice"
    cluster.ensemble.cuts.clear()
    assert cluster.until(lambda: cluster.controller_number() is not None, 30_000)
    assert cluster.until(
        lambda: any("can be read again" in message for message in caplog.messages), 30_000
    )
