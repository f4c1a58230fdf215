"""The structure of a log against what was written to it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.unit.storage.support import NOW_MS, SMALL, append, close, create_log

from millstream.console.log_views import log_view
from millstream.inspection import log_structure as module
from millstream.inspection.log_structure import (
    LogStructure,
    SegmentStructure,
    log_structure,
    partition_directory,
)
from millstream.model.errors import ConfigError
from millstream.model.topic import TopicPartition

DATA = Path(__file__).parents[2] / "data"
RECORDS = 200


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A log of many small segments, one record of one millisecond each."""
    log = create_log(tmp_path, SMALL)
    for n in range(RECORDS):
        append(log, b"value %d" % n, timestamps=[NOW_MS + n])
    close(log)
    return tmp_path


def found(root: Path, offset: int | None = None) -> LogStructure:
    (name,) = [each.name for each in root.iterdir() if each.is_dir()]
    topic, _, partition = name.rpartition("-")
    return log_structure(partition_directory([root], TopicPartition(topic, int(partition))), offset)


def holding(log: LogStructure, offset: int) -> SegmentStructure:
    return [each for each in log.segments if each.base_offset <= offset][-1]


def test_segments_follow_each_other_up_to_the_end(root: Path) -> None:
    log = found(root)
    assert (log.start_offset, log.end_offset) == (0, RECORDS)
    assert len(log.segments) > 3
    assert [each.active for each in log.segments] == [False] * (len(log.segments) - 1) + [True]
    assert sum(each.size_bytes for each in log.segments) == sum(
        path.stat().st_size for path in root.rglob("*.log")
    )


@pytest.mark.parametrize("offset", [0, 77, RECORDS - 1])
def test_an_entry_leads_to_the_batch_that_ends_with_its_offset(root: Path, offset: int) -> None:
    segment = holding(found(root, offset), offset)
    places = {batch.position: batch for batch in segment.batches}
    assert segment.batches[0].first_offset == segment.base_offset
    for entry in segment.index:
        assert places[entry.position].last_offset == entry.offset
    for time in segment.time_index:
        assert time.timestamp == NOW_MS + time.offset
    assert any(batch.first_offset <= offset <= batch.last_offset for batch in segment.batches)


def test_batches_are_told_of_one_segment_and_every_entry_is(root: Path) -> None:
    log = found(root, 77)
    assert [bool(each.batches) for each in log.segments].count(True) == 1
    assert all(each.is_whole for each in log.segments)
    assert sum(len(each.index) for each in log.segments) > 3


def test_a_large_log_has_the_entries_near_the_offset(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = holding(found(root, 77), 77)
    monkeypatch.setattr(module, "ENTRIES", len(one.index) + len(one.time_index))
    log = found(root, 77)
    assert holding(log, 77) == one
    left_out = [each for each in log.segments if not each.is_whole]
    assert left_out
    assert not any(each.index or each.time_index for each in left_out)


def test_a_directory_of_apache_kafka(tmp_path: Path) -> None:
    shutil.copytree(DATA / "kafka-4.3.0", tmp_path / "data")
    view = log_view([tmp_path / "data"], "codecs", 0)
    json.dumps(view)
    assert view["end_offset"]


@pytest.mark.parametrize("topic", ["none", "../data/codecs", "/etc/codecs", "codecs-0/../codecs"])
def test_a_partition_that_is_not_there(tmp_path: Path, topic: str) -> None:
    shutil.copytree(DATA / "kafka-4.3.0", tmp_path / "data")
    with pytest.raises(ConfigError, match="there is no directory"):
        log_view([tmp_path / "data"], topic, 0)


def test_without_a_log_directory() -> None:
    with pytest.raises(ConfigError, match="--log-dir"):
        log_view([], "codecs", 0)
