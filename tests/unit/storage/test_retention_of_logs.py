"""Retention over logs on a disk: damaged segments, records without timestamps."""

from __future__ import annotations

import os
from pathlib import Path

from tests.unit.storage.support import NOW_MS, append
from tests.unit.storage.test_log_manager import TOPIC_ID, start

from millstream.config.topic import TopicConfig
from millstream.model.topic import TopicPartition
from millstream.storage.directory import LOG, file_name
from millstream.storage.log import Log
from millstream.storage.log_manager import LogManager

HOUR_MS = 3_600_000
SETTINGS = TopicConfig(
    {
        "internal.segment.bytes": "1000",
        "index.interval.bytes": "100",
        "retention.ms": str(HOUR_MS),
    }
)


def _create(manager: LogManager, topic: str, now_ms: int = NOW_MS) -> Log:
    return manager.get_or_create(TopicPartition(topic, 0), TOPIC_ID, SETTINGS, now_ms=now_ms)


def test_a_damaged_segment_goes_by_its_file_and_holds_up_no_other_log(tmp_path: Path) -> None:
    manager = start(tmp_path)
    for topic in ("damaged", "sound"):
        log = _create(manager, topic)
        for _ in range(12):
            append(log, b"v" * 100)
    manager.close()
    path = tmp_path / "damaged-0" / file_name(0, LOG)
    path.write_bytes(bytes(path.stat().st_size))
    manager = start(tmp_path)
    damaged, sound = (manager.get(TopicPartition(t, 0)) for t in ("damaged", "sound"))
    assert damaged is not None
    assert sound is not None
    for log in (damaged, sound):
        log.update_config(SETTINGS)
        assert len(log.segment_base_offsets) > 1
    written_ms = int(path.stat().st_mtime * 1000)
    manager.delete_old_segments(now_ms=written_ms + HOUR_MS // 2)
    assert (damaged.log_start_offset, sound.log_start_offset) == (0, 12)
    manager.delete_old_segments(now_ms=written_ms + 2 * HOUR_MS)
    assert damaged.log_start_offset == 12


def test_an_active_segment_that_is_damaged_stays_and_holds_up_nothing(tmp_path: Path) -> None:
    manager = start(tmp_path)
    for topic in ("damaged", "sound"):
        log = _create(manager, topic)
        for _ in range(12):
            append(log, b"v" * 100)
    active = log.segment_base_offsets[-1]
    manager.close()
    manager = start(tmp_path)
    path = tmp_path / "damaged-0" / file_name(active, LOG)
    data = bytearray(path.read_bytes())
    data[16] = 9
    path.write_bytes(data)
    damaged, sound = (_create(manager, topic) for topic in ("damaged", "sound"))
    for log in (damaged, sound):
        assert log.segment_base_offsets[-1] == active
    later_ms = int(path.stat().st_mtime * 1000) + 2 * HOUR_MS
    manager.delete_old_segments(now_ms=later_ms)
    assert (damaged.log_start_offset, sound.log_start_offset) == (active, 12)
    manager.delete_old_segments(now_ms=later_ms)
    assert damaged.log_start_offset == active


def test_records_without_timestamps_are_as_old_as_their_file(tmp_path: Path) -> None:
    manager = start(tmp_path)
    log = _create(manager, "orders", now_ms=NOW_MS - 24 * HOUR_MS)
    append(log, b"v", timestamps=[-1])
    path = tmp_path / "orders-0" / file_name(0, LOG)
    os.utime(path, (NOW_MS / 1000, NOW_MS / 1000))
    manager.delete_old_segments(now_ms=NOW_MS + HOUR_MS // 2)
    assert log.log_start_offset == 0
    manager.delete_old_segments(now_ms=NOW_MS + 2 * HOUR_MS)
    assert log.log_start_offset == 1
