"""Loads from a cluster of three brokers: the leader is killed in the middle."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster_processes import ClusterProcesses
from tests.system.lakehouse.follow_through import PARTITIONS, FollowThrough

from millstream.client import Admin
from millstream.client.core.admin.topics import NewTopic

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(300)]


def test_a_leader_that_is_killed_costs_no_record(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path / "cluster", settings={"min.insync.replicas": "2"}) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([NewTopic("clicks", PARTITIONS, 3)]).get_all()
        cluster.wait_for("clicks", {1, 2, 3})
        with FollowThrough(cluster.bootstrap, "clicks", tmp_path) as loads:
            loads.write(20_000)
            loads.until(lambda rows: rows > 0)
            first = cluster.partition("clicks")
            assert first is not None
            cluster[first.leader].kill()
            loads.write(10_000)
            loads.until(lambda rows: rows > 20_000)
            cluster[first.leader].start()
            loads.write(5_000)
            loads.finish()
