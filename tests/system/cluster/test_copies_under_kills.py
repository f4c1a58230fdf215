"""Copies of one topic to another, whose process, coordinator and leaders are killed (-9).

Each record is counted once by readers of committed records, with small and with large fetches.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import transaction_story as story
from tests.cluster_processes import ClusterProcesses

from millstream.coordinator.group.partitioner import group_partition
from millstream.model.topic import TRANSACTION_STATE_TOPIC

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(420)]

RECORDS = 3000
STATE_PARTITIONS = 3
COPIER = """
import sys
from tests.transaction_story import copy_everything
copy_everything(*sys.argv[1:])
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    settings = {
        "transaction.state.log.num.partitions": str(STATE_PARTITIONS),
        "min.insync.replicas": "2",
    }
    directory = tmp_path_factory.mktemp("copies")
    with ClusterProcesses(directory, settings=settings) as started:
        yield started


def copier(cluster: ClusterProcesses, source: str, target: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", COPIER, cluster.bootstrap, source, target],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )


def wait_for(process: subprocess.Popen[str], word: str, times: int) -> bool:
    """Wait until a copier has told a word so often; False once it has ended."""
    assert process.stdout is not None
    for line in process.stdout:
        times -= line.strip() == word
        if times <= 0:
            return True
    return False


def finish(process: subprocess.Popen[str]) -> None:
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 0, out


def test_the_copier_is_killed_in_its_transactions(cluster: ClusterProcesses) -> None:
    story.create(cluster.bootstrap, "source-p", "target-p")
    values = story.seed(cluster.bootstrap, "source-p", RECORDS)
    chance = random.Random(7)
    kills = 0
    for _ in range(6):
        process = copier(cluster, "source-p", "target-p")
        word = chance.choice(["delivered", "committed"])
        kills += wait_for(process, word, chance.randrange(3, 12))
        process.kill()
        process.communicate()
    assert kills == 6
    finish(copier(cluster, "source-p", "target-p"))
    story.exactly_once(cluster.bootstrap, "target-p", values)


def test_brokers_are_killed_while_it_copies(cluster: ClusterProcesses) -> None:
    story.create(cluster.bootstrap, "source-b", "target-b")
    values = story.seed(cluster.bootstrap, "source-b", RECORDS)
    process = copier(cluster, "source-b", "target-b")
    index = group_partition("copy-target-b", STATE_PARTITIONS)
    for _ in range(4):
        assert wait_for(process, "delivered", 10)
        state = cluster.partition(TRANSACTION_STATE_TOPIC, index)
        assert state is not None
        broker = cluster[state.leader]
        broker.kill()
        assert wait_for(process, "committed", 5)
        broker.start()
        cluster.wait_for(TRANSACTION_STATE_TOPIC, {1, 2, 3})
        cluster.wait_for("target-b", {1, 2, 3})
    finish(process)
    story.exactly_once(cluster.bootstrap, "target-b", values)
