"""Brokers and commands with the ways that work on every system (``MILLSTREAM_PORTABLE=1``), and the
commands of a client where only the names of Windows are there.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer
from tests.broker_process import BrokerProcess
from tests.machine_process import MachineProcess
from tests.unit.test_platform import NOT_ON_WINDOWS, WITHOUT
from tests.waiting import wait_until

from millstream.platform import SWITCH

pytestmark = pytest.mark.system

PORTABLE = {SWITCH: "1"}
SECONDS = 60
COUNT = 500
SETTINGS = {"offsets.topic.num.partitions": "2", "group.initial.rebalance.delay.ms": "0"}
COMMAND = "from millstream.cli.main import main\nsys.exit(main(sys.argv[1:]))"


def produce(bootstrap: str, topic: str, values: Sequence[str]) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
    for value in values:
        producer.produce(
            topic, value, on_delivery=lambda error, _: failures.append(error) if error else None
        )
    assert producer.flush(SECONDS) == 0
    assert failures == []


def read(bootstrap: str, topic: str, count: int) -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    values: list[str] = []
    while len(values) < count:
        records = consumer.consume(count - len(values), SECONDS)
        assert records, f"{len(values)} of {count} records came"
        assert not [each.error() for each in records if each.error() is not None]
        values += [(record.value() or b"").decode() for record in records]
    consumer.close()
    return values


def command(
    arguments: Sequence[str], *, given: str = "", script: str = "import sys\n" + COMMAND
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=os.environ | PORTABLE,
        check=False,
    )


def test_a_broker_serves_is_killed_and_goes_on(tmp_path: Path) -> None:
    values = [f"{number} {'x' * 2_000}" for number in range(COUNT)]  # answers of several sends
    with BrokerProcess(tmp_path, SETTINGS, environment=PORTABLE) as broker:
        produce(broker.bootstrap, "t", values)
        assert read(broker.bootstrap, "t", COUNT) == values
        broker.kill()
        broker.start()
        produce(broker.bootstrap, "t", ["after the kill"])
        broker.stop()
        broker.start()
        assert read(broker.bootstrap, "t", COUNT + 1) == [*values, "after the kill"]


def test_brokers_end_with_the_command_that_runs_them(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)  # the keeper's socket lies at a path that is too long
    with MachineProcess(deep, SETTINGS, environment=PORTABLE) as machine:
        produce(machine.bootstrap, "t", ["one", "two"])
        assert sorted(read(machine.bootstrap, "t", 2)) == ["one", "two"]
        children = psutil.Process(machine.process.pid).children(recursive=True)
        assert len(children) >= 3
        machine.kill()
        wait_until(lambda: not any(each.is_running() for each in children), "they have ended")


def test_no_core_is_promised_where_none_can_be_had(tmp_path: Path) -> None:
    done = command(["serve", "--data-dir", str(tmp_path), "--port", "0", "--brokers", "1", "--pin"])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "millstream: serve: --pin: this system cannot pin a process to a core\n"


def test_ctrl_c_ends_produce_after_what_it_has_read(broker: BrokerProcess) -> None:
    topic = "portable-ctrl-c"
    assert command(["topic", "create", topic, "-b", broker.bootstrap]).returncode == 0
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "millstream.cli.main", "produce", topic),
            *("--bootstrap-server", broker.bootstrap),
        ],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | PORTABLE,
    )
    with process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"one\ntwo\nhalf")
        process.stdin.flush()
        assert sorted(read(broker.bootstrap, topic, 2)) == ["one", "two"]
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 130
        assert b"Traceback" not in process.stderr.read()


@pytest.mark.parametrize("has_linux", [True, False])
def test_commands_of_a_client_work(broker: BrokerProcess, has_linux: bool) -> None:
    before = "import sys\n" if has_linux else WITHOUT.format(names=NOT_ON_WINDOWS)
    topic = f"portable-{has_linux}"
    at = ["--bootstrap-server", broker.bootstrap]
    for arguments, given, expected in (
        (["topic", "create", topic, "--partitions", "2", *at], "", None),
        (["produce", topic, *at], "one\ntwo\n", None),
        (["consume", topic, "--exit", *at], "", ["one", "two"]),
        (["topic", "list", *at], "", None),
    ):
        done = command(arguments, given=given, script=before + COMMAND)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
        if expected is not None:
            assert sorted(done.stdout.split()) == expected


def test_a_broker_says_which_systems_it_needs(tmp_path: Path) -> None:
    script = WITHOUT.format(names=NOT_ON_WINDOWS) + COMMAND
    done = command(["serve", "--data-dir", str(tmp_path), "--port", "0"], script=script)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("millstream: serve: a broker needs Linux or macOS"), done.stderr
