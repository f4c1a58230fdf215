"""Loads that read segment files, beside a broker that deletes and compacts them."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.system.lakehouse.topic_site import TopicSite

from millstream.client import Admin, Producer
from millstream.client.core.admin.topics import NewTopic
from millstream.model.topic import TopicPartition
from millstream.spark.plan import DataLossError

pytestmark = [pytest.mark.system, pytest.mark.slow]

CLEANER = {
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.dedupe.buffer.size": str(8 << 20),
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.segment.delete.delay.ms": "0",
}


def near(site: TopicSite, broker: BrokerProcess, **options: str) -> TopicSite:
    """Return the site with its bytes from the broker's files."""
    source = {**site.settings.source, "logDirs": str(broker.data_directory), **options}
    return site.using(source=source)


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_past_and_tail_from_files(tmp_path: Path, kind: str) -> None:
    with BrokerProcess(tmp_path / "broker", {"log.segment.bytes": "1048576"}) as broker:
        site = TopicSite(broker.bootstrap, "clicks", tmp_path)
        site.create(2)
        loads = near(site.kind(kind), broker)
        site.write(0, [b"%d" % n + bytes(2000) for n in range(2000)])
        loads.load()
        site.write(1, [b"%d" % n for n in range(500)])
        loads.load()
        assert loads.audit().is_clean
        assert loads.audit().rows == 2500


def test_the_past_without_a_broker(tmp_path: Path) -> None:
    """A stopped broker's directory loads whole, and the command line does it too."""
    with BrokerProcess(tmp_path / "broker") as broker:
        site = TopicSite(broker.bootstrap, "clicks", tmp_path)
        site.create(2)
        site.write(0, [b"%d" % n for n in range(300)])
        directory = broker.data_directory
    done = subprocess.run(
        [
            *(sys.executable, "-m", "millstream.cli.main", "load", "clicks"),
            *("--to", f"delta:{tmp_path / 'table'}", "--engine", "local"),
            *("-o", "kafka.bootstrap.servers=", "-o", f"logDirs={directory}"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = site.using(
        source={"logDirs": str(directory), "subscribe": "clicks"},
        table=site.kind("delta").settings.table.__class__("delta", tmp_path / "table"),
    ).audit()
    assert (found.is_clean, found.rows) == (True, 300)


def test_records_deleted_before_a_load_saw_them(tmp_path: Path) -> None:
    settings = {"log.segment.bytes": "1048576", "log.segment.delete.delay.ms": "0"}
    with BrokerProcess(tmp_path / "broker", settings) as broker:
        site = TopicSite(broker.bootstrap, "clicks", tmp_path)
        site.create(1)
        loads = near(site, broker)
        site.write(0, [bytes(4000)] * 200)
        loads.load()
        site.write(0, [bytes(4000)] * 600)
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.delete_records({TopicPartition("clicks", 0): 500}).get_all()
        with pytest.raises(DataLossError, match=r"\[200, 500\) of clicks-0"):
            loads.load()


def test_compaction_while_files_are_read(tmp_path: Path) -> None:
    """Keys are written over and over; what a reader sees has to grow, and end with the newest."""
    with BrokerProcess(tmp_path / "broker", CLEANER) as broker:
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            compact = {"cleanup.policy": "compact", "segment.bytes": "1048576"}
            admin.create_topics([NewTopic("table", 1, configs=compact)]).get_all()
        site = near(TopicSite(broker.bootstrap, "table", tmp_path), broker)
        stop = threading.Event()
        newest: dict[bytes, int] = {}
        writer = threading.Thread(target=_overwrite, args=(broker.bootstrap, stop, newest))
        writer.start()
        try:
            deadline = time.monotonic() + 90
            rounds = cleaned = 0
            while rounds < 6 or cleaned < 3:
                assert time.monotonic() < deadline, broker.log[-2000:]
                each = site.using(app_id=f"round {rounds}", table=_numbered(site, rounds))
                each.load()
                offsets = [row[0] for row in each.rows("offset")]
                assert offsets == sorted(set(offsets))
                rounds += 1
                cleaned = broker.log.count("cleaned table-0")
        finally:
            stop.set()
            writer.join()
        last = site.using(app_id="last", table=_numbered(site, -1))
        last.load()
        found = dict(sorted(last.rows("offset", "key")))
        assert {key: offset for offset, key in found.items()} == newest


def _numbered(site: TopicSite, number: int):  # type: ignore[no-untyped-def]
    name = site.settings.table
    return type(name)(name.kind, name.path.with_name(f"round-{number}"))


def _overwrite(bootstrap: str, stop: threading.Event, newest: dict[bytes, int]) -> None:
    offset = 0
    with Producer(bootstrap_servers=bootstrap) as producer:
        while not stop.is_set():
            for _ in range(20):
                key = b"%d" % (offset % 37)
                producer.send("table", b"%d" % offset + bytes(2000), key, partition=0)
                newest[key] = offset
                offset += 1
            producer.flush()
            time.sleep(0.005)
