"""What a look-up by time reads, and on whose thread."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest
from tests.slow_files import SlowFiles
from tests.unit.storage.support import (
    NOW_MS,
    append,
    close,
    create_log,
    look_up_time,
    place,
    reopen,
)

from millstream.config.topic import TopicConfig
from millstream.model.errors import CorruptLogError, StorageError
from millstream.records.compression import Codec
from millstream.storage.environment import LogEnvironment
from millstream.storage.files import Buffer, File
from millstream.storage.log import Log, ReadAhead, TimestampLookup, TimestampOffset
from millstream.storage.log_retention import delete_old_segments

CONFIG = TopicConfig({"internal.segment.bytes": "20000", "index.interval.bytes": "1000"})
SEGMENTS = 30


class CountedFiles(SlowFiles):
    """Notes which files are opened, mapped and made."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.mapped: list[str] = []

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File:
        self.opened.append(path)
        return super().open(path, create=create, writable=writable)

    def map(self, path: str) -> Buffer:
        self.mapped.append(path)
        return super().map(path)

    def forget(self) -> None:
        self.opened.clear()
        self.mapped.clear()
        self.stalls.clear()


@pytest.fixture
def files() -> CountedFiles:
    return CountedFiles()


@pytest.fixture
def log(tmp_path: Path, files: CountedFiles) -> Log:
    """Closed segments of batches of 2,000 bytes, a millisecond each, opened anew and cold."""
    environment = LogEnvironment(file_system=files)
    filled = create_log(tmp_path, CONFIG, environment)
    number = 0
    while len(filled.segment_base_offsets) <= SEGMENTS:
        append(filled, b"x" * 2_000, timestamps=[NOW_MS + number])
        number += 1
    close(filled)
    opened = reopen(tmp_path, CONFIG, environment=LogEnvironment(file_system=files))
    files.drop_cache()
    files.forget()
    return opened


def owners_part(log: Log, lookup: TimestampLookup) -> TimestampOffset | ReadAhead | None:
    return log.reader.look_up(lookup, wait_for_disk=False)


def answer(
    log: Log, files: CountedFiles, timestamp: int | None
) -> tuple[TimestampOffset | None, list[str]]:
    """Look up as a broker does; return the answer and what the owner's thread has opened."""
    lookup, by_owner = TimestampLookup(timestamp), list[str]()
    for _ in range(10):
        files.forget()
        found = owners_part(log, lookup)
        by_owner += files.opened + files.mapped
        assert files.stalls == [], "the owner of the log waits for no disk"
        if not isinstance(found, ReadAhead):
            return found, by_owner
        found.run()
    raise AssertionError("it comes to no end")


def offset_of(found: TimestampOffset | None) -> int | None:
    return None if found is None else found.offset


def of_kind(paths: list[str], extension: str) -> int:
    return sum(path.endswith(extension) for path in paths)


def test_the_owner_opens_nothing_of_cold_segments(log: Log, files: CountedFiles) -> None:
    last = log.log_end_offset - 1
    for offset in (last, 0, 100, 200):
        found, by_owner = answer(log, files, NOW_MS + offset)
        assert (offset_of(found), by_owner) == (offset, [])
    assert answer(log, files, NOW_MS + last + 1) == (None, [])


def test_of_segments_that_are_passed_over_one_entry_is_read(log: Log, files: CountedFiles) -> None:
    lookup = TimestampLookup(NOW_MS + log.log_end_offset - 1)
    ahead = owners_part(log, lookup)
    assert isinstance(ahead, ReadAhead)
    ahead.run()
    assert files.mapped == []
    assert of_kind(files.opened, ".timeindex") == len(files.opened) == SEGMENTS + 1
    files.forget()
    ahead = owners_part(log, lookup)
    assert isinstance(ahead, ReadAhead)
    ahead.run()
    assert of_kind(files.mapped, "index") == len(files.mapped) == 2
    assert of_kind(files.opened, "index") == 2
    assert of_kind(files.opened, ".log") == len(files.opened) - 2 == 1


def test_what_was_read_once_is_known(log: Log, files: CountedFiles) -> None:
    end = log.log_end_offset
    answer(log, files, NOW_MS + end)
    files.forget()
    assert look_up_time(log, NOW_MS + end) is None
    assert files.opened + files.mapped == []


