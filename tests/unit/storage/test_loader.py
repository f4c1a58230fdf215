"""Opening a directory: interrupted steps are finished, a crash is recovered from."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.unit.storage.support import (
    NOW_MS,
    ONE_SEGMENT,
    SMALL,
    append,
    append_marker,
    close,
    create_log,
    files_of,
    read_values,
    reopen,
    values_batch,
)

from millstream.config.topic import TopicConfig
from millstream.records.legacy import UnsupportedFormatError
from millstream.storage.log import Log


def filled(root: Path, count: int = 30) -> Log:
    log = create_log(root)
    for n in range(count):
        append(
            log, b"%03d" % n, b"x" * 40, timestamps=[NOW_MS + n] * 2, epoch=n // 10,
            producer_id=1, producer_epoch=0, base_sequence=2 * n,
        )  # fmt: skip
    return log


def log_file(root: Path, base_offset: int) -> Path:
    return root / "orders-0" / f"{base_offset:020d}.log"


def index_bytes(root: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted((root / "orders-0").glob("*index"))}


def test_an_empty_directory_becomes_an_empty_log(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    log = reopen(tmp_path)
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    append(log, b"a")
    assert read_values(log) == [(0, b"a")]


def test_a_clean_log_is_opened_as_it_was(tmp_path: Path) -> None:
    log = filled(tmp_path)
    values, bases = read_values(log), log.segment_base_offsets
    close(log)
    files = files_of(tmp_path)
    log = reopen(tmp_path)
    assert (read_values(log), log.segment_base_offsets) == (values, bases)
    assert log.recovery_point == log.log_end_offset == 60
    assert files_of(tmp_path) == files
    assert log.recovery_report.scanned_bytes == 0


def test_recovery_rebuilds_the_same_files(tmp_path: Path) -> None:
    log = filled(tmp_path)
    values = read_values(log)
    crashed = tmp_path / "crashed"
    shutil.copytree(tmp_path / "orders-0", crashed / "orders-0")
    close(log)
    log = reopen(crashed, clean=False)
    assert read_values(log) == values
    close(log)
    assert index_bytes(crashed) == index_bytes(tmp_path)
    assert files_of(crashed) == files_of(tmp_path)


@pytest.mark.parametrize("garbage", [b"\0", b"\0" * 5000, b"garbage" * 100, b"\xff" * 61])
def test_bytes_after_the_last_batch_are_cut_off(tmp_path: Path, garbage: bytes) -> None:
    log = filled(tmp_path)
    values, last = read_values(log), log.segment_base_offsets[-1]
    with log_file(tmp_path, last).open("ab") as file:
        file.write(garbage)
    log = reopen(tmp_path, clean=False)
    assert read_values(log) == values
    report = log.recovery_report
    assert (report.truncated_bytes, report.truncated_at) == (len(garbage), 60)
    assert report.is_torn_tail
    append(log, b"next")
    assert read_values(log)[-1] == (60, b"next")


def test_a_bad_batch_in_an_older_segment_drops_every_later_one(tmp_path: Path) -> None:
    log = filled(tmp_path)
    second, third = log.segment_base_offsets[1:3]
    values = read_values(log)
    path = log_file(tmp_path, second)
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    log = reopen(tmp_path, clean=False)
    assert log.segment_base_offsets == [0, second]
    assert log.log_end_offset == third - 2
    assert read_values(log) == values[: third - 2]
    assert not log.recovery_report.is_torn_tail
    assert log.end_offset_for_epoch(1) == (1, third - 2)
    left = [name for name in files_of(tmp_path) if name.startswith(f"{third:020d}")]
    assert left == [f"{third:020d}.log.damaged-0"]


def test_valid_batches_after_a_bad_one_are_distinguished_from_a_torn_tail(tmp_path: Path) -> None:
    for name, position, torn in (("middle", 70, False), ("end", -5, True)):
        root = tmp_path / name
        log = create_log(root, ONE_SEGMENT)
        for n in range(10):
            append(log, b"%d" % n * 50)
        path = log_file(root, 0)
        data = bytearray(path.read_bytes())
        data[position] ^= 1
        path.write_bytes(data)
        report = reopen(root, ONE_SEGMENT, clean=False).recovery_report
        assert report.truncated_at is not None
        assert report.is_torn_tail is torn


def test_below_the_recovery_point_nothing_is_read(tmp_path: Path) -> None:
    log = filled(tmp_path)
    bases = log.segment_base_offsets
    point = bases[3]
    data = bytearray(log_file(tmp_path, bases[1]).read_bytes())
    data[-5] ^= 1
    log_file(tmp_path, bases[1]).write_bytes(data)
    log = reopen(tmp_path, clean=False, recovery_point=point + 1)
    assert log.log_end_offset == 60
    assert log.recovery_point == point + 1
    assert log.recovery_report.scanned_bytes == sum(
        log_file(tmp_path, base).stat().st_size for base in bases[3:]
    )


def test_offsets_that_do_not_rise_end_the_log(tmp_path: Path) -> None:
    log = create_log(tmp_path, ONE_SEGMENT)
    append(log, b"a", b"b")
    with log_file(tmp_path, 0).open("ab") as file:
        file.write(bytes(values_batch([b"again"], base_offset=1).buffer))
    log = reopen(tmp_path, ONE_SEGMENT, clean=False)
    assert log.log_end_offset == 2


def test_losing_a_commit_marker_reopens_its_transaction(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    append(log, b"a", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    append_marker(log, 1, commit=True)
    with log_file(tmp_path, 0).open("r+b") as file:
        file.truncate(log_file(tmp_path, 0).stat().st_size - 1)
    log = reopen(tmp_path, clean=False)
    assert (log.log_end_offset, log.last_stable_offset) == (1, 0)


def test_a_cleanly_closed_log_with_a_damaged_tail_is_recovered(tmp_path: Path) -> None:
    log = filled(tmp_path)
    last = log.segment_base_offsets[-1]
    close(log)
    with log_file(tmp_path, last).open("ab") as file:
        file.write(b"\0" * 100)
    log = reopen(tmp_path)
    assert log.log_end_offset == 60
    assert log.recovery_report.truncated_bytes == 100


@pytest.mark.parametrize("recovery_point", [0, 60])
def test_a_log_start_that_its_checkpoint_lacks_is_where_the_epochs_begin(
    tmp_path: Path, recovery_point: int
) -> None:
    """A broker that was killed after records were deleted. The epochs before are forgotten, so
    nobody could tell where a follower's log parts from this one there.
    """
    log = filled(tmp_path)
    log.truncation.increment_log_start_offset(13)
    log = reopen(tmp_path, clean=False, recovery_point=recovery_point)
    assert (log.log_start_offset, log.log_end_offset) == (13, 60)
    assert [log.end_offset_for_epoch(each).end_offset for each in (0, 1)] == [20, 40]


def test_a_log_start_is_where_the_epochs_begin_behind_a_segment_that_was_compacted_away(
    tmp_path: Path,
) -> None:
    """Found by the crash twin: the first segment held nothing any more."""
    log = filled(tmp_path)
    log.truncation.increment_log_start_offset(23)
    close(log)
    bases = log.segment_base_offsets
    assert bases[1] < 23
    log_file(tmp_path, bases[0]).write_bytes(b"")
    log = reopen(tmp_path, clean=False, recovery_point=60)
    assert log.log_start_offset == 23


def test_batches_from_before_there_were_epochs_stay(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    for n in range(3):
        data = values_batch([b"a"], base_offset=n, leader_epoch=-1 if n < 2 else 4).buffer
        log.follower_appender.append_as_follower(bytes(data), now_ms=NOW_MS)
    close(log)
    log = reopen(tmp_path, clean=False)
    assert log.log_start_offset == 0
    assert log.epoch_for_offset(2) == 4


@pytest.mark.parametrize("rebuilt", [False, True])
def test_a_compacted_log_begins_before_its_first_batch(tmp_path: Path, rebuilt: bool) -> None:
    """What its epochs say is where the first batch that is left begins, in a copy or rebuilt."""
    log = create_log(tmp_path)
    for offset in (7, 9):
        data = values_batch([b"a"], base_offset=offset, leader_epoch=3).buffer
        log.follower_appender.append_as_follower(bytes(data), now_ms=NOW_MS)
    if not rebuilt:
        close(log)  # which writes the epochs
    for _ in range(2):
        log = reopen(tmp_path, clean=False)
        assert (log.log_start_offset, log.log_end_offset) == (0, 10)
        assert log.epoch_for_offset(7) == 3


def test_a_log_start_inside_a_segment_comes_from_the_checkpoint(tmp_path: Path) -> None:
    log = filled(tmp_path)
    close(log)
    log = reopen(tmp_path, log_start_offset=7)
    assert log.log_start_offset == 7
    assert log.starts_inside_segment
    assert read_values(log, 7)[0] == (7, b"x" * 40)


def test_a_log_that_ends_before_its_start_restarts_there(tmp_path: Path) -> None:
    log = filled(tmp_path)
    close(log)
    log = reopen(tmp_path, log_start_offset=100)
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)
    assert log.segment_base_offsets == [100]
    assert log.producers.active() == []
    append(log, b"a")
    assert read_values(log, 100) == [(100, b"a")]


def test_leftovers_are_removed(tmp_path: Path) -> None:
    log = filled(tmp_path)
    close(log)
    directory = tmp_path / "orders-0"
    expected = files_of(tmp_path)
    for name in (
        "00000000000000000000.log.deleted",
        "00000000000000000000.timeindex.deleted",
        "00000000000000000007.snapshot.deleted",
        "00000000000000000000.log.cleaned",
        "00000000000000000000.txnindex.cleaned",
        "leader-epoch-checkpoint.tmp",
        "00000000000000000009.index",
        "00000000000000000009.timeindex",
    ):
        (directory / name).write_bytes(b"left over")
    reopen(tmp_path)
    assert files_of(tmp_path) == expected


def swap_in(root: Path, base_offset: int, *offsets: int) -> None:
    """Leave the finished output of a compaction: one segment with these records."""
    data = b"".join(bytes(values_batch([b"kept"], base_offset=offset).buffer) for offset in offsets)
    directory = root / "orders-0"
    for extension, content in ((".log", data), (".index", b""), (".timeindex", b"")):
        (directory / f"{base_offset:020d}{extension}.swap").write_bytes(content)


def test_finished_output_takes_the_place_of_what_it_covers(tmp_path: Path) -> None:
    log = filled(tmp_path)
    bases = log.segment_base_offsets
    close(log)
    swap_in(tmp_path, 0, 3, bases[2] + 1)
    log = reopen(tmp_path)
    assert log.segment_base_offsets == [0, *bases[3:]]
    kept = [offset for offset, value in read_values(log) if value == b"kept"]
    assert kept == [3, bases[2] + 1]
    assert not [name for name in files_of(tmp_path) if "swap" in name]


def test_output_with_an_unfinished_part_is_thrown_away(tmp_path: Path) -> None:
    log = filled(tmp_path)
    bases, values = log.segment_base_offsets, read_values(log)
    close(log)
    swap_in(tmp_path, bases[1], bases[1])
    (tmp_path / "orders-0" / f"{0:020d}.log.cleaned").write_bytes(b"")
    log = reopen(tmp_path)
    assert log.segment_base_offsets == bases
    assert read_values(log) == values
    assert not [name for name in files_of(tmp_path) if "swap" in name or "cleaned" in name]


def test_output_that_was_being_renamed_is_thrown_away(tmp_path: Path) -> None:
    """Its log has the name of finished output, its indexes have not: nothing was replaced yet."""
    log = filled(tmp_path)
    bases, values = log.segment_base_offsets, read_values(log)
    close(log)
    swap_in(tmp_path, bases[1], bases[1])
    directory = tmp_path / "orders-0"
    for extension in (".index", ".timeindex"):
        path = directory / f"{bases[1]:020d}{extension}.swap"
        path.rename(path.with_suffix(".cleaned"))
    log = reopen(tmp_path)
    assert log.segment_base_offsets == bases
    assert read_values(log) == values
    assert not [name for name in files_of(tmp_path) if "swap" in name or "cleaned" in name]


def test_an_interrupted_swap_is_completed(tmp_path: Path) -> None:
    """The old segment's log is renamed already, its indexes are not."""
    log = filled(tmp_path)
    bases = log.segment_base_offsets
    close(log)
    swap_in(tmp_path, 0, 1)
    log_file(tmp_path, 0).rename(f"{log_file(tmp_path, 0)}.deleted")
    log = reopen(tmp_path)
    assert read_values(log)[0] == (1, b"kept")
    assert log.segment_base_offsets == bases


