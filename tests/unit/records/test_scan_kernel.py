"""The scan in C: that it is there, that it is the scan in Python, and hostile input."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.native.sanitized import run_sanitized
from tests.unit.records.test_scan import log_of, replayed

from millstream.records import kernel, scan_kernel
from millstream.records.batch import BASE_OFFSET_POSITION, HEADER_SIZE, Batch, rewrite_timestamps
from millstream.records.scan import BatchScanner
from millstream.records.scan_kernel import KernelBatchScanner, new_batch_scanner, scan_library

needs_kernel = pytest.mark.skipif(kernel.library() is None, reason=kernel.describe())


def test_it_comes_with_the_kernel() -> None:
    if kernel.library() is None:
        assert scan_library() is None
    else:
        found = scan_library()
        assert found is not None, "build it again: python native/build.py"
        assert found.abi() == scan_kernel.ABI


@needs_kernel
def test_another_version_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    made = new_batch_scanner(0, max_offset=9, interval_bytes=9)
    assert isinstance(made, KernelBatchScanner)
    scan_kernel._load.cache_clear()
    monkeypatch.setattr(scan_kernel, "ABI", scan_kernel.ABI + 1)
    assert scan_library() is None
    assert type(new_batch_scanner(0, max_offset=9, interval_bytes=9)) is BatchScanner
    monkeypatch.undo()
    scan_kernel._load.cache_clear()


def outcome(scan: BatchScanner, data: bytes, pieces: int) -> list[object]:
    """Scan as recovery does, piece by piece, and return all that can be seen afterwards."""
    taken = [0]
    for number in range(1, pieces + 1):
        end = len(data) * number // pieces
        position = sum(taken)
        taken.append(scan.scan(memoryview(data)[position:end], 1000 + position))
    return [
        taken,
        scan.next_offset,
        scan.unindexed_bytes,
        scan.largest_timestamp,
        scan.offset_of_largest,
        scan.latest_epoch,
        scan.index_entries,
        scan.epochs,
    ]


def reseal(data: bytes, place: int, value: int, batches: list[Batch]) -> bytes:
    """Change one byte of a header and make its checksum hold again."""
    at = 0
    for batch in batches:
        if place < at + batch.size:
            changed = bytearray(data[at : at + batch.size])
            changed[(place - at) % HEADER_SIZE] = value
            sealed = Batch(memoryview(changed))
            if len(changed) != sealed.size:
                return data[:at] + bytes(changed) + data[at + batch.size :]
            again = rewrite_timestamps(
                sealed, max_timestamp=sealed.max_timestamp, log_append_time=False
            )
            return data[:at] + bytes(again.buffer) + data[at + batch.size :]
        at += batch.size
    return data


@needs_kernel
@settings(max_examples=examples(150), deadline=None)
@given(
    seed=st.integers(0, 2**20),
    change=st.sampled_from(["no", "reseal", "flip", "cut", "noise"]),
    place=st.floats(0, 1, exclude_max=True),
    value=st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]),
    capacity=st.sampled_from([1, 2, 7, scan_kernel.MAX_CAPACITY]),
    rules=st.tuples(
        st.sampled_from([2**31, 2**63, 30]), st.integers(0, 600), st.sampled_from([0, 25])
    ),
    epochs_grow=st.booleans(),
    pieces=st.integers(1, 4),
)
def test_both_find_the_same(
    seed: int,
    change: str,
    place: float,
    value: int,
    capacity: int,
    rules: tuple[int, int, int],
    epochs_grow: bool,
    pieces: int,
) -> None:
    data, batches = log_of(seed)
    at = int(place * len(data))
    if change == "reseal":
        data = reseal(data, at, value, batches)
    elif change == "flip":
        data = data[:at] + bytes([data[at] ^ (value or 4)]) + data[at + 1 :]
    elif change == "cut":
        data = data[:at]
    elif change == "noise":
        data = data[:at] + random.Random(seed).randbytes(200) + data[at:]
    library = scan_library()
    assert library is not None
    max_offset, interval_bytes, producers_from = rules
    python, native = (
        BatchScanner(
            0,
            max_offset=max_offset,
            interval_bytes=interval_bytes,
            producers_from=producers_from,
            epochs_grow=epochs_grow,
        ),
        KernelBatchScanner(
            library,
            0,
            max_offset=max_offset,
            interval_bytes=interval_bytes,
            producers_from=producers_from,
            epochs_grow=epochs_grow,
            capacity=capacity,
        ),
    )
    assert outcome(native, data, pieces) == outcome(python, data, pieces)
    if change != "reseal":  # a marker that is resealed may say nothing that can be replayed
        assert replayed(native.producer_batches) == replayed(python.producer_batches)
    if capacity > len(batches):
        assert places(native) == places(python)


def places(scan: BatchScanner) -> list[tuple[int, bytes]]:
    return [(batch.base_offset, bytes(batch.buffer)) for batch in scan.producer_batches]


@needs_kernel
def test_the_last_offset_there_is_can_be_held() -> None:
    data = bytearray(log_of(1, count=2)[0])
    first = Batch(memoryview(data))
    last_possible = 2**63 - 1 - first.last_offset_delta
    data[BASE_OFFSET_POSITION:8] = last_possible.to_bytes(8, "big")
    library = scan_library()
    assert library is not None
    python = BatchScanner(0, max_offset=2**63, interval_bytes=1)
    native = KernelBatchScanner(library, 0, max_offset=2**63, interval_bytes=1)
    assert outcome(native, bytes(data), 1) == outcome(python, bytes(data), 1)
    assert native.next_offset == 2**63


@pytest.mark.slow
def test_hostile_batches_stay_inside_their_buffers(tmp_path: Path) -> None:
    run_sanitized(tmp_path, "hostile_scan", 10_000, "scan.c", "crc32c.c")
