"""The scan of many batches notes what a walk over single batches would."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from millstream.records.batch import Batch, iter_batches
from millstream.records.builder import BatchOptions, encode_batch
from millstream.records.control import ControlType, EndTransactionMarker, build_marker_batch
from millstream.records.record import Record
from millstream.records.scan import BATCHES_KEPT, BatchScanner
from millstream.records.scan_kernel import new_batch_scanner
from millstream.storage import producer_state
from millstream.storage.producer_recovery import replay_batch
from millstream.storage.producer_snapshot import encode_snapshot
from millstream.storage.producer_state import ProducerStateManager
from millstream.storage.transaction_index import AbortedEntry

pytestmark = pytest.mark.usefixtures("each_kernel")

NOW_MS = 1_700_000_000_000


def log_of(seed: int, count: int = 40) -> tuple[bytes, list[Batch]]:
    chance = random.Random(seed)
    data, offset, epoch = bytearray(), 0, 0
    for number in range(count):
        epoch += chance.random() < 0.1
        producer, producer_epoch = chance.choice([-1, 5, 6, 6]), int(chance.random() < 0.1)
        encoded = _batch(chance, number, producer, producer_epoch)
        if producer >= 0 and chance.random() < 0.15:
            marker = EndTransactionMarker(chance.choice([ControlType.ABORT, ControlType.COMMIT]), 3)
            encoded = build_marker_batch(
                marker, producer_id=producer, producer_epoch=producer_epoch, timestamp_ms=NOW_MS
            )
        batch = Batch(memoryview(bytearray(encoded)))
        offset += chance.randint(0, 1)  # compaction leaves gaps
        batch.assign(base_offset=offset, leader_epoch=epoch)
        offset = batch.next_offset
        data += batch.buffer
    return bytes(data), list(iter_batches(bytes(data)))


def _batch(chance: random.Random, number: int, producer: int, producer_epoch: int) -> bytes:
    values = [bytes(chance.randint(0, 80)) for _ in range(chance.randint(1, 3))]
    records = [Record(n, NOW_MS + chance.randint(0, 50), None, v) for n, v in enumerate(values)]
    if producer < 0:
        return encode_batch(records)
    options = BatchOptions(
        producer_id=producer,
        producer_epoch=producer_epoch,
        base_sequence=number,
        is_transactional=chance.random() < 0.5,
    )
    return encode_batch(records, options)


def scanner(interval_bytes: int = 300, producers_from: int = 0) -> BatchScanner:
    return new_batch_scanner(
        0, max_offset=2**31, interval_bytes=interval_bytes, producers_from=producers_from
    )


def replayed(batches: list[Batch]) -> tuple[bytes, list[object], list[AbortedEntry]]:
    """Return all that is remembered of these batches, and the transactions that were aborted."""
    producers = ProducerStateManager()
    aborted = [entry for batch in batches if (entry := replay_batch(producers, batch))]
    windows = {each.producer_id: each.batches for each in producers.producers.values()}
    entries = sorted(producers.producers.values(), key=lambda each: each.producer_id)
    return encode_snapshot(entries), [windows, producers.first_unstable_offset], aborted


@settings(max_examples=examples(40), deadline=None)
@given(seed=st.integers(0, 2**20), pieces=st.integers(1, 6), producers_from=st.integers(0, 60))
def test_a_scan_is_a_walk(seed: int, pieces: int, producers_from: int) -> None:
    data, batches = log_of(seed)
    scan = scanner(producers_from=producers_from)
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
    epochs: dict[int, int] = {}
    for batch in batches:
        epochs.setdefault(batch.partition_leader_epoch, batch.base_offset)
    assert scan.epochs == list(epochs.items())
    counted = [batch for batch in batches if batch.base_offset >= producers_from]
    assert replayed(scan.producer_batches) == replayed(counted)


def test_most_of_what_a_producer_wrote_is_left_out() -> None:
    data, batches = log_of(7, count=400)
    scan = scanner()
    scan.scan(memoryview(data), 0)
    own = [batch for batch in batches if batch.producer_id >= 0]
    markers = sum(batch.is_control for batch in own)
    assert len(scan.producer_batches) <= 2 * markers + 2 + 2 * BATCHES_KEPT < len(own) / 2
    places = [batch.base_offset for batch in scan.producer_batches]
    assert places == sorted(set(places))


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
    scan = new_batch_scanner(0, max_offset=batches[4].last_offset, interval_bytes=4096)
    assert scan.scan(view, 0) == sum(batch.size for batch in batches[:5])


def test_as_many_batches_are_kept_as_are_remembered() -> None:
    assert BATCHES_KEPT == producer_state.BATCHES_KEPT
