"""Apache Kafka still answers as recorded: the scenarios go to a live node. Needs ``--java``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.interop.differential import recorded, runner
from tests.interop.differential.scenario import all_scenarios
from tests.interop.differential.session import Session
from tests.interop.differential.settings import BROKER_SETTINGS
from tests.interop.kafka_cluster import kafka_version, small_kafka_node

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow]

APIS = sorted({scenario.api for scenario in all_scenarios()})


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if not kafka_version().startswith("4.3."):
        pytest.skip(f"the answers are those of Kafka 4.3, this is {kafka_version()}")
    with small_kafka_node(tmp_path_factory.mktemp("kafka"), BROKER_SETTINGS) as node:
        runner.prepare(Session(node.bootstrap))
        yield node.bootstrap


@pytest.mark.timeout(900)
@pytest.mark.parametrize("api", APIS)
def test_kafka_answers_as_recorded(bootstrap: str, api: str) -> None:
    expected = recorded.load(api)
    problems = []
    for scenario in all_scenarios():
        if scenario.api != api:
            continue
        lines = runner.compare(
            runner.perform(scenario, Session(bootstrap)), expected[scenario.name]
        )
        if lines:
            problems.append(f"{scenario}\n  " + "\n  ".join(lines))
    assert not problems, "\n".join(problems)


def test_the_settings_are_those_of_the_recording() -> None:
    assert recorded.settings() == BROKER_SETTINGS
