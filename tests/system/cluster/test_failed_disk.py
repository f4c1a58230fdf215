"""A log directory of one broker of three fails: its replicas step down, others lead, all is kept.

Each broker has two directories; one of broker 1 is an ext4 on a loop device that is shut down as a
power loss does it (``FS_IOC_SHUTDOWN``). Mounting needs root: elsewhere this is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.cluster_processes import ClusterProcesses
from tests.system.cluster.watched import Asker, Member, Sender, anomalies
from tests.system.test_real_disks import ext4, run, shut_down

from millstream.history.checker import History

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(300)]

__all__ = ["ext4"]
TOPIC: Final = "on-disks"
PARTITIONS: Final = 4


@pytest.fixture
def cluster(ext4: Path, tmp_path: Path) -> Iterator[ClusterProcesses]:
    def directories(broker_id: int) -> str:
        failing = ext4 if broker_id == 1 else tmp_path
        return f"{tmp_path / f'safe-{broker_id}'},{failing / f'other-{broker_id}'}"

    with ClusterProcesses(tmp_path / "cluster", directories=directories) as made:
        yield made


def on(cluster: ClusterProcesses, place: Path) -> set[int]:
    """Return the partitions of the topic that lie in a directory."""
    return {int(each.name.rpartition("-")[2]) for each in place.glob(f"{TOPIC}-*")}


def test_replicas_on_a_failed_disk_step_down(
    cluster: ClusterProcesses,
    ext4: Path,
    tmp_path: Path,
) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    wanted = NewTopic(
        TOPIC,
        PARTITIONS,
        replica_assignment=[[1, 2, 3]] * PARTITIONS,
        config={"min.insync.replicas": "2"},
    )
    admin.create_topics([wanted])[TOPIC].result(60)
    history, bootstrap = History(), cluster.bootstrap
    with (
        Member(bootstrap, TOPIC, history, "g") as member,
        Asker(bootstrap, TOPIC, history, "g", PARTITIONS),
        Sender(bootstrap, TOPIC, history, "p", PARTITIONS) as sender,
    ):

        def go_on() -> None:
            sender.wait_for_more(400)
            member.wait_for_more()
            member.wait_for_commits()

        def led(index: int, leaders: set[int], isr: set[int]) -> bool:
            found = cluster.partition(TOPIC, index)
            return found is not None and found.leader in leaders and set(found.isr) == isr

        go_on()
        lost = on(cluster, ext4 / "other-1")
        kept = set(range(PARTITIONS)) - lost
        assert lost, "some partition lies on the disk that will fail"
        assert kept, "and some on the other one"
        shut_down(ext4)
        for index in lost:
            cluster.until(
                lambda index=index: led(index, {2, 3}, {2, 3}),  # type: ignore[misc]
                f"{TOPIC}-{index} led by another broker",
            )
        for index in kept:
            assert led(index, {1}, {1, 2, 3}), "its other disk serves on"
        go_on()
        cluster[1].stop()
        run("umount", str(ext4))
        run("mount", "-o", "loop", str(tmp_path / "image"), str(ext4))
        cluster[1].start()
        for index in range(PARTITIONS):
            cluster.until(
                lambda index=index: led(index, {1, 2, 3}, {1, 2, 3}),  # type: ignore[misc]
                f"{TOPIC}-{index} in sync on a mended disk",
            )
        go_on()
    assert sender.failures == []
    assert anomalies(bootstrap, TOPIC, history, PARTITIONS) == []
