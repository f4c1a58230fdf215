"""`storage.verify` finds every kind of damage, and none where there is none."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.storage.support import (
    NOW_MS,
    SMALL,
    append,
    append_marker,
    close,
    create_log,
    place,
)

from millstream.model.topic import TopicPartition
from millstream.records.batch import CRC_POSITION, Batch
from millstream.records.builder import BatchOptions, encode_batch
from millstream.records.crc32c import checksum
from millstream.records.record import Record
from millstream.storage.checkpoint import format_lines, format_offsets
from millstream.storage.directory import PartitionDirectory, parse_directory_name
from millstream.storage.files import LocalFileSystem
from millstream.storage.log import Log
from millstream.storage.verify.log_directory import verify_directory_files
from millstream.storage.verify.partition import (
    PartitionReport,
    VerifyOptions,
    verify_partition,
)
from millstream.storage.verify.problem import Problem

KAFKA = Path(__file__).parents[2] / "data" / "kafka-4.3.0"
FILES = LocalFileSystem()


def fill(log: Log) -> None:
    """Several segments: two epochs, two producers, transactions of both ends, one left open."""
    sequences = {1: 0, 2: 0}
    for n in range(60):
        append(log, b"v%d" % n * 3, timestamps=[NOW_MS + n * 10], epoch=n // 30)
        producer = n % 3
        if producer:
            append(
                log, b"p%d" % n, timestamps=[NOW_MS + n * 10 - 5], epoch=n // 30,
                producer_id=producer, producer_epoch=0, base_sequence=sequences[producer],
                is_transactional=producer == 1,
            )  # fmt: skip
            sequences[producer] += 1
            if producer == 1 and n < 50:
                append_marker(log, 1, commit=n % 2 == 0)
                log.offsets.update_high_watermark(log.log_end_offset)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    log = create_log(tmp_path, SMALL)
    fill(log)
    assert len(log.segment_base_offsets) > 5
    close(log)
    return tmp_path / "orders-0"


def report(directory: Path, *, live: bool = False, records: bool = True) -> PartitionReport:
    options = VerifyOptions(is_live=live, with_records=records)
    return verify_partition(FILES, place(directory.parent), options)


def problems(directory: Path, *, live: bool = False, records: bool = True) -> list[Problem]:
    return report(directory, live=live, records=records).problems


def only(found: list[Problem]) -> Problem:
    assert len(found) == 1, found
    return found[0]


def middle(directory: Path, extension: str) -> Path:
    """Return a file of a segment that has neighbours on both sides and that is not empty."""
    paths = [path for path in sorted(directory.glob(f"*{extension}"))[1:-1] if path.stat().st_size]
    return paths[len(paths) // 2]


def change(path: Path, edit: Callable[[bytearray], object]) -> None:
    data = bytearray(path.read_bytes())
    edit(data)
    path.write_bytes(data)


def test_a_log_of_ours_has_no_problems(directory: Path) -> None:
    found = report(directory)
    assert found.problems == []
    assert found.segments == len(list(directory.glob("*.log")))
    assert found.bytes == sum(path.stat().st_size for path in directory.glob("*.log"))
    assert found.log_end_offset > 90


def test_an_open_log_has_no_problems(tmp_path: Path) -> None:
    log = create_log(tmp_path, SMALL)
    fill(log)
    assert problems(tmp_path / "orders-0") == []
    assert problems(tmp_path / "orders-0", live=True) == []


def test_what_apache_kafka_wrote_has_no_problems() -> None:
    reports = {}
    for path in KAFKA.glob("*-0"):
        named = parse_directory_name(path.name)
        assert named is not None
        where = PartitionDirectory(str(KAFKA), path.name, named[0])
        reports[named[0]] = verify_partition(FILES, where, VerifyOptions(with_records=True))
        assert reports[named[0]].problems == []
    assert len(reports) == 4
    assert list(verify_directory_files(FILES, str(KAFKA), reports, is_live=False)) == []


def test_a_wrong_crc(directory: Path) -> None:
    path = middle(directory, ".log")
    batch = Batch(memoryview(path.read_bytes()))
    change(path, lambda data: data.__setitem__(batch.size - 1, data[batch.size - 1] ^ 1))
    first = problems(directory)[0]
    assert (first.path, first.position) == (str(path), 0)
    assert f"offset {batch.base_offset} " in first.what
    assert "fails its CRC-32C" in first.what
    assert f"the log ends at offset {batch.base_offset}" in first.broker


def test_offsets_that_go_back(directory: Path) -> None:
    path = middle(directory, ".log")
    first = Batch(memoryview(path.read_bytes())).base_offset
    change(path, lambda data: struct.pack_into(">q", data, 0, first - 1))
    assert any(
        problem.position == 0 and f"where {first} is next" in problem.what
        for problem in problems(directory)
    )


def test_bytes_that_are_no_batch(directory: Path) -> None:
    path = middle(directory, ".log")
    size = Batch(memoryview(path.read_bytes())).size
    change(path, lambda data: struct.pack_into(">i", data, size + 8, -5))
    found = problems(directory)[0]
    assert (found.path, found.position) == (str(path), size)
    assert "the log ends" in found.broker


@pytest.mark.parametrize("tail", [b"", bytes(300)])
def test_a_torn_tail(directory: Path, tail: bytes) -> None:
    path = sorted(directory.glob("*.log"))[-1]
    whole = path.stat().st_size
    change(path, lambda data: data.extend(tail or data[:70]))
    if not tail:
        path.write_bytes(path.read_bytes()[: whole + 69])
    found = only(problems(directory))
    assert (found.path, found.position) == (str(path), whole)
    assert found.broker == "a broker cuts it off at its next start"
    assert problems(directory, live=True) == []


def test_a_cut_in_an_older_segment_is_no_torn_tail(directory: Path) -> None:
    path = middle(directory, ".log")
    path.write_bytes(path.read_bytes()[:-3])
    assert any("the log ends at offset" in problem.broker for problem in problems(directory))


@pytest.mark.parametrize("extension", [".index", ".timeindex"])
def test_an_index_that_is_gone(directory: Path, extension: str) -> None:
    path = middle(directory, extension)
    path.unlink()
    found = only(problems(directory))
    assert (found.path, found.what) == (str(path), "there is no such file")


@pytest.mark.parametrize("extension", [".index", ".timeindex", ".txnindex"])
def test_an_index_without_a_log(directory: Path, extension: str) -> None:
    path = directory / f"{99:020d}{extension}"
    path.write_bytes(b"")
    assert only(problems(directory)).what == "an index without a log"


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (lambda data: struct.pack_into(">i", data, 4, 61), "where no batch begins"),
        (lambda data: struct.pack_into(">i", data, 4, 1 << 20), "beyond the log's last batch"),
        (lambda data: struct.pack_into(">i", data, 0, 0), "leads to a batch that ends at"),
        (lambda data: data.extend(data[:8]), "does not follow the entry before"),
        (lambda data: data.extend(b"123"), "3 bytes after the last whole entry"),
        (lambda data: data.extend(bytes(80)), "80 zero bytes"),
    ],
)
def test_wrong_entries_of_an_offset_index(
    directory: Path, edit: Callable[[bytearray], object], complaint: str
) -> None:
    path = middle(directory, ".index")
    change(path, edit)
    found = problems(directory)
    assert any(problem.path == str(path) and complaint in problem.what for problem in found)


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (lambda data: struct.pack_into(">q", data, 0, NOW_MS), "where the largest timestamp"),
        (lambda data: struct.pack_into(">i", data, 8, 1 << 20), "beyond the log's last batch"),
        (lambda data: data.extend(data[:12]), "does not follow the entry before"),
        (lambda data: data.__delitem__(slice(len(data) - 12, None)), "has no entry"),
        (lambda data: struct.pack_into(">i", data, 8, -1), "before the segment"),
        (lambda data: data.extend(bytes(24)), "24 zero bytes"),
    ],
)
def test_wrong_entries_of_a_time_index(
    directory: Path, edit: Callable[[bytearray], object], complaint: str
) -> None:
    path = middle(directory, ".timeindex")
    change(path, edit)
    found = problems(directory)
    assert any(problem.path == str(path) and complaint in problem.what for problem in found)


def test_zeros_behind_the_entries_of_the_active_segment_are_no_problem(directory: Path) -> None:
    for extension in (".index", ".timeindex"):
        change(sorted(directory.glob(f"*{extension}"))[-1], lambda data: data.extend(bytes(240)))
    assert problems(directory) == []


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (lambda data: struct.pack_into(">q", data, 18, 3), "no abort marker of that producer"),
        (lambda data: struct.pack_into(">q", data, 2, 9), "no abort marker of that producer"),
        (lambda data: struct.pack_into(">q", data, 10, 2), "which begins at"),
        (lambda data: data.clear(), "has no entry"),
        (lambda data: data.extend(data[:34]), "out of order"),
        (lambda data: data.extend(b"1"), "1 bytes too many"),
    ],
)
def test_wrong_entries_of_a_transaction_index(
    directory: Path, edit: Callable[[bytearray], object], complaint: str
) -> None:
    path = middle(directory, ".txnindex")
    change(path, edit)
    found = problems(directory)
    assert {problem.path for problem in found} == {str(path)}
    assert any(complaint in problem.what for problem in found)


def test_epochs_that_are_not_those_of_the_log(directory: Path) -> None:
    path = directory / "leader-epoch-checkpoint"
    path.write_text(format_lines(["0 0"]))
    found = only(problems(directory))
    assert found.path == str(path)
    assert "leader epoch 1, here it is 0" in found.what
    path.write_text("0\n2\n0 0\n")
    assert "1 lines where 2 are announced" in only(problems(directory)).what
    path.unlink()
    assert problems(directory) == []


def test_a_damaged_snapshot(directory: Path) -> None:
    path = middle(directory, ".snapshot")
    change(path, lambda data: data.__setitem__(-1, data[-1] ^ 1))
    found = only(problems(directory))
    assert (found.path, found.what) == (str(path), "its CRC-32C is wrong")


def test_a_snapshot_that_is_not_the_logs(directory: Path) -> None:
    path = sorted(directory.glob("*.snapshot"))[-1]

    def edit(data: bytearray) -> None:
        struct.pack_into(">i", data, 10 + 10, 1234)  # the last sequence of the first producer
        struct.pack_into(">I", data, 2, checksum(memoryview(data)[6:]))

    change(path, edit)
    found = only(problems(directory))
    assert (found.path, found.position) == (str(path), 10)
    assert "(0, 1234," in found.what
    shutil.copy(path, directory / f"{99_999:020d}.snapshot")
    assert any("holds up to offset 99999" in problem.what for problem in problems(directory))


def test_a_batch_with_a_wrong_record_count(directory: Path) -> None:
    path = sorted(directory.glob("*.log"))[-1]
    base_offset = report(directory).log_end_offset
    data = bytearray(
        encode_batch(
            [Record(0, NOW_MS + 10**6, None, b"x")],
            BatchOptions(base_offset=base_offset, leader_epoch=1),
        )
    )
    struct.pack_into(">i", data, 57, 2)  # the count
    struct.pack_into(">I", data, CRC_POSITION, checksum(memoryview(data)[21:]))
    position = path.stat().st_size
    change(path, lambda log: log.extend(data))
    found = only(problems(directory))
    assert (found.path, found.position) == (str(path), position)
    assert "does not hold its 2 records" in found.what
    assert problems(directory, records=False) == []


def test_partition_metadata_without_an_id(directory: Path) -> None:
    (directory / "partition.metadata").write_text("version: 0\n")
    assert only(problems(directory)).what == "it holds no topic id"


def test_checkpoints_that_go_beyond_the_log(tmp_path: Path) -> None:
    where = TopicPartition("orders", 0)
    reports = {where: PartitionReport(segments=1, log_end_offset=10)}

    def found(*, is_live: bool = False) -> list[Problem]:
        return list(verify_directory_files(FILES, str(tmp_path), reports, is_live=is_live))

    path = tmp_path / "replication-offset-checkpoint"
    path.write_text(format_offsets({TopicPartition("other", 0): 99, where: 10}))
    assert found() == []
    path.write_text(format_offsets({TopicPartition("other", 0): 99, where: 11}))
    assert (only(found()).position, only(found()).path) == (4, str(path))
    assert found(is_live=True) == []
    path.write_text("1\n0\n")
    assert "version '1'" in only(found(is_live=True)).what
    path.unlink()
    (tmp_path / "meta.properties").write_text("version=7\n")
    assert only(found()).broker == "a broker refuses to start"
    (tmp_path / "meta.properties").unlink()
    marker = tmp_path / ".kafka_cleanshutdown"
    marker.write_bytes(b"")
    assert found() == []
    marker.write_bytes(b"{")
    assert only(found()).what == "it is not JSON"


def test_a_log_in_an_older_format_is_one_problem(tmp_path: Path) -> None:
    source = KAFKA.parent / "kafka-2.8.2" / "magic1-0"
    shutil.copytree(source, tmp_path / "orders-0")
    found = report(tmp_path / "orders-0")
    assert found.is_legacy
    assert "format version 1 at offset 0" in only(found.problems).what
