"""Apache Kafka 2.8's directory in message formats 0 and 1, converted: Kafka's tool accepts every
file, and a broker of ours serves every record to a stock consumer.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.interop.java.conftest import KafkaTools
from tests.interop.java.test_files import dump
from tests.interop.kafka_cluster import JavaTool, KafkaUnavailableError, kafka_jars
from tests.interop.storage.make_old_format_directory import TOPICS, consume

from millstream.cli.main import main

pytestmark = [pytest.mark.interop, pytest.mark.slow]

SOURCE = Path(__file__).parents[2] / "data" / "kafka-2.8.2"


def migrated(data: Path) -> Path:
    shutil.copytree(SOURCE, data, ignore=shutil.ignore_patterns("expected.json"))
    assert main(["log", "migrate", str(data)]) == 0
    return data


@pytest.mark.java
def test_dump_log_segments_accepts_what_was_converted(tmp_path: Path) -> None:
    try:
        tools = KafkaTools(JavaTool(kafka_jars()))
    except KafkaUnavailableError as error:
        pytest.skip(str(error))
    files = sorted(migrated(tmp_path / "data").glob("*-0/*"))
    dumped = dump(tools, [file for file in files if file.suffix == ".log"], "--deep-iteration")
    assert "magic: 2" in dumped
    assert "magic: 1" not in dumped
    assert "magic: 0" not in dumped
    dump(tools, [file for file in files if file.suffix in (".index", ".timeindex")])


def test_a_broker_serves_what_was_converted(tmp_path: Path) -> None:
    expected = json.loads((SOURCE / "expected.json").read_text())
    broker = BrokerProcess(tmp_path)
    migrated(broker.data_directory)
    with broker:
        for topic in TOPICS:
            # Kafka 2.8 told consumers that records without a timestamp have none at all.
            served = [
                [offset, kind if timestamp >= 0 else 0, max(timestamp, 0), key, value]
                for offset, kind, timestamp, key, value in map(
                    _typed, consume(broker.bootstrap, topic)
                )
            ]
            assert served == expected[topic]


def _typed(record: list[object]) -> tuple[object, int, int, object, object]:
    offset, kind, timestamp, key, value = record
    assert isinstance(kind, int)
    assert isinstance(timestamp, int)
    return offset, kind, timestamp, key, value
