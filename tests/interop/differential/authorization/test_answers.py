"""Under an authorizer Millstream answers as Apache Kafka did; without Java. ``--java`` asks Apache
Kafka again.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.interop.differential.authorization import scenarios
from tests.interop.differential.authorization.settings import SETTINGS
from tests.interop.kafka_cluster import small_kafka_node


@pytest.mark.interop
@pytest.mark.timeout(300)
def test_answers_as_kafka(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        got = scenarios.perform(broker.bootstrap)
    lines = scenarios.differences(scenarios.load(), got)
    assert not lines, "\n".join(lines)


@pytest.mark.interop
@pytest.mark.java
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kafka_answers_as_recorded(tmp_path: Path) -> None:
    with small_kafka_node(tmp_path, SETTINGS) as node:
        got = scenarios.perform(node.bootstrap)
    lines = scenarios.differences(scenarios.load(), got)
    assert not lines, "\n".join(lines)


def test_every_scenario_is_recorded_and_nothing_else() -> None:
    assert set(scenarios.load()) == set(scenarios.names())


def test_what_is_said_to_differ_is_there() -> None:
    assert set(scenarios.EXPLAINED) <= set(scenarios.names())
