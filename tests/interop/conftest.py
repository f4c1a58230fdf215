"""The option ``--java`` and what it opens: tests that run programs out of Kafka's jars."""

from __future__ import annotations

import pytest
from tests.interop.kafka_cluster import KafkaUnavailableError, kafka_jars


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--java",
        action="store_true",
        help="run Apache Kafka's tools and brokers too (KAFKA_HOME, or Maven)",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "java: runs programs out of Apache Kafka's jars")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what needs Java unless it was asked for and Kafka can be had, and say why."""
    needing = [item for item in items if item.get_closest_marker("java")]
    if not needing:
        return
    # The option is there only when pytest was given this directory.
    if not config.getoption("--java", default=False):
        reason = "needs Apache Kafka: make interop, or pytest tests/interop --java"
    else:
        try:
            kafka_jars()
        except KafkaUnavailableError as error:
            reason = str(error)
        else:
            return
    for item in needing:
        item.add_marker(pytest.mark.skip(reason=reason))
