"""A topic is written to at a steady rate while its past loads: where one ends nobody can tell."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.system.lakehouse.topic_site import TopicSite

from millstream.client import Producer
from millstream.spark.lakehouse.batches import BatchReport
from millstream.spark.lakehouse.jobs import run_load
from millstream.spark.lakehouse.table import KINDS

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.long]

PAST = 60_000
TAIL = 5_000
EACH = 50


@pytest.mark.parametrize("kind", KINDS)
def test_backfill_and_then_the_tail(
    broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path, kind: str
) -> None:
    site = TopicSite(broker.bootstrap, new_topic(), tmp_path).kind(kind)
    site.create(2)
    for partition in (0, 1):
        site.write(partition, (b"%d" % n for n in range(PAST // 2)), batch=1000)
    site = site.using(follow=True, freshness_ms=200, batch_bytes=500_000)
    written = threading.Event()
    writer = threading.Thread(target=_write_on, args=(site, written))
    reports: list[BatchReport] = []
    deadline = time.monotonic() + 90

    def on_batch(report: BatchReport) -> None:
        reports.append(report)
        if len(reports) == 1:
            writer.start()  # the past is on its way by now

    def should_stop() -> bool:
        assert time.monotonic() < deadline
        return written.is_set() and sum(each.rows for each in reports) == PAST + TAIL

    run_load(site.settings, on_batch=on_batch, should_stop=should_stop)
    writer.join()
    assert len(reports) > 5
    assert max(each.behind for each in reports) > PAST // 2
    found = site.audit()
    assert (found.is_clean, found.rows) == (True, PAST + TAIL)
    values = [int(value) for _, _, value in site.rows("partition", "offset", "value")]
    assert values == [*range(PAST // 2 + TAIL), *range(PAST // 2)]


def _write_on(site: TopicSite, written: threading.Event) -> None:
    """Go on with partition 0, some thousand records a second."""
    with Producer(bootstrap_servers=site.bootstrap) as producer:
        for first in range(PAST // 2, PAST // 2 + TAIL, EACH):
            values = [b"%d" % number for number in range(first, first + EACH)]
            producer.send_values(values, site.topic, partition=0).result(30)
            time.sleep(0.01)
    written.set()
