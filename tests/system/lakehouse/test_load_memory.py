"""A longer topic takes a load longer, and no more memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.spark_cluster import SparkCluster
from tests.system.lakehouse.load_memory import fill, load_words, measure
from tests.system.lakehouse.spark_memory import ROLES, measure_on_spark

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
    # Had the load kept what it has read, it would have taken 300 MB more; and 220 MB, had each of
    # its 36 batches run on threads of its own, for the arenas of those keep what they have needed.
    # It takes about 100 MB more: libraries start their threads in the first commits.
    assert peaks[1] - peaks[0] < 160 * MEGABYTE, peaks


@pytest.mark.spark
def test_four_times_the_topic_on_a_cluster(
    broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    """Neither JVM nor Python, of the driver or of an executor, takes more for a longer topic."""
    found = []
    with SparkCluster(tmp_path / "cluster") as cluster:
        for size in (120 * MEGABYTE, 480 * MEGABYTE):
            topic = f"{new_topic()}-{size}"
            records = fill(broker.bootstrap, topic, size)
            at = tmp_path / topic
            words = load_words(broker.bootstrap, topic, at, kind="delta", batch_size="60MB")
            rows, peaks = measure_on_spark(cluster, words)
            assert rows == records
            assert min(peaks.values()) > 50 * MEGABYTE, "a process of each role was seen"
            found.append(peaks)
    for role in ROLES:
        assert found[1][role] - found[0][role] < 100 * MEGABYTE, found
