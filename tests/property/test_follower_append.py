"""What a follower appends many at a time against the same batches one by one: equal files."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.storage.support import NOW_MS, close, create_log, values_batch

from millstream.config.topic import TopicConfig
from millstream.model.errors import CorruptLogError, KafkaError
from millstream.records.scan import BatchScanner
from millstream.storage.environment import LogEnvironment
from millstream.storage.log import Log
from millstream.storage.scanner_pool import ScannerPool


class BlindScanner(BatchScanner):
    """Accepts nothing, so that every batch is looked at by itself."""

    def scan(self, view: memoryview, position: int) -> int:
        return 0


class BlindPool(ScannerPool):
    def take(self) -> BatchScanner:
        return BlindScanner(0, max_offset=0, interval_bytes=0, epochs_grow=True)


class PythonPool(ScannerPool):
    def take(self) -> BatchScanner:
        return BatchScanner(0, max_offset=0, interval_bytes=0, epochs_grow=True)


CONFIGS = [
    TopicConfig(settings)
    for settings in (
        {"internal.segment.bytes": "600", "index.interval.bytes": "0"},
        {"internal.segment.bytes": "100000", "index.interval.bytes": "100"},
        {"index.interval.bytes": "0", "segment.index.bytes": "60"},
        {"index.interval.bytes": "0", "segment.ms": "50"},
    )
]
BATCH = st.tuples(
    st.integers(1, 3),  # records
    st.integers(0, 90),  # bytes of each
    st.integers(0, 2),  # offsets left out before it
    st.integers(-30, 30),  # timestamp's step
    st.integers(-1, 2),  # leader epoch
    st.sampled_from([-1, -1, 7, 8]),  # producer
)


def batches_of(drawn: list[tuple[int, int, int, int, int, int]], *, sorted_epochs: bool) -> bytes:
    epochs = [each[4] for each in drawn]
    if sorted_epochs:
        epochs.sort()
    data, offset, timestamp = b"", 0, NOW_MS
    sequences: dict[int, int] = {}
    for (count, size, gap, step, _, producer), epoch in zip(drawn, epochs, strict=True):
        offset += gap
        timestamp += step
        known = {"producer_id": producer, "producer_epoch": 0} if producer >= 0 else {}
        if known:
            known["base_sequence"] = sequences.get(producer, 0)
            sequences[producer] = known["base_sequence"] + count
        batch = values_batch(
            [bytes(size)] * count, timestamps=[timestamp] * count, base_offset=offset, **known
        )
        batch.assign(base_offset=offset, leader_epoch=epoch)
        data += bytes(batch.buffer)
        offset = batch.next_offset
    return data


def outcome(config: TopicConfig, pool: ScannerPool, buffers: list[bytes]) -> object:
    """Append, and return all that can be seen of it: errors, the files, what is known of them."""
    with tempfile.TemporaryDirectory(prefix="millstream-follower-") as directory:
        log = create_log(Path(directory), config, LogEnvironment(scanners=pool))
        left, said = b"", []
        for buffer in buffers:
            try:
                left, said = appended(log, left + buffer), [*said, ""]
            except (CorruptLogError, KafkaError) as error:
                said.append(f"{type(error).__name__} {error}")
                break
        seen = (log.log_end_offset, log.latest_epoch, [*map(str, log.producers.active())])
        close(log)
        files = {
            each.name: each.read_bytes()
            for each in (Path(directory) / "orders-0").iterdir()
            if each.suffix != ".snapshot"
        }
        return said, seen, files


def appended(log: Log, buffer: bytes) -> bytes:
    """Append as a follower does and return the batch that was cut off, which comes again."""
    log.follower_appender.append_as_follower(buffer, now_ms=NOW_MS)
    at = 0
    while at + 12 <= len(buffer):
        end = at + 12 + int.from_bytes(buffer[at + 8 : at + 12], "big")
        if end > len(buffer):
            break
        at = end
    return buffer[at:]


@pytest.mark.parametrize("pool", [ScannerPool, PythonPool])
@settings(max_examples=examples(60), deadline=None)
@given(
    config=st.sampled_from(CONFIGS),
    drawn=st.lists(BATCH, min_size=1, max_size=25),
    cuts=st.lists(st.floats(0, 1), max_size=4),
    flip=st.none() | st.floats(0, 1, exclude_max=True),
    sorted_epochs=st.sampled_from([True, True, True, False]),
)
def test_many_at_a_time_and_one_by_one_are_the_same(
    pool: type[ScannerPool],
    config: TopicConfig,
    drawn: list[tuple[int, int, int, int, int, int]],
    cuts: list[float],
    flip: float | None,
    sorted_epochs: bool,
) -> None:
    data = batches_of(drawn, sorted_epochs=sorted_epochs)
    if flip is not None:
        at = int(flip * len(data))
        data = data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
    places = sorted(int(cut * len(data)) for cut in cuts)
    buffers = [
        data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)
    ]
    assert outcome(config, pool(), buffers) == outcome(config, BlindPool(), buffers)


def test_a_scanner_is_lent_again_and_forgets() -> None:
    pool = ScannerPool()
    scanner = pool.take()
    data = batches_of([(1, 10, 0, 0, 0, 7)], sorted_epochs=True)
    scanner.begin(0, max_offset=100, interval_bytes=0)
    assert scanner.scan(memoryview(data), 0) == len(data)
    assert scanner.epochs
    assert scanner.producer_batches
    pool.give_back(scanner)
    assert pool.take() is scanner
    assert not scanner.epochs
    assert not scanner.producer_batches
