"""Cleaning a log: what stays, what goes, and what the files look like afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.storage.cleaning_support import (
    SEED,
    clean,
    clean_all,
    compacted,
    make_map,
    offsets_of,
    put,
)
from tests.unit.storage.support import (
    NOW_MS,
    append_marker,
    close,
    create_log,
    files_of,
    look_up_time,
    read_batches,
    read_values,
    reopen,
)

from millstream.model.errors import CorruptLogError
from millstream.model.topic import TopicId, TopicPartition
from millstream.records.builder import BatchOptions
from millstream.records.compression import Codec
from millstream.records.record import read_records
from millstream.storage.cleanable import CleaningAbortedError, find_cleanable
from millstream.storage.cleaner import Cleaning
from millstream.storage.environment import LogEnvironment
from millstream.storage.log import Log
from millstream.storage.log_compaction import plan_cleaning, swap_in
from millstream.storage.log_manager import LogManager

DAY_MS = 86_400_000


def keyed(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    return [
        (record.offset, record.key, record.value)
        for batch in read_batches(log, log.log_start_offset)
        if not batch.is_control
        for record in read_records(batch)
    ]


def test_the_last_record_of_each_key_stays_at_its_offset(tmp_path: Path) -> None:
    log = create_log(tmp_path, compacted())
    for n in range(50):
        put(log, (b"k%d" % (n % 3), b"v%d" % n), (b"once-%d" % n, b"v"))
    log.appender.roll(now_ms=NOW_MS)
    before = keyed(log)
    size = log.size
    end = clean(log)
    assert end == log.local.active.base_offset == 100
    last = {key: offset for offset, key, _ in before}
    assert keyed(log) == [record for record in before if last[record[1]] == record[0]]
    assert log.size < size
    assert log.log_end_offset == 100


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_is_read_and_written_again(tmp_path: Path, codec: Codec) -> None:
    log = create_log(tmp_path, compacted())
    for n in range(30):
        put(log, *((b"k%d" % k, b"v%d" % n * 20) for k in range(4)), codec=codec)
        put(log, (b"own-%d" % n, b"v"), (b"k0", b"x"), codec=codec)
    log.appender.roll(now_ms=NOW_MS)
    clean(log, buffer_bytes=64)
    found = keyed(log)
    assert [key for _, key, _ in found if key and not key.startswith(b"own")] == [
        b"k1", b"k2", b"k3", b"k0"]  # fmt: skip
    assert len(found) == 34
    assert {batch.codec for batch in read_batches(log, 0)} == {codec}
    for batch in read_batches(log, 0):
        batch.ensure_valid()


def test_files_after_a_cleaning_and_after_the_delay(tmp_path: Path) -> None:
    log = create_log(tmp_path, compacted(**{"file.delete.delay.ms": "500"}))
    for n in range(40):
        put(log, (b"k", b"v%d" % n))
    log.appender.roll(now_ms=NOW_MS)
    clean(log)
    names = files_of(tmp_path)
    assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
    assert [name for name in names if name.endswith(".log.deleted")]
    log.local.environment.removals.run_due(NOW_MS + 500)
    assert not [name for name in files_of(tmp_path) if name.endswith(".deleted")]
    assert keyed(log) == [(39, b"k", b"v39")]
    close(log)
    assert keyed(reopen(tmp_path, compacted())) == [(39, b"k", b"v39")]


def test_a_tombstone_goes_once_its_horizon_has_passed(tmp_path: Path) -> None:
    config = compacted(**{"delete.retention.ms": str(DAY_MS)})
    log = create_log(tmp_path, config)
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", None), (b"c", b"1"), timestamps=[NOW_MS - 5, NOW_MS + 7])
    put(log, (b"d", b"1"))
    log.appender.roll(now_ms=NOW_MS)
    end = clean(log)
    (batch,) = [b for b in read_batches(log, 0) if b.base_offset == 2]
    assert batch.delete_horizon_ms == NOW_MS + DAY_MS
    assert [(r.offset, r.timestamp, r.key, r.value) for r in read_records(batch)] == [
        (2, NOW_MS - 5, b"a", None), (3, NOW_MS + 7, b"c", b"1")]  # fmt: skip
    assert batch.max_timestamp == NOW_MS + 7
    for now_ms, tombstones in ((NOW_MS + DAY_MS - 1, 1), (NOW_MS + DAY_MS, 0)):
        put(log, (b"x", b"%d" % now_ms))
        log.appender.roll(now_ms=now_ms)
        end = clean(log, end, now_ms=now_ms)
        assert sum(value is None for _, _, value in keyed(log)) == tombstones
    assert [offset for offset, key, _ in keyed(log) if key in (b"b", b"c", b"d")] == [1, 3, 4]


def test_tombstones_that_are_kept_for_ever(tmp_path: Path) -> None:
    log = create_log(tmp_path, compacted(**{"delete.retention.ms": str(2**63 - 1)}))
    put(log, (b"a", b"1"))
    put(log, (b"a", None), (b"c", b"1"), timestamps=[NOW_MS - 5, NOW_MS + 7])
    end = 0
    for _ in range(3):
        put(log, (b"x", b"1"))
        log.appender.roll(now_ms=NOW_MS)
        end = clean(log, end)
        assert keyed(log)[:2] == [(1, b"a", None), (2, b"c", b"1")]
    batch = read_batches(log, 0)[0]
    assert batch.delete_horizon_ms == 2**63 - 1
    assert [record.timestamp for record in read_records(batch)] == [NOW_MS - 5, NOW_MS + 7]


def test_records_without_a_key_go(tmp_path: Path) -> None:
    log = create_log(tmp_path, compacted())
    put(log, (None, b"old"), (b"k", b"v"))
    log.appender.roll(now_ms=NOW_MS)
    clean(log)
    assert keyed(log) == [(1, b"k", b"v")]


def test_a_log_larger_than_the_map_takes_several_cleanings(tmp_path: Path) -> None:
    log = create_log(tmp_path, compacted())
    for n in range(60):
        put(log, (b"k%d" % (n % 20), b"v%d" % n), (b"j%d" % (n % 7), b"v%d" % n))
    log.appender.roll(now_ms=NOW_MS)
    first = clean(log, keys=10)
    assert 0 < first < 120
    assert clean_all(log, first, keys=10) == 120
    # A key is kept once for every cleaning that met it, so the last ones are there; cleaning all
    # over leaves one of each.
    last = {key: value for _, key, value in keyed(log)}
    clean(log, 0)
    assert {key: value for _, key, value in keyed(log)} == last
    assert len(keyed(log)) == 27


def test_a_batch_with_more_keys_than_the_map_has_room_for(tmp_path: Path) -> None:
    log = create_log(tmp_path, compacted())
    put(log, *((b"k%d" % n, b"v") for n in range(8)))
    log.appender.roll(now_ms=NOW_MS)
    with pytest.raises(CorruptLogError, match="more keys"):
        clean(log, keys=4)


def test_aborted_data_goes_and_its_marker_follows_later(tmp_path: Path) -> None:
    config = compacted(**{"delete.retention.ms": "1000"})
    log = create_log(tmp_path, config)
    put(log, (b"k", b"kept"), producer_id=1, producer_epoch=0, base_sequence=0)
    put(log, (b"k", b"aborted"), producer_id=7, producer_epoch=0, base_sequence=0,
        is_transactional=True)  # fmt: skip
    marker = append_marker(log, 7, commit=False).base_offset
    put(log, (b"k2", b"committed"), producer_id=7, producer_epoch=0, base_sequence=1,
        is_transactional=True)  # fmt: skip
    append_marker(log, 7, commit=True)
    put(log, (b"end", b"v"))
    log.offsets.update_high_watermark(log.log_end_offset)
    log.appender.roll(now_ms=NOW_MS)
    end = clean(log)
    assert [key for _, key, _ in keyed(log)] == [b"k", b"k2", b"end"]
    # Its data was there in this cleaning, so readers may have to be told of the transaction.
    aborted = log.local.segments.first.transaction_index.entries
    assert [(entry.producer_id, entry.last_offset) for entry in aborted] == [(7, marker)]
    put(log, (b"x", b"1"))
    log.appender.roll(now_ms=NOW_MS)
    end = clean(log, end)
    found = {batch.base_offset: batch for batch in read_batches(log, 0)}
    assert found[marker].delete_horizon_ms == NOW_MS + 1000
    assert found[marker + 2].delete_horizon_ms is None, "committed data is there"
    assert log.local.segments.first.transaction_index.entries == []
    put(log, (b"x", b"2"))
    log.appender.roll(now_ms=NOW_MS)
    clean(log, end, now_ms=NOW_MS + 1000)
    assert marker not in [batch.base_offset for batch in read_batches(log, 0)]


def test_what_is_not_decided_is_not_cleaned(tmp_path: Path) -> None:
    log = create_log(tmp_path, compacted())
    put(log, (b"k", b"1"))
    log.appender.roll(now_ms=NOW_MS)
    put(log, (b"k", b"open"), producer_id=7, producer_epoch=0, base_sequence=0,
        is_transactional=True)  # fmt: skip
    log.appender.roll(now_ms=NOW_MS)
    put(log, (b"k", b"2"))
    log.appender.roll(now_ms=NOW_MS)
    log.offsets.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 1
    assert find_cleanable(log, None, now_ms=NOW_MS).first_uncleanable_offset == 1
    assert clean(log) == 1
    assert len(keyed(log)) == 3
    append_marker(log, 7, commit=False)
    log.appender.roll(now_ms=NOW_MS)
    log.offsets.update_high_watermark(log.log_end_offset)
    clean(log, 1)
    assert [value for _, _, value in keyed(log)] == [b"2"]


def test_the_last_batch_of_a_producer_stays_without_records(tmp_path: Path) -> None:
    log = create_log(tmp_path, compacted())
    put(log, (b"k", b"1"), producer_id=5, producer_epoch=2, base_sequence=0)
    put(log, (b"k", b"2"), producer_id=5, producer_epoch=2, base_sequence=1)
    put(log, (b"k", b"3"))
    log.appender.roll(now_ms=NOW_MS)
    put(log, (b"z", b"3"))
    clean(log)
    batches = read_batches(log, 0)
    assert [(b.base_offset, b.count, b.last_sequence) for b in batches] == [
        (1, 0, 1), (2, 1, -1), (3, 1, -1)]  # fmt: skip
    before = log.producers.active()
    close(log)
    for snapshot in (tmp_path / "orders-0").glob("*.snapshot"):
        snapshot.unlink()
    assert reopen(tmp_path, compacted(), clean=False).producers.active() == before


@pytest.mark.parametrize("kernel", [False, True])
def test_ends_of_producers_and_of_the_range_stay_whatever_their_order(
    tmp_path: Path, kernel: bool
) -> None:
    log = create_log(tmp_path, compacted(**{"internal.segment.bytes": "100000"}))
    put(log, (b"k", b"0"), producer_id=1, producer_epoch=0, base_sequence=0)
    put(log, (b"k", b"1"), producer_id=2, producer_epoch=0, base_sequence=0)
    put(log, (b"k", b"2"), producer_id=3, producer_epoch=0, base_sequence=0)
    put(log, (b"k", b"3"), (b"gone", b"3"))
    put(log, (b"k", b"5"))
    log.appender.roll(now_ms=NOW_MS)
    put(log, (b"z", b"6"), producer_id=2, producer_epoch=0, base_sequence=1)
    clean(log, kernel=kernel, buffer_bytes=1000)
    found = [(batch.base_offset, batch.count) for batch in read_batches(log, 0)]
    assert found == [(0, 0), (2, 0), (3, 1), (5, 1), (6, 1)]
    # What ends the range is superseded by what is not cleaned yet, and stays as an empty batch
    # the next time.
    put(log, (b"k", b"7"), producer_id=2, producer_epoch=0, base_sequence=2)
    put(log, (b"k", b"8"))
    log.appender.roll(now_ms=NOW_MS)
    put(log, (b"y", b"9"), producer_id=3, producer_epoch=0, base_sequence=1)
    clean(log, 6, kernel=kernel, buffer_bytes=1000)
    found = [(batch.base_offset, batch.count) for batch in read_batches(log, 0)]
    assert found == [(0, 0), (3, 1), (6, 1), (7, 0), (8, 1), (9, 1)]


@pytest.mark.parametrize("kernel", [False, True])
def test_the_end_of_an_aborted_range_stays(tmp_path: Path, kernel: bool) -> None:
    log = create_log(tmp_path, compacted(**{"internal.segment.bytes": "100000"}))
    put(log, (b"k", b"0"))
    put(log, (b"k", b"1"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.appender.roll(now_ms=NOW_MS)
    append_marker(log, 7, commit=False)
    put(log, (b"z", b"3"), producer_id=1, producer_epoch=0, base_sequence=0)
    put(log, (b"z", b"4"), producer_id=7, producer_epoch=0, base_sequence=1)
    assert clean(log, kernel=kernel) == 2
    found = [(batch.base_offset, batch.count) for batch in read_batches(log, 0)]
    assert found == [(0, 1), (1, 0), (2, 1), (3, 1), (4, 1)]


def test_min_compaction_lag_holds_segments_back(tmp_path: Path) -> None:
    log = create_log(tmp_path, compacted(**{"min.compaction.lag.ms": "1000"}))
    for age_ms in (5000, 1001, 999, 2000):
        put(log, (b"k", b"v"), timestamps=[NOW_MS - age_ms])
        log.appender.roll(now_ms=NOW_MS)
    assert find_cleanable(log, None, now_ms=NOW_MS).first_uncleanable_offset == 2
    assert clean(log) == 2
    assert find_cleanable(log, 2, now_ms=NOW_MS + 1).first_uncleanable_offset == 4


def test_max_compaction_lag_makes_a_log_due_whatever_its_ratio(tmp_path: Path) -> None:
    config = compacted(**{"max.compaction.lag.ms": "10000", "min.cleanable.dirty.ratio": "1"})
    log = create_log(tmp_path, config)
    put(log, (b"k", b"v"), timestamps=[NOW_MS])
    log.appender.roll(now_ms=NOW_MS)
    for now_ms, due in ((NOW_MS + 10_000, False), (NOW_MS + 10_001, True)):
        assert find_cleanable(log, None, now_ms=now_ms).is_worth_it(1.0) is due


def test_a_checkpoint_that_cannot_be_right_begins_at_the_log_start(tmp_path: Path) -> None:
    log = create_log(tmp_path, compacted())
    for n in range(20):
        put(log, (b"k%d" % n, b"v"))
    log.truncation.increment_log_start_offset(5)
    for checkpoint, expected in ((None, 5), (4, 5), (5, 5), (20, 20), (21, 5)):
        assert find_cleanable(log, checkpoint, now_ms=NOW_MS).first_dirty_offset == expected


def test_a_fetch_that_began_before_the_swap_goes_on(tmp_path: Path) -> None:
    log = create_log(tmp_path, compacted())
    for n in range(9):
        put(log, (b"k", b"v%d" % n))
    log.appender.roll(now_ms=NOW_MS)
    read = log.reader.read(0, max_bytes=1 << 20, upper_bound_offset=9, min_one_batch=True)
    clean(log)
    log.local.environment.removals.run_due(NOW_MS + 60_000)
    assert read.records is not None
    assert b"v0" in read.records.read()
    assert keyed(log) == [(8, b"k", b"v8")]
    # Whoever stands in the middle of what is gone goes on with what follows.
    again = log.reader.read(3, max_bytes=1 << 20, upper_bound_offset=9, min_one_batch=True)
    assert again.records is not None
    assert b"v8" in again.records.read()


def test_a_damaged_batch_is_found_and_nothing_changes(tmp_path: Path) -> None:
    log = create_log(tmp_path, compacted())
    for n in range(20):
        put(log, (b"k", b"v%d" % n))
    log.appender.roll(now_ms=NOW_MS)
    path = next((tmp_path / "orders-0").glob("*00.log"))
    data = bytearray(path.read_bytes())
    data[100] ^= 0x55
    path.write_bytes(data)
    names = files_of(tmp_path)
    with pytest.raises(CorruptLogError):
        clean(log)
    assert files_of(tmp_path) == names


def test_a_log_that_lost_segments_meanwhile_is_left_alone(tmp_path: Path) -> None:
    log = create_log(tmp_path, compacted())
    for n in range(20):
        put(log, (b"k", b"v%d" % n))
    log.appender.roll(now_ms=NOW_MS)
    plan = plan_cleaning(log, find_cleanable(log, None, now_ms=NOW_MS), now_ms=NOW_MS)
    cleaning = Cleaning(
        log.local.environment, plan, make_map(), buffer_bytes=1000, on_bytes=lambda count: None
    )
    cleaned = [cleaning.clean_group(group) for group in cleaning.build_map()][-1]
    log.truncation.truncate_to(10, now_ms=NOW_MS)
    with pytest.raises(CleaningAbortedError):
        swap_in(log, cleaned, NOW_MS)
    cleaning.discard(cleaned)
    assert not [name for name in files_of(tmp_path) if name.endswith("16.log.cleaned")]
    assert [offset for offset, _ in read_values(log)] == list(range(10))


def test_small_segments_become_one(tmp_path: Path) -> None:
    log = create_log(tmp_path, compacted())
    for n in range(100):
        put(log, (b"k%d" % (n % 4), b"v" * 50))
    log.appender.roll(now_ms=NOW_MS)
    end = clean(log)
    put(log, (b"z", b"v"))
    log.appender.roll(now_ms=NOW_MS)
    clean(log, end)
    assert log.segment_base_offsets == [0, 101]
    found = look_up_time(log, NOW_MS)
    assert found is not None
    assert found.offset == 96


def test_snapshots_of_segments_that_became_one_go_with_them(tmp_path: Path) -> None:
    log = create_log(tmp_path, compacted())
    for n in range(100):
        put(log, (b"k%d" % (n % 4), b"v" * 50))
    log.appender.roll(now_ms=NOW_MS)
    end = clean(log)
    put(log, (b"z", b"v"))
    log.appender.roll(now_ms=NOW_MS)
    assert len([name for name in files_of(tmp_path) if name.endswith(".snapshot")]) > 3
    clean(log, end)
    assert log.segment_base_offsets == [0, 101]
    snapshots = [name for name in files_of(tmp_path) if name.endswith(".snapshot")]
    assert snapshots == [f"{101:020d}.snapshot"]


def test_log_append_time_is_kept(tmp_path: Path) -> None:
    log = create_log(tmp_path, compacted(**{"delete.retention.ms": "1000"}))
    put(log, (b"a", b"1"), (b"b", None), (b"c", b"1"), log_append_time_ms=NOW_MS - 77)
    put(log, (b"a", b"2"))
    log.appender.roll(now_ms=NOW_MS)
    clean(log)
    batch = read_batches(log, 0)[0]
    assert batch.delete_horizon_ms == NOW_MS + 1000
    assert [(r.offset, r.timestamp) for r in read_records(batch)] == [
        (1, NOW_MS - 77), (2, NOW_MS - 77)]  # fmt: skip
    assert BatchOptions(log_append_time_ms=1).attributes & batch.attributes


def test_gaps_outlast_the_policy_that_made_them(tmp_path: Path) -> None:
    """The topic is deleted by age now; nothing was flushed, and the broker is killed."""
    logs = LogManager([str(tmp_path)], LogEnvironment(), broker_id=1)
    logs.lock()
    logs.start(config_of=lambda *_: compacted(), now_ms=NOW_MS)
    partition = TopicPartition("orders", 0)
    log = logs.get_or_create(partition, TopicId(SEED), compacted(), now_ms=NOW_MS)
    for key in [b"old"] * 12 + [b"k%d" % n for n in range(12)] + [b"old"] + [b"end"] * 12:
        put(log, (key, b"v" * 60))
    logs.cleaner_checkpoint_plan(str(tmp_path), {partition: clean(log)})()
    kept = offsets_of(log)
    assert kept[0] == 12
    log.abandon()
    logs._release()
    later = LogManager([str(tmp_path)], LogEnvironment(), broker_id=1)
    later.lock()
    deleting = compacted(cleanup_policy="delete")
    later.start(config_of=lambda *_: deleting, now_ms=NOW_MS)
    recovered = later.get(partition)
    assert recovered is not None
    assert recovered.log_end_offset == log.log_end_offset
    recovered.offsets.update_high_watermark(recovered.log_end_offset)
    assert offsets_of(recovered) == kept
