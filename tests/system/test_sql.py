"""SQL over a broker: the page's commands, transactions, and a live topic beside its files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess

import millstream
from millstream.client import Admin, Producer
from millstream.client.core.admin.topics import NewTopic

pytestmark = pytest.mark.system

PAGE = Path(__file__).parents[2] / "docs" / "sql.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_the_commands_of_the_page(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "MILLSTREAM_BOOTSTRAP_SERVERS": broker.bootstrap,
            "DATA": str(broker.data_directory),
        }
        (example,) = blocks("python")
        code = example.replace("localhost:9092", broker.bootstrap)
        for command in [
            *(["bash", "-euo", "pipefail", "-c", block] for block in blocks("sh")),
            [sys.executable, "-W", "error", "-c", code],
        ]:
            done = subprocess.run(
                command,
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=400,
                check=False,
            )
            assert (done.returncode, done.stderr) == (0, ""), command
            if "GROUP BY" in command[-1] and command[0] == "bash":
                assert "200\t1\n404\t1\n" in done.stdout
                assert '{"path":"/x","_offset":1}\n' in done.stdout
                assert "read: 1 records, " in done.stdout
        assert "'status': 404, 'hits': 1" in done.stdout


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
    words = [count, "-b", broker.bootstrap, "--output", "csv", str(file), "-X", "client.id=c"]
    done = subprocess.run(
        [sys.executable, "-m", "millstream.cli.main", "sql", *words],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert file.read_text() == "n\n4\n"
