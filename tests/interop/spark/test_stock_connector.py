"""A job for ``format("kafka")`` gives the same rows when the format's name is changed.

Each case is read by Spark's own connector and by ours, with the same options, from one topic; the
connector runs with its PySpark in an environment of its own (`bench.peers.stock_spark`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.lake import SparkFailedError, SparkWorker
from bench.peers.stock_spark import StockSparkAbsentError, find_stock_spark
from tests.broker_process import BrokerProcess
from tests.topics import append_batches

from millstream.client import Admin
from millstream.client.core.admin.topics import NewTopic
from millstream.model.topic import TopicPartition
from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.records.compression import Codec

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(600)]

TOPIC = "drop-in"
START_MS = 1_700_000_000_000
EACH = 100

CASES: dict[str, dict[str, str]] = {
    "subscribe": {"subscribe": TOPIC},
    "two topics": {"subscribe": f"{TOPIC}, {TOPIC}-2"},
    "subscribePattern": {"subscribePattern": "drop-.*"},
    "assign": {"assign": json.dumps({TOPIC: [1]})},
    "headers": {"subscribe": TOPIC, "includeHeaders": "true"},
    "offsets": {
        "subscribe": TOPIC,
        "startingOffsets": json.dumps({TOPIC: {"0": 7, "1": -2}}),
        "endingOffsets": json.dumps({TOPIC: {"0": 55, "1": -1}}),
    },
    "earliest to latest": {
        "subscribe": TOPIC,
        "startingOffsets": "earliest",
        "endingOffsets": "latest",
    },
    "timestamps": {
        "subscribe": TOPIC,
        "startingTimestamp": str(START_MS + 10),
        "endingTimestamp": str(START_MS + 60),
    },
    "timestamps for each": {
        "subscribe": TOPIC,
        "startingOffsetsByTimestamp": json.dumps({TOPIC: {"0": START_MS + 3, "1": START_MS}}),
        "endingOffsetsByTimestamp": json.dumps({TOPIC: {"0": START_MS + 9, "1": START_MS + 90}}),
    },
    "a timestamp behind the end": {
        "subscribe": TOPIC,
        "startingTimestamp": str(START_MS + 10_000),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "tasks": {"subscribe": TOPIC, "minPartitions": "7", "maxRecordsPerPartition": "30"},
    "names in other case": {"SUBSCRIBE": TOPIC, "failondataloss": "false"},
    "what tunes and names": {
        "subscribe": TOPIC,
        "groupIdPrefix": "mine",
        "kafkaConsumer.pollTimeoutMs": "60000",
        "fetchOffset.numRetries": "5",
        "fetchOffset.retryIntervalMs": "20",
        "kafka.max.poll.records": "10",
        "kafka.isolation.level": "read_committed",
        "kafka.max.partition.fetch.bytes": "2000",
    },
}
REFUSED: dict[str, dict[str, str]] = {
    "nothing to read": {},
    "two subscriptions": {"subscribe": TOPIC, "assign": json.dumps({TOPIC: [0]})},
    "latest as a start": {"subscribe": TOPIC, "startingOffsets": "latest"},
    "earliest as an end": {"subscribe": TOPIC, "endingOffsets": "earliest"},
    "a timestamp behind the end": {
        "subscribe": TOPIC,
        "startingTimestamp": str(START_MS + 10_000),
    },
    "a fixed setting": {"subscribe": TOPIC, "kafka.auto.offset.reset": "earliest"},
    "offsets of a part": {"subscribe": TOPIC, "startingOffsets": json.dumps({TOPIC: {"0": 1}})},
}


class Pair:
    """Both connectors over one broker."""

    def __init__(self, stock: SparkWorker, ours: SparkWorker, bootstrap: str) -> None:
        self.stock = stock
        self.ours = ours
        self.options = {"kafka.bootstrap.servers": bootstrap}

    def read(self, options: dict[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
        given = self.options | options
        theirs = self.stock.ask("rows", format="kafka", options=given)
        return theirs, self.ours.ask("rows", format="millstream", options=given)


@pytest.fixture(scope="module")
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    if not request.config.getoption("--java", default=False):
        pytest.skip("needs Spark's own connector: make interop, or pytest tests/interop --java")
    try:
        found = find_stock_spark()
    except StockSparkAbsentError as error:
        pytest.skip(f"Spark's own connector cannot be had: {error}")
    directory = tmp_path_factory.mktemp("drop-in")
    with BrokerProcess(directory / "broker") as broker:
        fill(broker.bootstrap)
        stock = SparkWorker(Path(directory / "stock"), found)
        ours = SparkWorker(Path(directory / "ours"), None)
        yield Pair(stock, ours, broker.bootstrap)
        stock.close()
        ours.close()


def fill(bootstrap: str) -> None:
    """Write records of every codec, with and without keys, values and headers."""
    headers = ((), (("a", b"1"), ("b", None)), (("ü", b"\xff"),))
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, 2), NewTopic(f"{TOPIC}-2", 1)]).get_all()
    batches: list[tuple[TopicPartition, bytes]] = []
    for place in (
        TopicPartition(TOPIC, 0),
        TopicPartition(TOPIC, 1),
        TopicPartition(f"{TOPIC}-2", 0),
    ):
        for first in range(0, EACH, 10):
            codec = list(Codec)[first // 10 % len(Codec)]
            builder = BatchBuilder(BatchOptions(codec=codec))
            for number in range(first, first + 10):
                key = None if number % 3 == 0 else b"key %d" % number
                value = None if number % 7 == 0 else b"\x00\xff%d" % number
                builder.append(START_MS + number, key, value, headers[number % 3])
            batches.append((place, builder.build()))
    append_batches(bootstrap, batches)


@pytest.mark.parametrize("case", CASES)
def test_the_same_rows(pair: Pair, case: str) -> None:
    theirs, ours = pair.read(CASES[case])
    assert ours["schema"] == theirs["schema"]
    assert ours["rows"] == theirs["rows"]
    assert bool(theirs["rows"]) == ("behind" not in case)


@pytest.mark.parametrize("case", REFUSED)
def test_what_one_refuses_the_other_refuses(pair: Pair, case: str) -> None:
    given = pair.options | REFUSED[case]
    for worker, name in ((pair.stock, "kafka"), (pair.ours, "millstream")):
        with pytest.raises(SparkFailedError):
            worker.ask("rows", format=name, options=given)
