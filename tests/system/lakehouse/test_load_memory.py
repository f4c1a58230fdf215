"""A longer topic takes a load longer, and no more memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.system.lakehouse.load_memory import fill, load_words, measure

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]

MEGABYTE = 1_000_000
SHORT, LONG = 60 * MEGABYTE, 360 * MEGABYTE


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_six_times_the_topic(
    broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path, kind: str
) -> None:
    peaks = []
    for size in (SHORT, LONG):
        topic = f"{new_topic()}-{size}"
        records = fill(broker.bootstrap, topic, size)
        directory = tmp_path / topic
        words = load_words(broker.bootstrap, topic, directory, kind=kind, batch_size="10MB")
        rows, peak = measure(words, directory)
        assert rows == records
        peaks.append(peak)
    # Had the load kept what it has read, it would have taken 300 MB more; and 200 MB, had each of
    # its 36 batches run on threads of its own, for the arenas of those keep what they have needed.
    assert peaks[1] - peaks[0] < 100 * MEGABYTE, peaks
