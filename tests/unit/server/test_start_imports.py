"""What a broker loads until it has acknowledged a first record: its start and its idle memory
depend on it.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

from millstream.client import Producer

SERVE = """
import sys
from millstream.cli.serve import serve
code = serve(sys.argv[1:])
print(*sys.modules)
sys.exit(code)
"""

NEEDED_BY_FEW = {
    # followers, and connections to other brokers
    "millstream.client",
    "millstream.net.channel",
    "millstream.replication.follower",
    "millstream.runtime.broker_channels",
    "millstream.runtime.replicas.replica_fetcher",
    # authentication, authorization, quotas
    "cryptography",
    "millstream.handlers.access_rules",
    "millstream.net.peer_authentication",
    "millstream.security.authorizer",
    "millstream.security.delegation_tokens",
    "millstream.security.quotas",
    "millstream.security.sasl",
    # coordinators
    "millstream.coordinator.group.group",
    "millstream.coordinator.transaction",
    # compaction, moves between disks, directories of Apache Kafka
    "millstream.runtime.logs.replica_mover",
    "millstream.storage.cleaner",
    "millstream.storage.kafka_metadata",
    # metrics, the console, the command line
    "millstream.console",
    "millstream.server.metrics.monitor",
    "prometheus_client",
    "rich",
    "typer",
    # libraries that bring much with them
    "argparse",
    "cramjam",
    "lzma",
    "numpy",
    "platform",
    "pyarrow",
    "shutil",
    "uuid",
}
"""Modules of what most brokers never do, or do long after their start."""


def test_a_first_record_loads_nothing_of_what_few_brokers_do(tmp_path: Path) -> None:
    where = ["--data-dir", str(tmp_path / "data"), "--host", "127.0.0.1", "--port", "0"]
    broker = subprocess.Popen(
        [sys.executable, "-c", SERVE, *where], stdout=subprocess.PIPE, text=True
    )
    with broker:
        try:
            assert broker.stdout is not None
            listening = re.search(r"listening on (\S+),", broker.stdout.readline())
            assert listening is not None
            with Producer(bootstrap_servers=listening[1]) as producer:
                assert producer.send("first", value=b"record").result(timeout=30).offset == 0
        finally:
            broker.send_signal(signal.SIGTERM)
        output, _ = broker.communicate(timeout=30)
    assert broker.returncode == 0
    assert sorted(NEEDED_BY_FEW.intersection(output.split())) == []
