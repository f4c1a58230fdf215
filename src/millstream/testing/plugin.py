"""The pytest plug-in, found by itself where Millstream is installed: brokers as fixtures.

``kafka``          one broker for the session, with a namespace of topics for each test
``kafka_cluster``  three brokers for the session, in the same way
``kafka_topic``    the name of a topic of one partition that was made for this test
``kafka_pool``     brokers with other settings, started once for each choice

``@pytest.mark.kafka(brokers=, settings=, security=, users=, partitions=)`` chooses other brokers
for a test. Workers of pytest-xdist have brokers of their own. A test that bends its brokers (kills
one, fills a disk, advances the clock) keeps them for itself: the next test gets new ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from millstream.testing.kafka import Kafka

_BROKERS: Final = pytest.StashKey["list[tuple[Kafka, dict[int, int]]]"]()
_LOG_END: Final = 20_000
_CHOICES: Final = frozenset({"brokers", "settings", "security", "users"})


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        "kafka(brokers=1, settings={}, security='PLAINTEXT', users={}, partitions=1): the brokers "
        "and the topic that the fixtures kafka, kafka_cluster and kafka_topic give to a test",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Put what the brokers logged during a test into the report of its failure."""
    report: pytest.TestReport = yield  # type: ignore[assignment]  # pluggy sends it
    if report.failed:
        for kafka, positions in item.stash.get(_BROKERS, []):
            for broker in kafka.brokers:
                text = broker.process.log_text(positions.get(broker.id, 0))
                if text:
                    title = f"Log of Kafka broker {broker.id} ({report.when})"
                    report.sections.append((title, text[-_LOG_END:]))
    return report  # type: ignore[return-value]  # to pluggy


class KafkaPool:
    """The brokers of a session, by how they were chosen."""

    def __init__(self) -> None:
        self._started: dict[str, Kafka] = {}
        self._numbers = itertools.count()

    def get(self, brokers: int = 1, **choice: Any) -> Kafka:
        """Return brokers as ``start_kafka`` starts them; the same ones for the same choice."""
        from millstream.testing.kafka import start_kafka

        name = repr((brokers, sorted((key, repr(value)) for key, value in choice.items())))
        found = self._started.get(name)
        if found is None or found.is_bent:
            if found is not None:
                found.close()
            found = self._started[name] = start_kafka(brokers, **choice)
        return found

    def lend(self, item: pytest.Item, brokers: int, choice: dict[str, Any]) -> Iterator[Kafka]:
        """Give brokers to one test, and clear up after it."""
        from millstream.testing.kafka import namespace_of

        kafka = self.get(brokers, **choice)
        kafka.namespace = f"{namespace_of(item.name)}-{next(self._numbers)}"
        kafka.rules.failures.clear()
        positions = {each.id: len(each.process.log_text().encode()) for each in kafka.brokers}
        item.stash.setdefault(_BROKERS, []).append((kafka, positions))
        yield kafka
        kafka.rules.clear()
        kafka.is_bent = kafka.is_bent or not all(each.is_running for each in kafka.brokers)
        if not kafka.is_bent:
            kafka.forget_topics()
        failures = list(kafka.rules.failures)
        if failures:
            raise failures[0]

    def close(self) -> None:
        """End all brokers."""
        for each in self._started.values():
            each.close()
        self._started.clear()


@pytest.fixture(scope="session")
def kafka_pool() -> Iterator[KafkaPool]:
    """Brokers of this session: ``kafka_pool.get(brokers=1, settings={}, security="SASL_SSL")``."""
    pool = KafkaPool()
    yield pool
    pool.close()


@pytest.fixture
def kafka(request: pytest.FixtureRequest, kafka_pool: KafkaPool) -> Iterator[Kafka]:
    """One broker (``millstream.testing.Kafka``), with a namespace of topics for this test."""
    choice = _choice(request)
    yield from kafka_pool.lend(request.node, choice.pop("brokers", 1), choice)


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest, kafka_pool: KafkaPool) -> Iterator[Kafka]:
    """Three brokers (``millstream.testing.Kafka``), with a namespace of topics for this test."""
    choice = _choice(request)
    yield from kafka_pool.lend(request.node, choice.pop("brokers", 3), choice)


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest) -> str:
    """The name of a topic that was made for this test: on the brokers of ``kafka_cluster`` where
    the test asks for them, else on that of ``kafka``.
    """
    name = "kafka_cluster" if "kafka_cluster" in request.fixturenames else "kafka"
    brokers: Kafka = request.getfixturevalue(name)
    marker = request.node.get_closest_marker("kafka")
    partitions = 1 if marker is None else marker.kwargs.get("partitions", 1)
    return brokers.topic("topic", partitions)


def _choice(request: pytest.FixtureRequest) -> dict[str, Any]:
    marker = request.node.get_closest_marker("kafka")
    given = {} if marker is None else dict(marker.kwargs)
    given.pop("partitions", None)
    unknown = given.keys() - _CHOICES
    if unknown or (marker is not None and marker.args):
        raise pytest.UsageError(
            f"@pytest.mark.kafka takes {', '.join(sorted(_CHOICES))} and partitions by name"
        )
    return given
