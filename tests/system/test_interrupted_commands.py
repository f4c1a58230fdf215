"""Commands that Ctrl-C or SIGTERM ends: what they tell, and what they leave behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.broker_process import BrokerProcess

from millstream.cli.main import main
from millstream.client import Admin
from millstream.client.core.admin.offsets import LATEST
from millstream.client.core.admin.topics import NewTopic
from millstream.model.topic import TopicPartition

pytestmark = [pytest.mark.system, pytest.mark.own_interpreter]

_SIGNALS = pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"]
)
_AT_MOST_S = 60


@pytest.fixture
def topic(broker: BrokerProcess, new_topic: Callable[[], str]) -> str:
    name = new_topic()
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(name, 1)]).get_all()
    return name


@contextmanager
def running(broker: BrokerProcess, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command for a block; the block ends it, or it is killed."""
    with subprocess.Popen(
        [sys.executable, "-m", "millstream.cli.main", *words],
        env={**os.environ, "MILLSTREAM_BOOTSTRAP_SERVERS": broker.bootstrap},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as command:
        try:
            yield command
        finally:
            command.kill()


def wait_until_written(broker: BrokerProcess, topic: str, count: int) -> None:
    place = TopicPartition(topic, 0)
    deadline = time.monotonic() + _AT_MOST_S
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        while True:
            end = admin.list_offsets({place: LATEST})[place].get()
            if end is not None and end.offset >= count:
                return
            assert time.monotonic() < deadline
            time.sleep(0.05)


@_SIGNALS
@pytest.mark.parametrize(
    "words",
    [("produce", "--throughput", "500"), ("end-to-end",)],
    ids=["produce", "end-to-end"],
)
def test_a_measurement_that_is_stopped_shows_what_it_has_measured(
    broker: BrokerProcess, topic: str, words: tuple[str, ...], number: signal.Signals, code: int
) -> None:
    kind, *options = words
    with running(broker, "bench", kind, topic, "-n", "10000000", *options, "--json") as bench:
        wait_until_written(broker, topic, 20)
        bench.send_signal(number)
        out, err = bench.communicate(timeout=_AT_MOST_S)
    assert bench.returncode == code
    shown = json.loads(out)
    assert shown["interrupted"] is True
    assert shown["records"] > 0
    assert err.decode() == (
        f"millstream: stopped before the end, after {shown['records']:,} records\n"
    )


@pytest.mark.parametrize(
    ("number", "code", "signals"),
    [(signal.SIGINT, 130, 2), (signal.SIGTERM, 143, 1)],
    ids=["INT-twice", "TERM"],
)
def test_a_check_that_is_stopped_leaves_nothing_behind(
    broker: BrokerProcess, number: signal.Signals, code: int, signals: int
) -> None:
    with running(broker, "check", "history", "--seconds", "60") as check:
        assert check.stderr is not None
        line = check.stderr.readline().decode()
        assert ": faults and load for 60 s" in line, line
        for _ in range(signals):  # as `timeout` sends it, to the command and to its group
            check.send_signal(number)
        _, err = check.communicate(timeout=_AT_MOST_S)
    assert check.returncode == code
    assert err.decode() == "millstream: stopped before the end: nothing is judged\n"
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        assert not [each for each in admin.list_topics() if each.startswith("millstream-history")]
        groups = [each.group for each in admin.list_groups()]
    assert not [each for each in groups if each.startswith("millstream-history")]


def test_a_check_of_a_topic_that_is_there_leaves_the_topic_and_no_group(
    broker: BrokerProcess, topic: str
) -> None:
    words = ["check", "history", "--topic", topic, "--seconds", "1", "-b", broker.bootstrap]
    assert main(words) == 0
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        assert topic in admin.list_topics()
        groups = [each.group for each in admin.list_groups()]
    assert not [each for each in groups if each.startswith(topic)]
