"""The scan of many batches notes what a walk over single batches would."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.records.batch import Batch, iter_batches
from millstream.records.builder import BatchOptions, encode_batch
from millstream.records.record import Record
from millstream.records.scan import BATCHES_KEPT, BatchScanner
from millstream.storage import producer_state

NOW_MS = 1_700_000_000_000


def log_of(seed: int, count: int = 40) -> tuple[bytes, list[Batch]]:
    chance = random.Random(seed)
    data, offset, epoch = bytearray(), 0, 0
    for number in range(count):
        epoch += chance.random() < 0.1
        values = [bytes(chance.randint(0, 80)) for _ in range(chance.randint(1, 3))]
        records = [Record(n, NOW_MS + chance.randint(0, 50), None, v) for n, v in enumerate(values)]
        producer = chance.choice([-1, 5, 6])
        options = BatchOptions()
        if producer >= 0:
            options = BatchOptions(
                producer_id=producer,
                producer_epoch=0,
                base_sequence=number,
                is_transactional=chance.random() < 0.3,
            )
        batch = Batch(memoryview(bytearray(encode_batch(records, options))))
        offset += chance.randint(0, 1)  # compaction leaves gaps
        batch.assign(base_offset=offset, leader_epoch=epoch)
        offset = batch.next_offset
        data += batch.buffer
    return bytes(data), list(iter_batches(bytes(data)))


def scanner(interval_bytes: int = 300) -> BatchScanner:
    return BatchScanner(0, max_offset=2**31, interval_bytes=interval_bytes)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**20), pieces=st.integers(1, 6))
def test_a_scan_is_a_walk(seed: int, pieces: int) -> None:
    data, batches = log_of(seed)
    scan = scanner()
    position, step = 0, len(data) // pieces + 1
    while position < len(data):
        taken = scan.scan(memoryview(data)[position : position + step], position)
        step = step if taken else step * 2
        position += taken
    assert scan.next_offset == batches[-1].next_offset
    largest = max(batch.max_timestamp for batch in batches)
    assert scan.largest_timestamp == largest
    holder = next(batch for batch in batches if batch.max_timestamp == largest)
    assert scan.offset_of_largest == holder.last_offset
    epochs = {}
    for batch in batches:
        epochs.setdefault(batch.partition_leader_epoch, batch.base_offset)
    assert scan.epochs == list(epochs.items())
    kept = [batch.base_offset for batch in scan.producer_batches]
    assert kept == sorted(kept)
    for producer in (5, 6):
        own = [b for b in batches if b.producer_id == producer]
        must = [b.base_offset for b in own if b.is_transactional]
        must += [b.base_offset for b in own if not b.is_transactional][-BATCHES_KEPT:]
        assert set(must) <= set(kept)


def test_index_entries_follow_the_rule() -> None:
    data, batches = log_of(1)
    scan = scanner(interval_bytes=200)
    scan.scan(memoryview(data), 1000)
    expected, unindexed, position = [], 0, 1000
    for batch in batches:
        if unindexed > 200:
            expected.append((batch.last_offset, position))
            unindexed = 0
        unindexed += batch.size
        position += batch.size
    assert [(entry.last_offset, entry.position) for entry in scan.index_entries] == expected


@pytest.mark.parametrize("place", [0, 8, 16, 17, 23, 30, 61, 70])
def test_it_stops_at_the_first_batch_that_is_not_sound(place: int) -> None:
    data, batches = log_of(2)
    before = sum(batch.size for batch in batches[:10])
    damaged = bytearray(data)
    damaged[before + place] ^= 0x80
    scan = scanner()
    assert scan.scan(memoryview(damaged), 0) == before
    assert scan.next_offset == batches[9].next_offset


def test_offsets_that_fall_or_go_too_far_are_not_accepted() -> None:
    data, batches = log_of(3)
    view = memoryview(data)
    scan = scanner()
    scan.next_offset = 1_000
    assert scan.scan(view, 0) == 0
    scan = BatchScanner(0, max_offset=batches[4].last_offset, interval_bytes=4096)
    assert scan.scan(view, 0) == sum(batch.size for batch in batches[:5])


def test_as_many_batches_are_kept_as_are_remembered() -> None:
    assert BATCHES_KEPT == producer_state.BATCHES_KEPT
