"""What `millstream group describe` says about a group of another client's members."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import confluent_kafka
import pytest
from tests.broker_process import BrokerProcess

from millstream.cli.main import main
from millstream.client import Admin
from millstream.client.core.admin.topics import NewTopic
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicPartition

TIMEOUT_S = 60.0

pytestmark = pytest.mark.interop


def test_members_and_their_partitions(
    broker: BrokerProcess, new_topic: Callable[[], str], capfd: pytest.CaptureFixture[str]
) -> None:
    topic = new_topic()
    group = f"group-{topic}"
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 2)]).get_all()
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": group, "client.id": "reader"}
        )
        try:
            consumer.subscribe([topic])
            deadline = time.monotonic() + TIMEOUT_S
            while len(consumer.assignment()) < 2:
                assert time.monotonic() < deadline
                consumer.poll(0.1)
            capfd.readouterr()
            assert main(["group", "describe", group, "-b", broker.bootstrap, "--json"]) == 0
            (described,) = json.loads(capfd.readouterr().out)
            with pytest.raises(KafkaError) as committing:
                admin.alter_group_offsets(group, {TopicPartition(topic, 0): 0}).get_all()
            with pytest.raises(KafkaError) as deleting:
                admin.delete_groups([group]).get_all()
        finally:
            consumer.close()
    assert described["state"] == "Stable"
    (member,) = described["members"]
    assert (member["client_id"], member["host"]) == ("reader", "127.0.0.1")
    assert member["partitions"] == [f"{topic}-0", f"{topic}-1"]
    assert [row["client_id"] for row in described["partitions"]] == ["reader", "reader"]
    assert [row["committed"] for row in described["partitions"]] == [None, None]
    assert committing.value.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert deleting.value.error is ErrorCode.NON_EMPTY_GROUP
