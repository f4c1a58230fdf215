"""Loads from a cluster: a leader is killed in the middle, and one is elected uncleanly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.cluster_processes import ClusterProcesses
from tests.system.lakehouse.follow_through import PARTITIONS, FollowThrough
from tests.system.lakehouse.topic_site import TopicSite

from millstream.client import Admin
from millstream.client.core.admin.topics import NewTopic
from millstream.spark.plan import DataLossError

pytestmark = pytest.mark.system


def test_an_unclean_election_that_replaces_loaded_records(tmp_path: Path) -> None:
    """Broker 2 has the first hundred records only when it becomes the leader, and gets others."""
    settings = {"unclean.leader.election.enable": "true", "offsets.topic.replication.factor": "1"}
    with ClusterProcesses(
        tmp_path / "cluster", brokers=2, settings=settings, store="keeper"
    ) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([NewTopic("clicks", assignments={0: [1, 2]})]).get_all()
        cluster.wait_for("clicks", {1, 2}, leader=1)
        site = TopicSite(cluster.bootstrap, "clicks", tmp_path)
        site.write(0, [b"%d" % number for number in range(100)])
        cluster[2].kill()
        cluster.wait_for("clicks", {1}, leader=1)
        site.write(0, [b"%d" % number for number in range(100, 200)])
        site.load()
        assert len(site.rows("offset")) == 200
        cluster[1].kill()
        cluster[2].start()
        cluster.wait_for("clicks", {2}, leader=2)
        site.write(0, [b"%d" % -number for number in range(100, 350)])
        with pytest.raises(
            DataLossError, match="truncated at offset 100 by an unclean leader election"
        ):
            site.load()
        assert len(site.rows("offset")) == 200
        site.settings = replace(
            site.settings, source={**site.settings.source, "failOnDataLoss": "false"}
        )
        site.load()
        assert [value for _, value in site.rows("offset", "value")][199:201] == [b"199", b"-200"]
        assert len(site.rows("offset")) == 350


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_leader_that_is_killed_costs_no_record(tmp_path: Path) -> None:
    with ClusterProcesses(
        tmp_path / "cluster", settings={"min.insync.replicas": "2"}, store="keeper"
    ) as cluster:
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
