"""The batches of a read: their boundaries, which to send, which are aborted."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.model.errors import CorruptLogError
from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.records.control import ControlType, EndTransactionMarker, build_marker_batch
from millstream.runtime.share.fetched_records import FetchedRecords, fetched_records
from millstream.storage.aborted_transactions import AbortedTransaction
from millstream.storage.file_slice import FileSlice
from millstream.storage.files import LocalFileSystem


def batch(base_offset: int, count: int, size: int = 10, **options: int | bool) -> bytes:
    builder = BatchBuilder(BatchOptions(base_offset=base_offset, **options))  # type: ignore[arg-type]
    for _ in range(count):
        builder.append(1, None, b"x" * size)
    return builder.build()


def written(directory: Path, *batches: bytes) -> FileSlice:
    path = directory / "00.log"
    before = b"before"
    path.write_bytes(before + b"".join(batches) + b"behind")
    file = LocalFileSystem().open(str(path))
    return FileSlice(file, len(before), sum(map(len, batches)))


def read(records: FileSlice, up_to: int, *aborted: AbortedTransaction) -> FetchedRecords:
    found = fetched_records(records, up_to=up_to, aborted=aborted)
    assert found is not None
    return found


def test_boundaries_of_small_and_large_batches(tmp_path: Path) -> None:
    batches = [batch(0, 3), batch(3, 2, size=9000), batch(10, 1), batch(11, 4, size=5000)]
    found = read(written(tmp_path, *batches), 100)
    assert found.batches == ([0, 3, 10, 11], 14, [])
    assert found.of(0, 14).read() == b"".join(batches)
    assert found.of(3, 4).read() == batches[1]
    assert found.of(4, 10).read() == batches[1] + batches[2]
    assert found.of(5, 9).read() == batches[1], "no batch has them"


def test_no_more_is_looked_at_than_is_needed(tmp_path: Path) -> None:
    records = written(tmp_path, *(batch(10 * each, 10) for each in range(5)))
    assert read(records, 19).batches == ([0, 10], 19, [])
    assert read(records, 20).batches == ([0, 10, 20], 29, [])


def test_a_batch_that_is_cut_off_is_left_out(tmp_path: Path) -> None:
    whole, cut = batch(0, 3), batch(3, 3)
    records = written(tmp_path, whole, cut)
    records.size -= 1
    assert read(records, 100).batches.base_offsets == [0]
    records.size = len(whole) - 1
    assert fetched_records(records, up_to=100) is None
    records.size = 20
    assert fetched_records(records, up_to=100) is None


def test_bytes_that_are_no_batch(tmp_path: Path) -> None:
    with pytest.raises(CorruptLogError):
        read(written(tmp_path, bytes(100)), 100)


def test_a_file_that_was_cut_meanwhile(tmp_path: Path) -> None:
    records = written(tmp_path, batch(0, 3))
    (tmp_path / "00.log").write_bytes(b"before")
    assert fetched_records(records, up_to=100) is None


def test_batches_of_aborted_transactions(tmp_path: Path) -> None:
    transactional = {"producer_id": 5, "producer_epoch": 0, "is_transactional": True}
    abort = build_marker_batch(
        EndTransactionMarker(ControlType.ABORT, 0),
        producer_id=5,
        producer_epoch=0,
        timestamp_ms=1,
        base_offset=7,
    )
    records = written(
        tmp_path,
        batch(0, 2, base_sequence=0, **transactional),
        batch(2, 3),
        batch(5, 2, base_sequence=2, **transactional),
        abort,
        batch(8, 2, base_sequence=4, **transactional),
    )
    found = read(records, 100, AbortedTransaction(5, 0))
    assert found.batches.aborted == [(0, 1), (5, 6)]
