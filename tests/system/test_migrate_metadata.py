"""A cluster of one machine gets a ZooKeeper: with the brokers stopped its metadata is moved."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.machine_process import MachineProcess
from tests.system.test_serve_brokers import SETTINGS, committed, create, known, produce, read, run
from tests.waiting import wait_until
from tests.zookeeper_server import ensemble

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.mark.long
def test_topics_groups_and_transactions_are_there_afterwards(tmp_path: Path) -> None:
    values = [str(number) for number in range(50)]
    with ensemble(tmp_path / "zookeeper") as zookeeper:
        target = f"{zookeeper.connect}/cluster"
        moving = ("cluster", "migrate-metadata", "--dir", str(tmp_path / "data"))
        with MachineProcess(tmp_path, SETTINGS) as machine:
            create(machine.bootstrap, "kept", replicas=2)
            produce(machine.bootstrap, "kept", values, **{"transactional.id": "t"})
            assert sorted(read(machine.bootstrap, "kept", 50, "g")) == sorted(values)
            before = committed(machine.bootstrap, "kept", "g")
            refused = run(*moving, "--zookeeper", target)
            assert refused.returncode == 1
            assert "stop the brokers and their keeper" in refused.stderr
        moved = run(*moving, "--zookeeper", target)
        assert moved.returncode == 0, moved.stderr
        assert re.search(r"\d+ nodes copied to \S+/cluster and compared", moved.stderr)
        again = run("serve", "--data-dir", str(tmp_path / "data"), "--port", "0", "--brokers", "2")
        assert again.returncode == 1
        assert "the metadata was moved to ZooKeeper" in again.stderr
        commands = [
            shlex.split(line) for line in moved.stdout.splitlines() if line.startswith("millstream")
        ]
        brokers = []
        for words in commands:
            options = dict(zip(words[2::2], words[3::2], strict=True))
            overrides = [words[at + 1] for at, word in enumerate(words) if word == "--override"]
            broker = BrokerProcess(
                tmp_path / f"started-{len(brokers)}",
                {**SETTINGS, **dict(each.split("=", 1) for each in overrides)},
            )
            broker.data_directory = Path(options["--data-dir"])
            brokers.append(broker)
        assert len(brokers) == 2
        try:
            for broker in brokers:
                broker.start()

            def together() -> bool:
                seen = [known(each.bootstrap) for each in brokers]
                return all(each is not None and set(each.brokers) == {1, 2} for each in seen)

            wait_until(together, "both know of both")
            bootstrap = ",".join(each.bootstrap for each in brokers)
            assert committed(bootstrap, "kept", "g") == before
            assert sorted(read(bootstrap, "kept", 50, "others")) == sorted(values)
            produce(bootstrap, "kept", ["more"], **{"transactional.id": "t"})
            refused = run(*moving, "--zookeeper", target)
            assert refused.returncode == 1
        finally:
            for broker in reversed(brokers):
                broker.stop()
        (tmp_path / "data" / "millstream-metadata.moved").unlink()
        refused = run(*moving, "--zookeeper", target)
        assert refused.returncode == 1
        assert "the target is not empty" in refused.stderr
