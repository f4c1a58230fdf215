"""Partitions that are assigned by hand, and a load that subscribes to their topic later."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.system.lakehouse.topic_site import TopicSite

from millstream.client import Admin
from millstream.model.topic import TopicPartition
from millstream.spark.lakehouse.load_plan import plan_load
from millstream.spark.plan import DataLossError

pytestmark = pytest.mark.system


@pytest.fixture
def site(broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path) -> TopicSite:
    made = TopicSite(broker.bootstrap, new_topic(), tmp_path).using(app_id="a")
    made.create(3)
    return made


def assigning(site: TopicSite, *partitions: int) -> TopicSite:
    source = {**site.settings.source, "assign": json.dumps({site.topic: list(partitions)})}
    del source["subscribe"]
    return site.using(source=source, app_id="a")


def delete(site: TopicSite, partition: int, before: int) -> None:
    with Admin(bootstrap_servers=site.bootstrap) as admin:
        admin.delete_records({TopicPartition(site.topic, partition): before}).get_all()


def test_what_was_not_assigned_begins_where_it_is(site: TopicSite) -> None:
    """The load ended: records were lost of partitions that it was never to read."""
    for partition in range(3):
        site.write(partition, [b"1", b"2", b"3"], batch=1)
    assigning(site, 1).load()
    delete(site, 0, 2)
    delete(site, 2, 3)
    assert plan_load(site.settings).refusal is None
    site.load()
    assert site.rows("partition", "offset") == [(0, 2), (1, 0), (1, 1), (1, 2)]
    assert site.audit().is_clean


def test_what_it_subscribes_to_is_not_lost_afterwards(site: TopicSite) -> None:
    """An empty partition has no record that says where it begins."""
    site.write(1, [b"1"])
    assigning(site, 1).load()
    site.write(1, [b"2"])
    site.load()
    site.write(0, [b"1", b"2"], batch=1)
    delete(site, 0, 1)
    with pytest.raises(DataLossError, match=rf"\[0, 1\) of {site.topic}-0"):
        site.load()


def test_a_partition_that_is_added_later_is_new(site: TopicSite) -> None:
    site.write(1, [b"1"])
    assigning(site, 1).load()
    with Admin(bootstrap_servers=site.bootstrap) as admin:
        admin.create_partitions({site.topic: 4}).get_all()
    site.write(3, [b"1", b"2"], batch=1)
    delete(site, 3, 1)
    with pytest.raises(DataLossError, match=rf"\[0, 1\) of {site.topic}-3, new here"):
        site.load()
