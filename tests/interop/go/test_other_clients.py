"""sarama and kafka-go do their ordinary work."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.interop.go.program import BUILD_TIMEOUT_S, TIMEOUT_S, GoProgram, built
from tests.interop.go.test_franz_go import create, fill, values

HERE = Path(__file__).parent / "others"
PARTITIONS = 3
COUNT = 3_000
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.long,  # builds the Go program
    pytest.mark.timeout(BUILD_TIMEOUT_S + TIMEOUT_S),
    pytest.mark.skipif(shutil.which("go") is None, reason="Go is not on the path"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> GoProgram:
    """The program of ``others/main.go``."""
    return built(HERE, tmp_path_factory.mktemp("go"))


@pytest.fixture
def topic(broker: BrokerProcess, new_topic: Callable[[], str]) -> str:
    return create(broker, new_topic())


def numbers() -> Counter[str]:
    return Counter(str(number) for number in range(COUNT))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("client", ["sarama", "kafka-go"])
def test_what_is_produced_is_consumed(
    program: GoProgram, broker: BrokerProcess, topic: str, client: str, codec: str
) -> None:
    program.run(f"{client}-produce", broker, topic=topic, count=COUNT, codec=codec)
    assert values(broker, topic) == numbers()
    read = program.run(f"{client}-consume", broker, topic=topic, group=topic, count=COUNT)
    assert Counter(value for _, _, _, value, _ in read) == numbers()
    assert all(value == header for _, _, _, value, header in read)


@pytest.mark.parametrize("client", ["sarama", "kafka-go"])
def test_a_member_goes_on_where_the_last_one_committed(
    program: GoProgram, broker: BrokerProcess, topic: str, client: str
) -> None:
    program.run(f"{client}-produce", broker, topic=topic, count=COUNT, codec="none")
    reader = {"topic": topic, "group": topic}
    first = program.run(f"{client}-consume", broker, count=COUNT // 3, **reader)
    second = program.run(f"{client}-consume", broker, count=COUNT - COUNT // 3, **reader)
    assert Counter(value for _, _, _, value, _ in first + second) == numbers()


def test_records_copied_in_transactions_are_there_once(
    program: GoProgram, broker: BrokerProcess, topic: str, new_topic: Callable[[], str]
) -> None:
    source, target = topic, create(broker, new_topic())
    fill(broker, source, 300)
    program.run("sarama-copy", broker, topic=source, to=target, group=source, id=source, count=300)
    assert values(broker, target) == Counter(f"copied-{number}" for number in range(300))
    aborted = values(broker, target, committed=False) - values(broker, target)
    assert aborted.total() == 100


def test_sarama_administrates(
    program: GoProgram, broker: BrokerProcess, new_topic: Callable[[], str]
) -> None:
    lines = program.run("sarama-admin", broker, topic=new_topic())
    assert lines == [["partitions", "5"], ["retention.ms", "86400000"], ["again", "true"]]