def test_it_reads_up_to_the_segment_that_answers(log: Log, files: CountedFiles) -> None:
    files.forget()
    assert offset_of(look_up_time(log, NOW_MS)) == 0
    assert of_kind(list(set(files.opened)), ".timeindex") == 1


def test_a_log_that_was_written_since_it_was_opened_is_known(
    tmp_path: Path, files: CountedFiles
) -> None:
    log = create_log(tmp_path, CONFIG, LogEnvironment(file_system=files))
    for number in range(200):
        append(log, b"x" * 2_000, timestamps=[NOW_MS + number])
    files.forget()
    assert look_up_time(log, NOW_MS + 200) is None
    assert files.opened + files.mapped == []
    found, by_owner = answer(log, files, NOW_MS + 199)
    assert (offset_of(found), by_owner) == (199, [])


def test_a_segment_that_is_loaded_is_searched_at_once(log: Log, files: CountedFiles) -> None:
    answer(log, files, NOW_MS + 50)
    for path in Path(log.directory).iterdir():
        files.keep(str(path), 0, path.stat().st_size)
    found = owners_part(log, TimestampLookup(NOW_MS + 51))
    assert isinstance(found, TimestampOffset)
    assert found.offset == 51


def test_a_long_way_through_a_segment_is_gone_elsewhere(tmp_path: Path) -> None:
    """The time index has no entry after the second batch: what follows is older."""
    config = TopicConfig({"index.interval.bytes": "1000"})
    log = create_log(tmp_path, config)
    append(log, b"x" * 2_000, timestamps=[NOW_MS + 10])
    append(log, b"x" * 2_000, timestamps=[NOW_MS + 20])
    for _ in range(500):
        append(log, b"x" * 2_000, timestamps=[NOW_MS])
    append(log, b"x" * 2_000, timestamps=[NOW_MS + 30])
    lookup = TimestampLookup(NOW_MS + 21)
    ahead = owners_part(log, lookup)
    assert isinstance(ahead, ReadAhead)
    ahead.run()
    found = owners_part(log, lookup)
    assert isinstance(found, TimestampOffset)
    assert found.offset == 502


@pytest.mark.parametrize(
    ("values", "codec", "is_elsewhere"),
    [
        ([b""] * 1_000, Codec.NONE, False),
        ([b""] * 3_000, Codec.NONE, True),
        ([bytes(1_000)] * 100, Codec.GZIP, False),
        ([random.Random(number).randbytes(100) for number in range(100)], Codec.GZIP, True),
    ],
)
def test_a_batch_of_many_records_is_looked_through_elsewhere(
    tmp_path: Path, values: list[bytes], codec: Codec, is_elsewhere: bool
) -> None:
    """Its producer chooses how many records it has, and how much it takes when it is opened."""
    log = create_log(tmp_path, TopicConfig())
    times = [NOW_MS] * (len(values) - 1) + [NOW_MS + 1]
    append(log, *values, timestamps=times, codec=codec)
    lookup = TimestampLookup(NOW_MS + 1)
    found = owners_part(log, lookup)
    assert isinstance(found, ReadAhead) == is_elsewhere
    if isinstance(found, ReadAhead):
        found.run()
        found = owners_part(log, lookup)
    assert isinstance(found, TimestampOffset)
    assert found.offset == len(values) - 1


# The largest timestamp


def test_the_largest_timestamp_is_found_by_what_indexes_claim(
    log: Log, files: CountedFiles
) -> None:
    last = log.log_end_offset - 1
    found, by_owner = answer(log, files, None)
    assert (found, by_owner) == (TimestampOffset(NOW_MS + last, last, 0), [])
    assert answer(log, files, None)[0] == found


def test_claims_that_lie_are_found_out(tmp_path: Path, log: Log, files: CountedFiles) -> None:
    """The time index of the third segment claims more than its log holds."""
    base_offset = log.segment_base_offsets[2]
    path = Path(place(tmp_path).path) / f"{base_offset:020d}.timeindex"
    data = bytearray(path.read_bytes())
    data[-12:-4] = (NOW_MS + 10_000_000).to_bytes(8, "big")
    path.write_bytes(data)
    last = log.log_end_offset - 1
    assert offset_of(answer(log, files, NOW_MS + last)[0]) == last
    assert offset_of(answer(log, files, None)[0]) == last
    assert bytes(data) != path.read_bytes(), "it was made anew"


