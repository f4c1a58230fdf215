"""Three brokers of an older Millstream are replaced in turn by this one, under a checked load."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker_process import BrokerProcess
from tests.cluster_processes import ClusterProcesses
from tests.system.cluster.watched import Member, Sender, anomalies

from millstream.client import Producer
from millstream.history.checker import History, Outcome

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(500)]

ROOT: Final = Path(__file__).parents[3]
OLDER: Final = "929a6dc"
"""One broker and a cluster of them, before transactions, KIP-848, TLS and rules."""
TOPIC, LEDGER = "numbers", "ledger"
PARTITIONS: Final = 3


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """Return the source of the older Millstream."""
    archive = tmp_path / "older.tar"
    command = ["git", "-C", str(ROOT), "archive", "-o", str(archive), OLDER, "src"]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip(f"this clone has no commit {OLDER}: it needs the whole history")
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path / "older", filter="data")
    source = tmp_path / "older" / "src"
    where = [sys.executable, "-c", "import millstream; print(millstream.__file__)"]
    found = subprocess.check_output(where, env={"PYTHONPATH": str(source)}, text=True)
    assert found.startswith(str(source))
    return source


@pytest.mark.long
def test_brokers_are_upgraded_in_turn_and_nothing_is_lost(tmp_path: Path, older: Path) -> None:
    with ClusterProcesses(
        tmp_path / "cluster",
        settings={"min.insync.replicas": "2"},
        environment={"PYTHONPATH": str(older)},
    ) as cluster:
        goes_through_the_upgrade(cluster, older)


def goes_through_the_upgrade(cluster: ClusterProcesses, older: Path) -> None:
    history = History()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(60)
    cluster.wait_for(TOPIC, {1, 2, 3})
    assert all(runs(each, older) for each in cluster.brokers.values())
    with ExitStack() as stack:
        sender = Sender(cluster.bootstrap, TOPIC, history, "sender", PARTITIONS)
        members = [Member(cluster.bootstrap, TOPIC, history, "readers") for _ in range(2)]
        for each in (sender, *members):
            stack.enter_context(each)

        def goes_on() -> None:
            sender.wait_for_more()
            seen = sum(each.read for each in members)
            members[0].until(lambda: sum(each.read for each in members) > seen + 100, "reads on")

        goes_on()
        for broker in cluster.brokers.values():
            broker.stop()
            broker.environment.clear()
            broker.start()
            assert not runs(broker, older)
            cluster.wait_for(TOPIC, {1, 2, 3})
            goes_on()
        # What the older brokers did not know works once all are upgraded.
        with Producer(bootstrap_servers=cluster.bootstrap, transactional_id="new") as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send(LEDGER, b"in a transaction")
    assert not sender.failures
    assert not anomalies(cluster.bootstrap, TOPIC, history, PARTITIONS)
    assert all(each.outcome is Outcome.ACKNOWLEDGED for each in history.sends.values())
    for broker in cluster.brokers.values():
        assert "Traceback" not in broker.log


def runs(broker: BrokerProcess, source: Path) -> bool:
    """Tell whether a broker's process has the older source before everything else."""
    return psutil.Process(broker.process.pid).environ().get("PYTHONPATH") == str(source)
