"""A damaged transaction index is rebuilt from the log, off the owner's thread."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.slow_files import SlowFiles
from tests.unit.storage.support import NOW_MS, append, append_marker, close, create_log, reopen

from millstream.model.errors import ErrorCode, KafkaError
from millstream.storage.environment import LogEnvironment
from millstream.storage.files import File
from millstream.storage.log import AbortedTransaction, Log, LogRead

PRODUCERS = 3


def filled(root: Path, environment: LogEnvironment | None = None) -> Log:
    """Several segments of transactions of three producers, open across segments; two of three are
    aborted.
    """
    log = create_log(root, environment=environment)
    for number in range(24):
        for producer in range(1, PRODUCERS + 1):
            append(
                log, b"t" * 40, producer_id=producer, producer_epoch=0, base_sequence=number,
                is_transactional=True, commit=False,
            )  # fmt: skip
            if (number + producer) % PRODUCERS == 0:
                append_marker(log, producer, commit=number % 3 == 0)
    for producer in range(1, PRODUCERS + 1):
        append_marker(log, producer, commit=False)
    log.offsets.update_high_watermark(log.log_end_offset)
    assert len(log.segment_base_offsets) > 5
    return log


def indexes(root: Path) -> list[Path]:
    """The transaction indexes with entries, but for the active segment's."""
    active = max((root / "orders-0").glob("*.log")).stem
    found = [path for path in (root / "orders-0").glob("*.txnindex") if path.stem != active]
    return sorted(path for path in found if path.stat().st_size > 34)


def ask(log: Log, offset: int, *, wait_for_disk: bool = False) -> LogRead:
    return log.reader.read(
        offset,
        max_bytes=300,
        upper_bound_offset=log.last_stable_offset,
        min_one_batch=True,
        wait_for_disk=wait_for_disk,
        with_aborted=True,
    )


def all_aborted(log: Log) -> list[list[AbortedTransaction]]:
    """Ask at each offset as a fetch does."""
    found = []
    for offset in range(log.log_end_offset):
        while (read := ask(log, offset)).cold is not None:
            read.cold.run()
        found.append(read.aborted)
    return found


def cut(data: bytes) -> bytes:
    return data[:-5]


def cut_to_half_an_entry(data: bytes) -> bytes:
    return data[:17]


def disorder(data: bytes) -> bytes:
    return data[34:68] + data[:34] + data[68:]


def version(data: bytes) -> bytes:
    return b"\x07" + data[1:]


DAMAGES = [cut, cut_to_half_an_entry, disorder, version]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("snapshots", [True, False])
def test_every_answer_is_as_before(tmp_path: Path, damage: object, snapshots: bool) -> None:
    log = filled(tmp_path)
    expected = all_aborted(log)
    assert any(expected)
    close(log)
    log = reopen(tmp_path)
    if not snapshots:
        for path in (tmp_path / "orders-0").glob("*.snapshot"):
            path.unlink()
    before = {path: path.read_bytes() for path in indexes(tmp_path)}
    assert len(before) >= 3
    for path, data in before.items():
        path.write_bytes(damage(data))  # type: ignore[operator]
    assert all_aborted(log) == expected
    assert {path: path.read_bytes() for path in before} == before


def test_the_owner_reads_nothing_of_the_log_for_it(tmp_path: Path) -> None:
    files = SlowFiles()
    log = filled(tmp_path)
    close(log)
    log = reopen(tmp_path, environment=LogEnvironment(file_system=files))
    path = indexes(tmp_path)[1]
    path.write_bytes(cut(path.read_bytes()))
    offset = int(path.stem)
    read = ask(log, offset)
    files.drop_cache()
    assert read.cold is not None
    assert (read.records, read.aborted) == (None, [])
    assert files.stalls == []
    read.cold.run()
    assert files.stalls
    for each in (tmp_path / "orders-0").iterdir():
        files.keep(str(each), 0, each.stat().st_size)
    files.stalls.clear()
    assert ask(log, offset).aborted
    assert files.stalls == []


def test_two_readers_share_the_work(tmp_path: Path) -> None:
    log = filled(tmp_path)
    close(log)
    log = reopen(tmp_path)
    path = indexes(tmp_path)[1]
    path.write_bytes(cut(path.read_bytes()))
    first, second = ask(log, int(path.stem)), ask(log, int(path.stem))
    assert first.cold is not None
    assert second.cold is not None
    assert first.cold.preparations == second.cold.preparations


def test_a_log_that_is_damaged_too_is_an_error_of_its_own(tmp_path: Path) -> None:
    log = filled(tmp_path)
    close(log)
    log = reopen(tmp_path)
    path = indexes(tmp_path)[1]
    path.write_bytes(cut(path.read_bytes()))
    data = path.with_suffix(".log").read_bytes()
    path.with_suffix(".log").write_bytes(data[:400] + bytes(110) + data[510:])
    offset = int(path.stem)
    cold = ask(log, offset).cold
    assert cold is not None
    cold.run()
    for _ in range(2):
        with pytest.raises(KafkaError) as refused:
            ask(log, offset)
        assert refused.value.error is ErrorCode.CORRUPT_MESSAGE


def test_an_active_segment_whose_index_is_damaged_is_recovered(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    append(log, b"t", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    append_marker(log, 1, commit=False)
    log.offsets.update_high_watermark(log.log_end_offset)
    expected = all_aborted(log)
    close(log)
    path = tmp_path / "orders-0" / f"{0:020d}.txnindex"
    before = path.read_bytes()
    path.write_bytes(cut(before))
    log = reopen(tmp_path)
    assert path.read_bytes() == before
    assert all_aborted(log) == expected


def cut_back(root: Path, damage: bool) -> list[list[AbortedTransaction]]:
    """Cut a log inside its second segment with aborted transactions, which is the active one then,
    and abort another before anybody asks.
    """
    close(filled(root))
    log = reopen(root)
    path = indexes(root)[1]
    offset = int(path.stem) + 5
    if damage:
        path.write_bytes(cut(path.read_bytes()))
    log.truncation.truncate_to(offset, now_ms=NOW_MS)
    append(log, b"new", producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)
    for producer in (1, 2, 3, 9):
        append_marker(log, producer, commit=False)
    log.offsets.update_high_watermark(log.log_end_offset)
    return all_aborted(log)


def test_a_log_that_is_cut_back_to_a_damaged_index(tmp_path: Path) -> None:
    expected = cut_back(tmp_path / "sound", damage=False)
    assert AbortedTransaction(9, len(expected) - 5) in expected[-1]
    assert cut_back(tmp_path / "damaged", damage=True) == expected


def test_a_disk_without_room_changes_no_answer(tmp_path: Path) -> None:
    class FullFiles(SlowFiles):
        def open(self, path: str, *, create: bool = False, writable: bool = True) -> File:
            if create and path.endswith(".txnindex"):
                raise OSError(errno.ENOSPC, "No space left on device", path)
            return super().open(path, create=create, writable=writable)

    log = filled(tmp_path)
    expected = all_aborted(log)
    close(log)
    log = reopen(tmp_path, environment=LogEnvironment(file_system=FullFiles()))
    path = indexes(tmp_path)[0]
    damaged = cut(path.read_bytes())
    path.write_bytes(damaged)
    assert all_aborted(log) == expected
    assert path.read_bytes() == damaged
