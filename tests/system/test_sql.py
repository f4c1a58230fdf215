"""SQL over a broker: transactions, and a live topic beside its files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess

import millstream
from millstream.client import Admin, Producer
from millstream.client.core.admin.topics import NewTopic

pytestmark = pytest.mark.system


def test_aborted_and_open_transactions_are_no_rows(broker: BrokerProcess, tmp_path: Path) -> None:
    names = ("paid", "refunds")
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(name, 2) for name in names]).get_all()
    settings = {"bootstrap_servers": broker.bootstrap}
    with Producer(settings, transactional_id="sql-1") as producer:
        producer.init_transactions()
        for number, commits in enumerate([True, False, True, False]):
            producer.begin_transaction()
            value = b'{"n": %d}' % number
            for partition in (0, 1):
                for name in names:
                    producer.send(name, value, key=b"k", partition=partition, timestamp_ms=number)
            producer.flush(30)  # an abort would drop what was not sent yet
            producer.commit_transaction() if commits else producer.abort_transaction()
        producer.begin_transaction()
        producer.send("paid", b'{"n": 9}', partition=0).result(30)
        where = {"bootstrap_servers": broker.bootstrap}
        cold = {**where, "log_dir": broker.data_directory}
        for source in (where, cold):
            found = millstream.sql("SELECT n, _key FROM paid ORDER BY ALL", **source)
            assert found["n"].to_pylist() == [0, 0, 2, 2]
            assert set(found["_key"].to_pylist()) == {b"k"}
            assert millstream.sql(
                "SELECT p.n, r._offset FROM paid p JOIN refunds r USING (_partition, n) "
                "WHERE p._offset >= 2 AND _partition = 1 "
                "AND p._timestamp >= make_timestamptz(2000)",
                **source,
            ).to_pylist() == [{"n": 2, "_offset": 4}]
        every = {"settings": {"kafka.isolation.level": "read_uncommitted"}, "format": "json"}
        count = "SELECT count(*) n FROM paid"
        assert millstream.sql(count, **where, **every)["n"].to_pylist() == [9]
        producer.abort_transaction()

    file = tmp_path / "paid.csv"
    words = [count, "-b", broker.bootstrap, "--csv", "--output", str(file), "-X", "client.id=c"]
    done = subprocess.run(
        [sys.executable, "-m", "millstream.cli.main", "sql", *words],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert file.read_text() == "n\n4\n"
