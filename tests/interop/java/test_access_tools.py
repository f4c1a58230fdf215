"""kafka-acls and kafka-configs --entity-type users on a broker of ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.interop.java.conftest import KafkaTools, server

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.timeout(600),
]

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def test_kafka_acls(tools: KafkaTools, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        acls = ("kafka-acls", *server(broker))
        about = ("--topic", "t", "--allow-principal", "User:ann")
        added = tools.run(*acls, "--add", *about, "--operation", "Read")
        assert "(principal=User:ann, host=*, operation=READ, permissionType=ALLOW)" in added
        listed = tools.run(*acls, "--list", "--topic", "t")
        assert "resourceType=TOPIC, name=t, patternType=LITERAL" in listed
        assert "operation=READ" in listed
        tools.run(*acls, "--remove", "--force", *about, "--operation", "Read")
        assert "operation=READ" not in tools.run(*acls, "--list")


def test_kafka_configs_of_quotas(tools: KafkaTools, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        configs = ("kafka-configs", *server(broker))
        of_ann = ("--entity-type", "users", "--entity-name", "ann")
        tools.run(*configs, "--alter", *of_ann, "--add-config", "producer_byte_rate=1024")
        shown = tools.run(*configs, "--describe", *of_ann)
        assert "Quota configs for user-principal 'ann' are producer_byte_rate=1024.0" in shown
        default_client = ("--entity-type", "clients", "--entity-default")
        tools.run(*configs, "--alter", *default_client, "--add-config", "request_percentage=50")
        assert "request_percentage=50.0" in tools.run(*configs, "--describe", *default_client)
        address = ("--entity-type", "ips", "--entity-name", "10.0.0.1")
        tools.run(*configs, "--alter", *address, "--add-config", "connection_creation_rate=5")
        assert "connection_creation_rate=5.0" in tools.run(*configs, "--describe", *address)
        tools.run(*configs, "--alter", *of_ann, "--delete-config", "producer_byte_rate")
        assert "producer_byte_rate" not in tools.run(*configs, "--describe", *of_ann)
