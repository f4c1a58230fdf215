"""Tables of fetches that hold damage: what is sound comes first, then where it ends is told."""

from __future__ import annotations

import pytest

from millstream.client.core.consumer.errors import CorruptRecordError
from millstream.client.core.consumer.fetched import Fetched
from millstream.client.core.consumer.subscription import PartitionState
from millstream.client.core.consumer.table import TableReader
from millstream.model.topic import TopicPartition
from millstream.records.builder import BatchOptions, encode_batch
from millstream.records.record import Record

PLACE = TopicPartition("t", 0)


def batch(base_offset: int, **options: bool) -> bytearray:
    records = [Record(0, 5, None, b"value")] * 5
    return bytearray(encode_batch(records, BatchOptions(base_offset=base_offset, **options)))


def fetched(data: bytes, fetch_offset: int) -> Fetched:
    return Fetched(PartitionState(PLACE), 0, memoryview(data), fetch_offset, 15, 0)


@pytest.mark.parametrize("fetch_offset", [3, 5, 7])
@pytest.mark.parametrize(("position", "bits"), [(70, 1), (26, 4), (60, 5)])
def test_damage_in_the_batch_that_is_read_from_its_middle(
    fetch_offset: int, position: int, bits: int
) -> None:
    """The damage is in a record, in the last offset, in the count of records."""
    damaged = batch(5)
    damaged[position] ^= bits
    reader = TableReader(None, check_crcs=True)
    error = reader.add(fetched(bytes(batch(0) + damaged + batch(10)), fetch_offset))
    assert isinstance(error, CorruptRecordError)
    assert error.offset == max(fetch_offset, 5)
    assert reader.table()["offset"].to_pylist() == list(range(fetch_offset, 5))


@pytest.mark.parametrize("fetch_offset", [3, 5, 7])
def test_damage_under_a_sound_crc(fetch_offset: int) -> None:
    damaged = batch(5, has_crc=False)
    damaged[61] += 2
    reader = TableReader(None, check_crcs=False)
    error = reader.add(fetched(bytes(batch(0) + damaged + batch(10)), fetch_offset))
    assert isinstance(error, CorruptRecordError)
    assert (error.offset, error.next_offset) == (max(fetch_offset, 5), 10)
    assert reader.table()["offset"].to_pylist() == list(range(fetch_offset, 5))
