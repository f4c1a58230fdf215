"""What a change of dynamic settings may do to `min.insync.replicas`, one value for all brokers."""

from __future__ import annotations

import pytest

from millstream.config.broker import BrokerConfig
from millstream.config.dynamic import DynamicConfig
from millstream.controller.config_changes import ConfigChange, ResourceType, check_change
from millstream.controller.context import ControllerContext
from millstream.model.errors import ErrorCode, KafkaError

NAME = "min.insync.replicas"
STORED = {"1": {NAME: "2", "message.max.bytes": "5"}, "": {NAME: "2"}}


def change(
    broker: str, texts: dict[str, str], *named: str, all_of_it: bool = False
) -> ConfigChange:
    return ConfigChange(
        ResourceType.BROKER,
        broker,
        lambda _: texts,
        named=frozenset(named),
        replaces_all=all_of_it,
    )


@pytest.mark.parametrize(
    "wanted",
    [
        change("1", {"message.max.bytes": "5"}, NAME),  # what an older version stored is removed
        change("1", {}, all_of_it=True),
        change("1", {NAME: "2", "message.max.bytes": "6"}, "message.max.bytes"),
        change("", {NAME: "3"}, NAME),
        change("", {NAME: "2", "message.max.bytes": "6"}, "message.max.bytes"),
    ],
)
def test_allowed(wanted: ConfigChange) -> None:
    context = ControllerContext(broker_configs=dict(STORED))
    texts = check_change(wanted, context, DynamicConfig(BrokerConfig()))
    assert texts == wanted.change({})


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (change("1", {NAME: "3"}, NAME), "Broker-level"),
        (change("2", {NAME: "3"}, NAME), "Broker-level"),
        (change("2", {}, NAME), "Broker-level"),
        (change("", {}, NAME), "Cluster-level"),
        (change("", {"message.max.bytes": "5"}, all_of_it=True), "Cluster-level"),
    ],
)
def test_refused(wanted: ConfigChange, reason: str) -> None:
    context = ControllerContext(broker_configs=dict(STORED))
    with pytest.raises(KafkaError, match=reason) as caught:
        check_change(wanted, context, DynamicConfig(BrokerConfig()))
    assert caught.value.error is ErrorCode.INVALID_CONFIG
