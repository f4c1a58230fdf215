"""Dead letters of a share group, set up as its page says, on real brokers."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.system.share_story import lag, read_from_the_beginning

from millstream.client import AcknowledgeType, Consumer, ConsumerRecord, Producer, ShareConsumer

pytestmark = [pytest.mark.system, pytest.mark.slow]

PAGE = Path(__file__).parents[2] / "docs" / "share-groups.md"
WAIT_S = 60


def commands_of_the_page() -> Sequence[str]:
    section = PAGE.read_text().split("## Dead letters")[1]
    block = re.search(r"```bash\n(.*?)```", section, re.DOTALL)
    assert block is not None
    return block[1].strip().splitlines()


def run(bootstrap: str, line: str) -> None:
    name, *arguments = shlex.split(line)
    assert name == "millstream"
    subprocess.run(
        [sys.executable, "-m", "millstream.cli.main", *arguments, "-b", bootstrap], check=True
    )


def reject(bootstrap: str, wanted: int) -> None:
    """Reject every record whose value begins with `bad`, and accept the others."""
    with ShareConsumer(
        bootstrap_servers=bootstrap, group_id="work", share_acknowledgement_mode="explicit"
    ) as consumer:
        consumer.subscribe(["orders"])
        seen = 0
        while seen < wanted:
            for record in consumer.poll(1):
                is_bad = (record.value or b"").startswith(b"bad")
                consumer.acknowledge(
                    record, AcknowledgeType.REJECT if is_bad else AcknowledgeType.ACCEPT
                )
                seen += 1
        consumer.commit()


def dead_letters(bootstrap: str, count: int) -> list[ConsumerRecord]:
    with Consumer(
        bootstrap_servers=bootstrap, group_id="letters", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe(["dlq.orders"])
        found: list[ConsumerRecord] = []
        until = time.monotonic() + WAIT_S
        while len(found) < count and time.monotonic() < until:
            found += consumer.poll(1)
    return found


def tell(broker: str) -> None:
    for line in commands_of_the_page():
        run(broker, line)
    run(broker, "millstream topic create orders")
    read_from_the_beginning(broker, "work")


def test_the_page(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        tell(broker.bootstrap)
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            for number in range(10):
                value = b"bad %d" % number if number in (3, 7) else b"good"
                producer.send("orders", value, key=b"k%d" % number)
        reject(broker.bootstrap, 10)
        letters = dead_letters(broker.bootstrap, 2)
        assert [(each.key, each.value) for each in letters] == [
            (b"k3", b"bad 3"),
            (b"k7", b"bad 7"),
        ]
        assert [dict(each.headers)["__dlq.errors.offset"] for each in letters] == [b"3", b"7"]
        until = time.monotonic() + WAIT_S
        while lag(broker.bootstrap, "work") and time.monotonic() < until:
            time.sleep(0.1)
        assert lag(broker.bootstrap, "work") == 0


@pytest.mark.long
def test_a_broker_that_dies_on_the_way(tmp_path: Path) -> None:
    """Nothing is lost; what was on its way may come twice."""
    with BrokerProcess(tmp_path / "broker") as broker:
        tell(broker.bootstrap)
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            for number in range(200):
                producer.send("orders", b"bad %d" % number)
        reject(broker.bootstrap, 200)
        broker.kill()
        broker.start()
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            producer.send("orders", b"good").result()
        reject(broker.bootstrap, 1)  # a consumer comes, so the state is read
        offsets = {
            int(value or b"-1")
            for each in dead_letters(broker.bootstrap, 200)
            for name, value in each.headers
            if name == "__dlq.errors.offset"
        }
        assert offsets == set(range(200))