@pytest.mark.parametrize("text", ["", "0\n", "0\n1\n", "1\n0\n", "0\n1\n5 x\n", "0\n2\n0 0\n"])
def test_a_damaged_epoch_file_is_rebuilt(tmp_path: Path, text: str) -> None:
    log = filled(tmp_path)
    close(log)
    path = tmp_path / "orders-0" / "leader-epoch-checkpoint"
    expected = path.read_text()
    path.write_text(text)
    log = reopen(tmp_path)
    assert [log.end_offset_for_epoch(epoch) for epoch in range(3)] == [(0, 20), (1, 40), (2, 60)]
    assert path.read_text() == expected


def test_an_epoch_file_of_a_log_that_was_truncated_fully_is_rebuilt(tmp_path: Path) -> None:
    """Found by the crash twin: segments from before the truncation came back."""
    log = filled(tmp_path)
    close(log)
    (tmp_path / "orders-0" / "leader-epoch-checkpoint").write_text("0\n0\n")
    log = reopen(tmp_path, clean=False, recovery_point=60)
    assert [log.epoch_for_offset(each) for each in (0, 20, 40)] == [0, 1, 2]


def test_a_missing_epoch_file_is_rebuilt_after_a_crash(tmp_path: Path) -> None:
    log = filled(tmp_path)
    point = log.segment_base_offsets[-1]
    (tmp_path / "orders-0" / "leader-epoch-checkpoint").unlink(missing_ok=True)
    log = reopen(tmp_path, clean=False, recovery_point=point)
    assert [log.end_offset_for_epoch(epoch) for epoch in range(3)] == [(0, 20), (1, 40), (2, 60)]


