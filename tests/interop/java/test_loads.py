"""Loads into each kind of table from Apache Kafka, which is killed in the middle."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.interop.kafka_cluster import small_kafka_node
from tests.system.lakehouse.follow_through import PARTITIONS, FollowThrough

from millstream.client import Admin
from millstream.client.core.admin.offsets import LATEST
from millstream.client.core.admin.topics import NewTopic

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.timeout(400),
]


def test_past_and_tail_of_apache_kafka(tmp_path: Path) -> None:
    settings = {"offsets.topic.replication.factor": "1"}
    with small_kafka_node(tmp_path / "kafka", settings) as node:
        with Admin(bootstrap_servers=node.bootstrap) as admin:
            admin.create_topics([NewTopic("clicks", PARTITIONS)]).get_all()
        with FollowThrough(node.bootstrap, "clicks", tmp_path) as loads:
            loads.write(20_000)
            loads.until(lambda rows: rows > 0)
            node.kill()
            node.spawn()  # on the same port
            node.wait_until_ready()
            loads.write(5_000)
            loads.finish()
        with Admin(bootstrap_servers=node.bootstrap) as admin:
            committed = admin.list_group_offsets(["loads-delta"])["loads-delta"].get()
            ends = admin.list_offsets(dict.fromkeys(committed, LATEST)).get_all()
        assert sum(each.offset for each in committed.values()) == 25_000
        assert sum(each.offset for each in ends.values()) == 25_000
