"""Share groups of real processes over a real broker, and the examples of their page."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.system.share_story import (
    produce,
    read_from_the_beginning,
    ten_members_of_which_three_die,
)

from millstream.client import Admin
from millstream.client.core.admin.topics import NewTopic

pytestmark = [pytest.mark.system, pytest.mark.slow]

PAGE = Path(__file__).parents[2] / "docs" / "share-groups.md"
SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "3000",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.session.timeout.ms": "3000",
    "group.share.session.timeout.ms": "5000",
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "broker", SETTINGS) as process:
        yield process


@pytest.mark.long
@pytest.mark.timeout(400)
def test_ten_members_of_which_three_die(broker: BrokerProcess, tmp_path: Path) -> None:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic("work", partitions=3)]).get_all()
    ten_members_of_which_three_die(lambda: broker.bootstrap, tmp_path, "g", "work")


@pytest.mark.timeout(400)
def test_the_broker_dies_too(broker: BrokerProcess, tmp_path: Path) -> None:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic("work", partitions=2)]).get_all()

    def restart() -> None:
        broker.kill()
        broker.start()

    ten_members_of_which_three_die(lambda: broker.bootstrap, tmp_path, "g", "work", trouble=restart)


def test_every_example_of_the_page_works(broker: BrokerProcess, tmp_path: Path) -> None:
    examples = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(examples) == 3
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic("orders", partitions=1)]).get_all()
    for group in ("work", "careful", "tasks"):
        read_from_the_beginning(broker.bootstrap, group)
    produce(broker.bootstrap, "orders", 1, 12)
    for example in examples:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", f"BOOTSTRAP = {broker.bootstrap!r}\n{example}"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, example + done.stderr
        assert not done.stderr, example + done.stderr
