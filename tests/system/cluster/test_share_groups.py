"""A share group on three real brokers, whose leaders die by SIGKILL or move in order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster_processes import ClusterProcesses
from tests.system.share_story import ten_members_of_which_three_die
from tests.system.test_share_groups import SETTINGS

from millstream.client import Admin, TopicPartition
from millstream.client.core.admin.topics import NewTopic
from millstream.coordinator.group.partitioner import group_partition

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(500)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    settings = {
        **SETTINGS,
        "share.coordinator.state.topic.num.partitions": "3",
        "share.coordinator.state.topic.replication.factor": "3",
        "share.coordinator.state.topic.min.isr": "2",
    }
    with ClusterProcesses(tmp_path / "cluster", settings=settings) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            topic = NewTopic("work", partitions=3, configs={"min.insync.replicas": "2"})
            admin.create_topics([topic]).get_all()
        yield cluster


def move_leader(cluster: ClusterProcesses, moved: TopicPartition) -> None:
    """Have another replica lead, which nobody has to die for."""
    before = cluster.partition(moved.topic, moved.partition)
    assert before is not None
    others = [each for each in before.replicas if each != before.leader]

    def is_led_elsewhere() -> bool:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.elect_leaders([moved])
        now = cluster.partition(moved.topic, moved.partition)
        return now is not None and now.leader == others[0]

    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.alter_partition_reassignments({moved: [*others, before.leader]}).get_all()
    cluster.until(is_led_elsewhere, f"{moved} to be led by {others[0]}")


@pytest.mark.long
def test_the_leader_dies_among_ten_members_of_which_three_die(
    cluster: ClusterProcesses, tmp_path: Path
) -> None:
    def kill_the_leader() -> None:
        partition = cluster.partition("work", 0)
        assert partition is not None
        cluster[partition.leader].kill()

    ten_members_of_which_three_die(
        lambda: cluster.bootstrap, tmp_path, "g", "work", trouble=kill_the_leader
    )


@pytest.mark.long
def test_every_leader_moves_in_order_among_ten_members_of_which_three_die(
    cluster: ClusterProcesses, tmp_path: Path
) -> None:
    """Of the records, of the states of share partitions, and of the group."""

    def move_every_leader() -> None:
        for index in range(3):
            move_leader(cluster, TopicPartition("work", index))
            move_leader(cluster, TopicPartition("__share_group_state", index))
        move_leader(cluster, TopicPartition("__consumer_offsets", group_partition("g", 3)))

    ten_members_of_which_three_die(
        lambda: cluster.bootstrap, tmp_path, "g", "work", trouble=move_every_leader
    )
