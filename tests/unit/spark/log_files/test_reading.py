"""Segment files that come, go and change while they are read."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from millstream.model.topic import TopicPartition
from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.spark.kafka_settings import parse_kafka_settings
from millstream.spark.log_files import reading
from millstream.spark.log_files.splitting import split_by_bytes
from millstream.spark.plan import DataLossError
from millstream.spark.ranges import OffsetRange
from millstream.spark.reader import ReadRules, read_range
from millstream.storage.offset_index import OffsetIndex

PLACE = TopicPartition("t", 0)
SCHEMA = pa.schema([("offset", pa.int64()), ("value", pa.binary())])


class Log:
    """A partition's directory, written by hand."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.directory = root / "t-0"
        self.directory.mkdir()

    def path(self, base: int, extension: str = "log") -> Path:
        return self.directory / f"{base:020}.{extension}"

    def segment(self, base: int, *offsets: int, index: bool = True) -> None:
        """Write a segment with one record per batch, and every batch but the first indexed."""
        data, entries = b"", b""
        for offset in offsets:
            builder = BatchBuilder(BatchOptions(base_offset=offset))
            builder.append(0, None, b"%d" % offset)
            if data:
                entries += OffsetIndex.entry.pack(offset - base, len(data))
            data += builder.build()
        self.path(base).write_bytes(data)
        if index:
            self.path(base, "index").write_bytes(entries + bytes(80))

    def read(
        self, start: int, end: int, *, lenient: bool = False, broker: str = ""
    ) -> Iterator[int]:
        rules = ReadRules(
            parse_kafka_settings({"bootstrap.servers": broker}, needs_broker=False),
            not lenient,
            400,
            (str(self.root),),
        )
        for batch in read_range(OffsetRange(PLACE, start, end), rules, SCHEMA):
            for offset, value in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                assert value == b"%d" % offset
                yield offset


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Log:
    monkeypatch.setattr(reading, "CHUNK_BYTES", 200)  # two or three batches
    return Log(tmp_path)


def test_a_range_across_segments_with_and_without_an_index(log: Log) -> None:
    log.segment(0, *range(10))
    log.segment(10, *range(10, 20), index=False)
    log.segment(20, *range(20, 30))
    assert list(log.read(3, 27)) == list(range(3, 27))
    assert list(log.read(10, 20)) == list(range(10, 20))
    assert list(log.read(9, 10)) == [9]


def test_gaps_that_compaction_left(log: Log) -> None:
    log.segment(0, 0, 4, 7)
    log.segment(10)
    log.segment(20, 22, 23)
    assert list(log.read(0, 24)) == [0, 4, 7, 22, 23]
    assert list(log.read(5, 23)) == [7, 22]
    assert list(log.read(8, 22)) == []


def test_an_index_that_lies_is_not_believed(log: Log) -> None:
    log.segment(0, *range(10))
    log.path(0, "index").write_bytes(OffsetIndex.entry.pack(1, 900) + b"\1" * 11)
    assert list(log.read(2, 10)) == list(range(2, 10))


def test_a_batch_that_is_larger_than_a_chunk(log: Log) -> None:
    builder = BatchBuilder()
    for offset in range(100):
        builder.append(0, None, b"%d" % offset)
    log.path(0).write_bytes(builder.build() + bytes(4096))  # and space reserved behind it
    assert list(log.read(5, 100)) == list(range(5, 100))


def test_segments_that_went_before_they_were_read(log: Log) -> None:
    for base in (0, 10, 20, 30):
        log.segment(base, *range(base, base + 10))
    reading_on = log.read(0, 40)
    assert next(reading_on) == 0
    for base in (0, 10, 20):
        os.rename(log.path(base), f"{log.path(base)}.deleted")
        log.path(base, "index").unlink()
    # The open file is read to its end; what is lost begins behind it.
    assert [next(reading_on) for _ in range(9)] == list(range(1, 10))
    with pytest.raises(DataLossError, match=r"offsets \[10, 30\) of t-0 are not in the log"):
        next(reading_on)
    assert list(log.read(0, 40, lenient=True)) == list(range(30, 40))


def test_losing_segments_is_allowed(log: Log) -> None:
    for base in (0, 10, 20):
        log.segment(base, *range(base, base + 10))
    reading_on = log.read(0, 30, lenient=True)
    assert next(reading_on) == 0
    log.path(0).unlink()
    log.path(10).unlink()
    assert list(reading_on) == [*range(1, 10), *range(20, 30)]