def test_epochs_beyond_the_end_are_forgotten(tmp_path: Path) -> None:
    log = filled(tmp_path)
    close(log)
    path = tmp_path / "orders-0" / "leader-epoch-checkpoint"
    path.write_text(path.read_text().replace("\n3\n", "\n4\n") + "9 500\n")
    log = reopen(tmp_path)
    assert log.latest_epoch == 2


@pytest.mark.parametrize("damage", ["cut", "crc", "version", "gone"])
def test_a_damaged_snapshot_is_dropped_and_the_log_read_instead(
    tmp_path: Path, damage: str
) -> None:
    log = filled(tmp_path)
    before = log.producers.active()
    close(log)
    path = tmp_path / "orders-0" / f"{60:020d}.snapshot"
    data = bytearray(path.read_bytes())
    if damage == "cut":
        path.write_bytes(data[:-1])
    elif damage == "crc":
        data[20] ^= 1
        path.write_bytes(data)
    elif damage == "version":
        data[1] = 9
        path.write_bytes(data)
    else:
        path.unlink()
    log = reopen(tmp_path)
    assert log.producers.active() == before


def test_snapshots_of_gone_segments_are_removed(tmp_path: Path) -> None:
    log = filled(tmp_path)
    close(log)
    directory = tmp_path / "orders-0"
    for offset in (3, 61, 5000):
        shutil.copy(directory / f"{60:020d}.snapshot", directory / f"{offset:020d}.snapshot")
    log = reopen(tmp_path)
    kept = [int(name[:20]) for name in files_of(tmp_path) if name.endswith(".snapshot")]
    assert kept == [*log.segment_base_offsets[1:], 60]


