"""Brokers for tests: real ones, without a container and without Java, that a test bends at will.

In pytest the fixtures ``kafka``, ``kafka_cluster`` and ``kafka_topic`` are there by themselves
(`millstream.testing.plugin`). Elsewhere::

    from millstream.testing import start_kafka

    with start_kafka(brokers=3) as kafka:
        producer = confluent_kafka.Producer(kafka.client_settings("confluent"))

Names are imported at first use: the plug-in costs a test run without Kafka next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from millstream.testing.broker import Broker as Broker
    from millstream.testing.errors import TestBrokerError as TestBrokerError
    from millstream.testing.kafka import STORE as STORE
    from millstream.testing.kafka import Kafka as Kafka
    from millstream.testing.kafka import start_kafka as start_kafka
    from millstream.testing.requests import RecordedRequest as RecordedRequest
    from millstream.testing.requests import Recording as Recording
    from millstream.testing.rules import Rule as Rule

_MODULES: Final = {
    "STORE": "kafka",
    "Broker": "broker",
    "Kafka": "kafka",
    "RecordedRequest": "requests",
    "Recording": "requests",
    "Rule": "rules",
    "TestBrokerError": "errors",
    "start_kafka": "kafka",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