@pytest.mark.parametrize("damage", ["missing", "cut", "zeros", "empty"])
@pytest.mark.parametrize("extension", [".index", ".timeindex"])
def test_indexes_are_rebuilt_on_another_thread_and_written_by_the_owner(
    tmp_path: Path, log: Log, files: CountedFiles, damage: str, extension: str
) -> None:
    base_offset = log.segment_base_offsets[5]
    path = Path(place(tmp_path).path) / f"{base_offset:020d}{extension}"
    before = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes({"cut": before[:-1], "zeros": before + bytes(1200), "empty": b""}[damage])
    wanted = base_offset + 3
    lookup = TimestampLookup(NOW_MS + wanted)
    while isinstance(found := owners_part(log, lookup), ReadAhead):
        left = path.read_bytes() if path.exists() else None
        found.run()
        assert left == (path.read_bytes() if path.exists() else None), "another thread writes"
    assert offset_of(found) == wanted
    assert path.read_bytes() == before


# What happens meanwhile


def test_segments_that_go_while_they_are_read(log: Log, files: CountedFiles) -> None:
    lookup = TimestampLookup(NOW_MS)
    first = owners_part(log, lookup)
    assert isinstance(first, ReadAhead)
    first.run()
    second = owners_part(log, lookup)
    assert isinstance(second, ReadAhead)
    log.update_config(TopicConfig({"retention.ms": "-1", "retention.bytes": "200000"}))
    assert delete_old_segments(log, now_ms=NOW_MS) > 0
    second.run()
    while isinstance(found := owners_part(log, lookup), ReadAhead):
        found.run()
    assert offset_of(found) == log.log_start_offset > 0


def test_a_log_that_is_cut_while_it_is_read(log: Log) -> None:
    lookup = TimestampLookup(NOW_MS + 100)
    for _ in range(2):
        ahead = owners_part(log, lookup)
        assert isinstance(ahead, ReadAhead)
        ahead.run()
    log.truncation.truncate_to(90, now_ms=NOW_MS)
    append(log, b"x" * 2_000, timestamps=[NOW_MS + 500])
    while isinstance(found := owners_part(log, lookup), ReadAhead):
        found.run()
    assert found == TimestampOffset(NOW_MS + 500, 90, 0)


def test_a_file_that_is_gone_for_good_is_an_error_and_no_endless_look(
    tmp_path: Path, log: Log, files: CountedFiles
) -> None:
    base_offset = log.segment_base_offsets[3]
    (Path(place(tmp_path).path) / f"{base_offset:020d}.log").unlink()
    with pytest.raises(StorageError):
        answer(log, files, NOW_MS + base_offset + 1)


def test_a_log_that_is_damaged_says_so_each_time(
    tmp_path: Path, log: Log, files: CountedFiles
) -> None:
    base_offset = log.segment_base_offsets[3]
    path = Path(place(tmp_path).path) / f"{base_offset:020d}.log"
    data = bytearray(path.read_bytes())
    data[2_200:] = bytes(len(data) - 2_200)
    path.write_bytes(data)
    path.with_suffix(".timeindex").unlink()
    for _ in range(2):
        with pytest.raises(CorruptLogError):
            answer(log, files, NOW_MS + base_offset + 1)


def test_a_disk_that_cannot_be_read_is_a_storage_error(log: Log, files: CountedFiles) -> None:
    ahead = owners_part(log, TimestampLookup(NOW_MS))
    assert isinstance(ahead, ReadAhead)
    opened = files.open

    def fail(path: str, *, create: bool = False, writable: bool = True) -> File:
        raise OSError(errno.EIO, "Input/output error", path)

    files.open = fail  # type: ignore[method-assign]
    with pytest.raises(StorageError, match="Input/output error") as failed:
        ahead.run()
    files.open = opened  # type: ignore[method-assign]
    assert failed.value.directory == log.log_directory
