"""One SparkSession for all tests of Spark: starting a JVM is the slow part.

They run in one process (`make test` gives them a pytest of their own), so that there is one JVM at
a time and it has both cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.broker_process import BrokerProcess
from tests.topics import append_batches

from millstream.client import Admin
from millstream.client.core.admin.topics import NewTopic
from millstream.model.topic import TopicPartition
from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.records.compression import Codec
from millstream.records.record import Record
from millstream.spark import session

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)
            # A test that is cut off inside a call to the JVM breaks the session for the others.
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    home = tmp_path_factory.mktemp("spark")
    (home / "events").mkdir()
    started = session(
        "tests",
        master="local[2]",
        settings={
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
            "spark.local.dir": str(home / "local"),
            "spark.sql.warehouse.dir": str(home / "warehouse"),
            "spark.driver.memory": "1g",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": (home / "events").as_uri(),
            "spark.eventLog.compress": "false",
        },
    )
    started.sparkContext.setLogLevel("ERROR")
    yield started
    started.stop()


@pytest.fixture
def load(spark: SparkSession, broker: BrokerProcess) -> Callable[..., DataFrame]:
    """Load with options; names with a dot go into a mapping."""

    def load(more: Mapping[str, str] | None = None, **options: str) -> DataFrame:
        reader = spark.read.format("millstream")
        reader = reader.option("kafka.bootstrap.servers", broker.bootstrap)
        for name, value in {**(more or {}), **options}.items():
            reader = reader.option(name, value)
        return reader.load()

    return load


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap) as connected:
        yield connected


@pytest.fixture
def topic(admin: Admin, new_topic: Callable[[], str]) -> str:
    """An empty topic of two partitions."""
    name = new_topic()
    admin.create_topics([NewTopic(name, 2)]).get_all()
    return name


Write = Callable[..., None]


@pytest.fixture
def write(broker: BrokerProcess) -> Write:
    """Write records to one partition, in one batch of a codec; their offsets are not looked at."""

    def write(
        topic: str, partition: int, records: Sequence[Record], codec: Codec = Codec.NONE
    ) -> None:
        builder = BatchBuilder(BatchOptions(codec=codec))
        for record in records:
            builder.append(record.timestamp, record.key, record.value, record.headers)
        append_batches(broker.bootstrap, [(TopicPartition(topic, partition), builder.build())])

    return write


@pytest.fixture
def values(write: Write) -> Callable[..., None]:
    """Write records of which only the value matters; one millisecond lies between two."""

    def values(topic: str, partition: int, *texts: str, first_ms: int = 1000) -> None:
        records = [
            Record(0, first_ms + number, None, text.encode()) for number, text in enumerate(texts)
        ]
        write(topic, partition, records)

    return values
