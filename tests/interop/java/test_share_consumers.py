"""Java's share consumer, as its console tool runs it, on a broker of ours."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.broker_process import BrokerProcess
from tests.interop.java.conftest import create, produce
from tests.interop.kafka_cluster import JavaTool, kafka_jars

from millstream.client import Admin, ShareConsumer
from millstream.client.core.admin.configs import Change, Resource, ResourceType

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow]

CONSOLE = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"


def from_the_start(broker: BrokerProcess, group: str) -> None:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        change = Change("share.auto.offset.reset", "earliest")
        admin.incremental_alter_configs({Resource(ResourceType.GROUP, group): [change]}).get_all()


@pytest.mark.usefixtures("tools")
def test_the_console_share_consumer(broker: BrokerProcess, new_topic: Callable[[], str]) -> None:
    """It accepts what it prints, so that the next member gets the rest; what it rejects is gone."""
    topic = new_topic()
    create(broker, topic, 2)
    from_the_start(broker, topic)
    produce(broker, topic, *(f"line {number}" for number in range(50)))
    tool = JavaTool(kafka_jars())
    common = ("--bootstrap-server", broker.bootstrap, "--topic", topic, "--group", topic)
    accepted = tool.run(CONSOLE, *common, "--max-messages", "50", "--timeout-ms", "30000")
    assert sorted(accepted.stdout.split("\n"))[1:] == sorted(f"line {each}" for each in range(50))
    produce(broker, topic, *(f"more {number}" for number in range(20)))
    rejected = tool.run(
        CONSOLE, *common, "--reject", "--max-messages", "20", "--timeout-ms", "30000"
    )
    assert len(rejected.stdout.split()) == 40, rejected.stdout
    produce(broker, topic, "last")
    with ShareConsumer(bootstrap_servers=broker.bootstrap, group_id=topic) as ours:
        ours.subscribe([topic])
        records = []
        while not records:
            records = ours.poll(5)
        assert [record.value for record in records] == [b"last"]
