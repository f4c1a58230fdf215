"""``millstream txn find-hanging`` and ``abort`` on a transaction that really hangs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests import hanging_transaction as hanging
from tests.broker_process import BrokerProcess

pytestmark = pytest.mark.system

TOPIC = "t"


def txn(broker: BrokerProcess, *words: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "millstream.cli.main", "txn", *words, "-b", broker.bootstrap)
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def found(broker: BrokerProcess, *words: str) -> list[dict[str, object]]:
    done = txn(broker, "find-hanging", "--json", *words)
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, object]] = json.loads(done.stdout)
    return rows


def test_find_and_abort(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, hanging.SETTINGS) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(30)
        hanging.leave_hanging(broker, TOPIC)
        # One that its coordinator knows is beside it, in the other partition.
        known = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "known"})
        known.init_transactions(30)
        known.begin_transaction()
        known.produce(TOPIC, b"known", partition=1)
        assert known.flush(30) == 0

        assert hanging.committed(broker.bootstrap, TOPIC) == [hanging.BEFORE]
        assert found(broker) == []  # Younger than the longest transaction.
        at_once = ("--max-transaction-timeout", "0s")
        (row,) = found(broker, *at_once)
        assert (row["partition"], row["start_offset"]) == (f"{TOPIC}:0", hanging.START_OFFSET)
        assert found(broker, *at_once, f"{TOPIC}:1") == []

        refused = txn(broker, "abort", f"{TOPIC}:1", "--start-offset", "0")
        assert refused.returncode != 0
        assert "known" in refused.stderr
        missing = txn(broker, "abort", f"{TOPIC}:0", "--start-offset", "0")
        assert missing.returncode != 0

        done = txn(broker, "abort", str(row["partition"]), "--start-offset", "1")
        assert done.returncode == 0, done.stderr
        assert found(broker, *at_once) == []
        assert hanging.committed(broker.bootstrap, TOPIC) == [hanging.BEFORE, hanging.AFTER]
        known.commit_transaction(30)
        # The id of the lost coordinator log begins anew.
        again = Producer(
            {"bootstrap.servers": broker.bootstrap, "transactional.id": f"forgotten-{TOPIC}"}
        )
        again.init_transactions(30)
        again.begin_transaction()
        again.produce(TOPIC, b"again", partition=0)
        again.commit_transaction(30)
        assert hanging.committed(broker.bootstrap, TOPIC)[-1] == "again"
