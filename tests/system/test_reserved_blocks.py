"""A broker that is killed leaves logs as long as what was written, whatever was reserved."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.system.wire import Wire, create_topic, produce, read_batches

from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.storage import reserved_blocks

pytestmark = pytest.mark.system

TOPIC = "ledger"
BATCHES = 40


def batch_of(number: int) -> bytes:
    builder = BatchBuilder(BatchOptions())
    for index in range(50):
        builder.append(1_700_000_000_000, f"{number}.{index}".encode(), bytes([number]) * 2_000)
    return builder.build()


def test_what_is_reserved_outlives_no_kill_and_changes_nothing_that_is_read(tmp_path: Path) -> None:
    with (tmp_path / "probe").open("wb") as probe:
        if not reserved_blocks._is_ext4(probe.fileno()):
            pytest.skip(f"{tmp_path} is not on ext4")
    broker = BrokerProcess(tmp_path, {"log.flush.policy": "os"})
    batches = [batch_of(number) for number in range(BATCHES)]
    log = broker.data_directory / f"{TOPIC}-0" / f"{0:020d}.log"
    broker.start()
    try:
        with Wire(broker.host, broker.port) as wire:
            create_topic(wire, TOPIC, 1, {})
            for batch in batches:
                assert produce(wire, TOPIC, 0, batch).error_code == 0
        size = sum(map(len, batches))
        assert log.stat().st_size == size
        assert log.stat().st_blocks * 512 > size + 256 * 1024
        broker.kill()
        assert log.stat().st_size == size
        broker.start()
        assert log.stat().st_size == size
        assert log.stat().st_blocks * 512 < size + 64 * 1024
        with Wire(broker.host, broker.port) as wire:
            read = list(read_batches(wire, TOPIC, 0))
            assert [bytes(each.buffer)[21:] for each in read] == [each[21:] for each in batches]
            assert produce(wire, TOPIC, 0, batches[0]).base_offset == 50 * BATCHES
        assert log.stat().st_blocks * 512 > size + 256 * 1024
    finally:
        broker.stop()
    assert log.stat().st_size == size + len(batches[0])
    assert log.stat().st_blocks * 512 < log.stat().st_size + 64 * 1024
