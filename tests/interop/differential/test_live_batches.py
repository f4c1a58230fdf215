"""Random batches, sound and spoilt, to a live Apache Kafka and to a broker with strict validation.

What is not compressed has the same answer, the records that are named included. What is compressed
is never taken where Kafka refuses it; docs/decisions/0069-records-are-looked-at.md says where it is
refused and Kafka takes it. Needs ``--java``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.broker_process import BrokerProcess
from tests.interop.differential import runner
from tests.interop.differential.session import Session
from tests.interop.differential.settings import BROKER_SETTINGS
from tests.interop.kafka_cluster import kafka_version, small_kafka_node
from tests.property.hostile_batches import HostileWriter, spoilt_batch

from millstream.records.batch import ATTRIBUTES_POSITION, CODEC_MASK, HEADER_SIZE

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow]

BATCHES = 2_000
TOPICS: list[dict[str, str]] = [
    {},
    {"cleanup.policy": "compact"},
    {"message.timestamp.type": "LogAppendTime"},
    {"message.timestamp.before.max.ms": "3600000"},
    {"max.message.bytes": "200"},
]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    if not kafka_version().startswith("4.3."):
        pytest.skip(f"the answers are those of Kafka 4.3, this is {kafka_version()}")
    strict = BROKER_SETTINGS | {"log.record.validation": "strict"}
    with (
        small_kafka_node(tmp_path_factory.mktemp("kafka"), BROKER_SETTINGS) as node,
        BrokerProcess(tmp_path_factory.mktemp("millstream"), strict) as broker,
    ):
        runner.prepare(node.bootstrap)
        yield node.bootstrap, broker.bootstrap


class Topics:
    """The same topics on one of the brokers."""

    def __init__(self, bootstrap: str) -> None:
        self.session = Session(bootstrap)
        self.names = [
            self.session.topic(f"t{number}", configs=configs)
            for number, configs in enumerate(TOPICS)
        ]

    def answer(self, number: int, data: bytes) -> tuple[object, list[object]]:
        """Return the error code and the records that are named."""
        fields = self.session.produce_fields([(self.names[number], 0, data)], version=9, acks=1)
        answer = self.session.quiet("Produce", 9, **fields)
        (partition,) = answer["responses"][0]["partition_responses"]
        named = [record["batch_index"] for record in partition["record_errors"]]
        return partition["error_code"], named


@pytest.mark.timeout(600)
def test_batches_are_answered_alike(brokers: tuple[str, str]) -> None:
    kafka, ours = (Topics(bootstrap) for bootstrap in brokers)
    writer = HostileWriter(1)
    taken = 0
    for _ in range(BATCHES):
        data, number = spoilt_batch(writer), writer.random.randrange(len(TOPICS))
        wanted, got = kafka.answer(number, data), ours.answer(number, data)
        is_compressed = len(data) >= HEADER_SIZE and data[ATTRIBUTES_POSITION + 1] & CODEC_MASK
        if got == (0, []) or not is_compressed:
            assert got == wanted, (TOPICS[number], data.hex())
        taken += got == (0, [])
    assert taken > BATCHES // 20
    for each in (kafka, ours):
        each.session.close()