def test_producers_idle_too_long_are_not_taken_over(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    old = NOW_MS - 86_400_000
    append(log, b"a", timestamps=[old], producer_id=1, producer_epoch=0, base_sequence=0)
    append(log, b"a", timestamps=[old + 1], producer_id=2, producer_epoch=0, base_sequence=0)
    close(log)
    assert [p.producer_id for p in reopen(tmp_path).producers.active()] == [2]
    assert [p.producer_id for p in reopen(tmp_path, clean=False).producers.active()] == [2]


def test_messages_of_older_formats_are_not_thrown_away(tmp_path: Path) -> None:
    import struct
    import zlib

    directory = tmp_path / "orders-0"
    directory.mkdir()
    content = struct.pack(">bbq", 1, 0, NOW_MS) + struct.pack(">ii", -1, 40) + b"v" * 40
    message = struct.pack(">qi", 0, len(content) + 4) + struct.pack(">I", zlib.crc32(content))
    path = directory / f"{0:020d}.log"
    path.write_bytes(message + content)
    with pytest.raises(UnsupportedFormatError):
        reopen(tmp_path, clean=False)
    assert path.read_bytes() == message + content


def test_settings_of_these_tests() -> None:
    assert SMALL.roll_bytes == 1000


@pytest.mark.parametrize("text", ["0\n2\n1 0\n6 3\n", "0\n2\n2 0\n6 3\n"])
def test_recovery_believes_the_batches_and_not_a_file_of_another_history(
    tmp_path: Path, text: str
) -> None:
    """The file may be from before the log was cut, or from after batches that were lost."""
    log = create_log(tmp_path)
    for n in range(6):
        append(log, b"%d" % n, epoch=2)
    close(log)
    path = tmp_path / "orders-0" / "leader-epoch-checkpoint"
    path.write_text(text)
    log = reopen(tmp_path, clean=False)
    assert [log.epoch_for_offset(n) for n in range(6)] == [2] * 6
    assert path.read_text() == "0\n1\n2 0\n"


def test_recovery_believes_the_file_where_an_epochs_first_batches_were_compacted(
    tmp_path: Path,
) -> None:
    """Its end in the epoch before would move up, and followers would keep what is not there."""
    config = TopicConfig({"cleanup.policy": "compact"})
    log = create_log(tmp_path, config)
    append(log, b"a", epoch=1)
    log.appender.skip_to(5, now_ms=NOW_MS)
    append(log, b"b", epoch=2)
    close(log)
    path = tmp_path / "orders-0" / "leader-epoch-checkpoint"
    path.write_text("0\n2\n1 0\n2 3\n")
    log = reopen(tmp_path, config, clean=False)
    assert log.end_offset_for_epoch(1).end_offset == 3


def follow(log: Log, offset: int) -> None:
    """Append one batch that begins at ``offset``, as a leader has sent it."""
    batch = values_batch([b"%d" % offset * 30])
    batch.assign(base_offset=offset, leader_epoch=0)
    log.follower_appender.append_as_follower(bytes(batch.buffer), now_ms=NOW_MS)


def test_the_gaps_of_a_leader_that_was_compacted_once_end_no_log(tmp_path: Path) -> None:
    """A replica that was copied from one, or moved, has not been compacted itself."""
    log = create_log(tmp_path)
    for offset in range(0, 100, 5):
        follow(log, offset)
    assert len(log.segment_base_offsets) > 2
    kept = read_values(log)
    log = reopen(tmp_path, clean=False)
    assert read_values(log) == kept
    assert log.recovery_report.truncated_at is None


def test_a_segment_begins_no_further_before_its_first_batch_than_its_index_reaches(
    tmp_path: Path,
) -> None:
    log = create_log(tmp_path)
    follow(log, 0)
    follow(log, 2**31 + 7)
    assert log.segment_base_offsets == [0, 2**31 + 7]
    assert [offset for offset, _ in read_values(log)] == [0, 2**31 + 7]