def test_a_topic_that_was_deleted(log: Log) -> None:
    log.segment(0, *range(10))
    log.segment(10, *range(10, 20))
    reading_on = log.read(0, 20)
    assert next(reading_on) == 0
    os.rename(log.directory, f"{log.directory}.{'0' * 32}-delete")
    with pytest.raises(DataLossError, match=r"offsets \[10, 20\)"):
        list(reading_on)
    with pytest.raises(DataLossError, match=r"offsets \[0, 20\)"):
        list(log.read(0, 20))


def test_compaction_joins_the_open_segment_with_those_behind_it(log: Log) -> None:
    """The next name in the directory is then not where the reader has to go on."""
    for base in (0, 10, 20):
        log.segment(base, *range(base, base + 10))
    reading_on = log.read(0, 30)
    assert next(reading_on) == 0
    joined = Log(log.root / "elsewhere") if (log.root / "elsewhere").mkdir() is None else log
    joined.segment(0, 2, 4, 12, 16)
    log.path(10).unlink()
    os.replace(joined.path(0), log.path(0))
    os.replace(joined.path(0, "index"), log.path(0, "index"))
    assert list(reading_on) == [*range(1, 10), 12, 16, *range(20, 30)]


def test_a_swap_that_is_under_way_is_waited_for(log: Log) -> None:
    log.segment(0, *range(10))
    swap = Path(f"{log.path(0)}.swap")
    os.rename(log.path(0), swap)
    timer = threading.Timer(0.1, lambda: os.rename(swap, log.path(0)))
    timer.start()
    assert list(log.read(0, 10)) == list(range(10))
    timer.join()


def test_a_follower_that_catches_up(log: Log) -> None:
    """Offsets that the leader told may be on their way here; the active segment rolls too."""
    log.segment(0, *range(5))
    data = log.path(0).read_bytes()
    reading_on = log.read(0, 8, broker="h:1")
    assert [next(reading_on) for _ in range(5)] == list(range(5))

    def catch_up() -> None:
        other = Log(log.root / "x") if (log.root / "x").mkdir() is None else log
        other.segment(0, 5, 6)
        with log.path(0).open("ab") as file:
            file.write(other.path(0).read_bytes())
        log.segment(7, 7)

    timer = threading.Timer(0.1, catch_up)
    timer.start()
    assert list(reading_on) == [5, 6, 7]
    timer.join()
    assert log.path(0).read_bytes().startswith(data)


def test_what_never_comes_is_a_timeout_with_a_broker_and_a_loss_without(log: Log) -> None:
    log.segment(0, *range(5))
    with pytest.raises(TimeoutError, match=r"offset 5 of t-0 .*pollTimeoutMs"):
        list(log.read(0, 8, broker="h:1"))
    with pytest.raises(DataLossError, match=r"\[5, 8\)"):
        list(log.read(0, 8))
    assert list(log.read(0, 8, lenient=True)) == list(range(5))


@pytest.mark.parametrize("most", [1, 150, 400, 1000, 10**9])
def test_parts_by_bytes_hold_every_offset_once(log: Log, most: int) -> None:
    log.segment(0, *range(10))
    log.segment(10, *range(10, 20), index=False)
    log.segment(20, *range(20, 30))
    whole = OffsetRange(PLACE, 3, 27)
    parts = split_by_bytes([whole], [str(log.root)], max_bytes=most, min_partitions=None)
    assert [offset for part in parts for offset in log.read(part.start, part.end)] == [
        *range(3, 27)
    ]
    assert all(part.start < part.end for part in parts)
    wanted = {1: range(10, 25), 150: range(6, 13), 400: range(3, 8), 1000: range(1, 4)}
    assert len(parts) in wanted.get(most, [1])


def test_parts_by_number_follow_the_bytes(log: Log) -> None:
    """A few large records and many small ones: offsets would put all the work into one task."""
    data, entries = b"", b""
    for offset in range(40):
        builder = BatchBuilder(BatchOptions(base_offset=offset))
        builder.append(0, None, bytes(10_000 if offset < 4 else 10))
        if data:
            entries += OffsetIndex.entry.pack(offset, len(data))
        data += builder.build()
    log.path(0).write_bytes(data)
    log.path(0, "index").write_bytes(entries)
    whole = OffsetRange(PLACE, 0, 40)
    parts = split_by_bytes([whole], [str(log.root)], max_bytes=None, min_partitions=4)
    assert len(parts) == 4
    assert parts[-1].start <= 4
