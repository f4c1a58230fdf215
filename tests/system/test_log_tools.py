"""`millstream log` beside a broker that is being written to."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker_process import BrokerProcess

pytestmark = [pytest.mark.system, pytest.mark.slow]

SETTINGS = {"segment.bytes": "1048576", "index.interval.bytes": "1000"}
ROUNDS = 3


def run(*words: str) -> subprocess.CompletedProcess[str]:
    script = Path(sys.executable).with_name("millstream")
    return subprocess.run(
        [str(script), "log", *words], capture_output=True, text=True, timeout=60, check=False
    )


@contextmanager
def written_to(bootstrap: str) -> Iterator[None]:
    """Keep writing to topic ``orders`` until the block ends: segments roll, batches arrive."""
    stopping = threading.Event()

    def write() -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        number = 0
        while not stopping.is_set():
            producer.produce("orders", b"%d " % number * 100, partition=0)
            number += 1
            if number % 100 == 0:
                producer.flush(30)
        producer.flush(30)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        stopping.set()
        writer.join(60)


@pytest.mark.long
def test_nothing_is_disturbed_and_nothing_is_wrong(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("orders", 1, 1, config=dict(SETTINGS))])["orders"].result(30)
        data = str(broker.data_directory)
        with written_to(broker.bootstrap):
            for _ in range(ROUNDS):
                checked = run("verify", data)
                assert checked.returncode == 0, checked.stdout + checked.stderr
                assert "in use by process" in checked.stdout
                for words in (["tree", data], ["explain", f"{data}/orders-0", "--offset", "0"]):
                    done = run(*words)
                    assert done.returncode == 0, done.stdout + done.stderr
        assert len(list(broker.data_directory.glob("orders-0/*.log"))) > 1
        refused = run("migrate", data)
        assert refused.returncode == 1
        assert "in use by process" in refused.stderr
        commit(broker.bootstrap)
        offsets = map(str, broker.data_directory.glob("__consumer_offsets-*/*.log"))
        dumped = run("dump", "--records", "--json", *offsets)
        decoded = [json.loads(line) for line in dumped.stdout.splitlines()]
        keys = [record["key"] for batch in decoded for record in batch["records"]]
        assert {"group": "readers", "topic": "orders", "partition": 0} in keys
        broker.kill()
    # What a killed broker leaves is whole too, for the system still has what it wrote.
    after = run("verify", data)
    assert after.returncode == 0, after.stdout
    assert "in use" not in after.stdout
    with (broker.data_directory / "orders-0" / sorted_logs(broker)[0]).open("r+b") as file:
        file.seek(100)
        file.write(b"damage")
    found = run("verify", data)
    assert found.returncode == 1
    assert "fails its CRC-32C" in found.stdout


def sorted_logs(broker: BrokerProcess) -> list[str]:
    return sorted(path.name for path in broker.data_directory.glob("orders-0/*.log"))


def commit(bootstrap: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    assert consumer.consume(10, 30)
    consumer.commit(asynchronous=False)
    consumer.close()
