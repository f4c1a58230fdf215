"""Live groups of librdkafka and Java go from classic to KIP-848 and back on three real brokers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster_processes import ClusterProcesses
from tests.interop.cluster.programs import command
from tests.system.cluster.upgrade_story import CLASSIC_TIMES, SETTINGS, a_rolling_upgrade_and_back

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(500)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path_factory.mktemp("upgrade"), settings=SETTINGS) as started:
        yield started


@pytest.mark.long
def test_librdkafka(cluster: ClusterProcesses, tmp_path: Path) -> None:
    classic = (*CLASSIC_TIMES, "partition.assignment.strategy=range")
    program = command("librdkafka_reader.py")
    a_rolling_upgrade_and_back(cluster, tmp_path, "of-librdkafka", command=program, classic=classic)


@pytest.mark.java
def test_java(cluster: ClusterProcesses, tmp_path: Path) -> None:
    """By Java's default: its classic members speak for the eager and the cooperative protocol."""
    program = command("Reader.java")
    a_rolling_upgrade_and_back(cluster, tmp_path, "of-java", command=program, classic=CLASSIC_TIMES)
