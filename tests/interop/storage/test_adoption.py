"""``serve --data-dir`` on a directory of Apache Kafka: topics, settings, groups and transactions
are there without a word, and what is Kafka's own is left alone.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.broker_process import BrokerProcess
from tests.interop.kafka_cluster import KafkaUnavailableError
from tests.interop.storage.make_kafka_node_directory import (
    PATIENCE_S,
    TARGET,
    description,
    stopped_node,
)

pytestmark = [pytest.mark.interop, pytest.mark.slow]

KAFKAS_OWN = ("bootstrap.checkpoint", "__cluster_metadata-0")


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for own in KAFKAS_OWN
        for path in [directory / own, *(directory / own).rglob("*")]
        if path.is_file()
    }


def check(broker: BrokerProcess, source: Path, expected: dict[str, Any]) -> None:
    shutil.copytree(source, broker.data_directory)
    before = contents(broker.data_directory)
    assert before
    for _ in range(2):  # the second start finds what the first one has taken over
        with broker:
            assert description(broker.bootstrap) == expected
    lines = [line for line in broker.log.splitlines() if "adopted" in line]
    assert len(lines) == 1
    for name, count in expected["topics"].items():
        assert f"{name} ({count} partitions)" in lines[0]
    assert contents(broker.data_directory) == before
    with broker:
        # The transactional id goes on under the epoch that Kafka gave it: the old one is fenced.
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        producer.produce("orders", b"new", partition=1)
        assert producer.flush(PATIENCE_S) == 0
        after = description(broker.bootstrap)
    assert [row for row in after["orders"] if row not in expected["orders"]] == [
        [1, max(row[1] for row in expected["orders"] if row[0] == 1) + 1, "new"]
    ]


def test_a_recorded_directory(tmp_path: Path) -> None:
    expected = json.loads((TARGET.parent / f"{TARGET.name}.json").read_text())
    check(BrokerProcess(tmp_path), TARGET, expected)


@pytest.mark.java
@pytest.mark.timeout(240)
def test_a_fresh_directory(tmp_path: Path) -> None:
    try:
        node, expected = stopped_node(tmp_path / "kafka")
    except KafkaUnavailableError as missing:
        pytest.skip(str(missing))
    check(BrokerProcess(tmp_path / "millstream"), node.log_dir, expected)
