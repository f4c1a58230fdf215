"""A share group on three real brokers, of which the leader of a partition dies by SIGKILL."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster_processes import ClusterProcesses
from tests.system.share_story import ten_members_of_which_three_die
from tests.system.test_share_groups import SETTINGS

from millstream.client import Admin
from millstream.client.core.admin.topics import NewTopic

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(500)]


@pytest.mark.long
def test_the_leader_dies_among_ten_members_of_which_three_die(tmp_path: Path) -> None:
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

        def kill_the_leader() -> None:
            partition = cluster.partition("work", 0)
            assert partition is not None
            cluster[partition.leader].kill()

        ten_members_of_which_three_die(
            lambda: cluster.bootstrap, tmp_path, "g", "work", trouble=kill_the_leader
        )
