"""Share groups of real processes over a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.system.share_story import (
    ten_members_of_which_three_die,
)

from millstream.client import Admin
from millstream.client.core.admin.topics import NewTopic

pytestmark = [pytest.mark.system, pytest.mark.slow]

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
