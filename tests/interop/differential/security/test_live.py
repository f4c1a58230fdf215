"""Apache Kafka still answers about security as recorded. Needs ``--java``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.interop.differential import recorded, runner
from tests.interop.differential.security.session import SecuredSession
from tests.interop.differential.security.sets import SETS
from tests.interop.differential.security.site import Site, kafka_site
from tests.interop.kafka_cluster import kafka_version

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow]


@pytest.fixture(scope="module", params=SETS)
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Site]]:
    if not kafka_version().startswith("4.3."):
        pytest.skip(f"the answers are those of Kafka 4.3, this is {kafka_version()}")
    chosen = SETS[request.param]
    with kafka_site(tmp_path_factory.mktemp("kafka"), chosen.settings) as running:
        runner.prepare(SecuredSession(running))
        yield chosen.name, running


@pytest.mark.timeout(900)
def test_kafka_answers_as_recorded(site: tuple[str, Site]) -> None:
    chosen = SETS[site[0]]
    problems = []
    for scenario in chosen.scenarios():
        expected = recorded.load(scenario.api, chosen.answers)[scenario.name]
        lines = runner.compare(runner.perform(scenario, SecuredSession(site[1])), expected)
        if lines:
            problems.append(f"{scenario}\n  " + "\n  ".join(lines))
    assert not problems, "\n".join(problems)
