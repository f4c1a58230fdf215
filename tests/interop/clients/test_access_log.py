"""The main job's first half: an access log through each stock client, byte for byte."""

from __future__ import annotations

import pytest
from tests.broker_process import BrokerProcess
from tests.interop.clients.access_log import access_log_lines
from tests.interop.clients.carriers import CARRIERS, Carrier, Lines

from millstream.client import Admin
from millstream.client.core.admin.topics import NewTopic

PARTITIONS = 4

pytestmark = pytest.mark.interop


@pytest.fixture(scope="session")
def lines_by_partition() -> Lines:
    """Deal the lines out to the partitions in turn."""
    lines = access_log_lines()
    assert len(lines) >= 1000
    return {partition: lines[partition::PARTITIONS] for partition in range(PARTITIONS)}


@pytest.fixture(scope="session", params=CARRIERS, ids=lambda carrier: carrier.name)
def filled_topic(
    request: pytest.FixtureRequest, broker: BrokerProcess, lines_by_partition: Lines
) -> str:
    """A topic of 4 partitions that one client has filled."""
    carrier: Carrier = request.param
    topic = f"access-log-by-{carrier.name}"
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS)]).get_all()
    carrier.produce(broker.bootstrap, topic, lines_by_partition)
    return topic


@pytest.mark.parametrize("reader", CARRIERS, ids=lambda carrier: carrier.name)
def test_every_line_comes_back_in_order(
    broker: BrokerProcess, filled_topic: str, lines_by_partition: Lines, reader: Carrier
) -> None:
    counts = {partition: len(lines) for partition, lines in lines_by_partition.items()}
    assert reader.consume(broker.bootstrap, filled_topic, counts) == lines_by_partition
