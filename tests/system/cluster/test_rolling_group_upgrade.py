"""A live group of our client goes from classic to KIP-848 and back on three real brokers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster_processes import ClusterProcesses
from tests.system.cluster.upgrade_story import CLASSIC_TIMES, SETTINGS, a_rolling_upgrade_and_back

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(500)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path_factory.mktemp("upgrade"), settings=SETTINGS) as started:
        yield started


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_rolling_upgrade_and_back(
    cluster: ClusterProcesses, tmp_path: Path, strategy: str
) -> None:
    classic = (*CLASSIC_TIMES, f"partition.assignment.strategy={strategy}")
    a_rolling_upgrade_and_back(cluster, tmp_path, f"upgraded-{strategy}", classic=classic)
