from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from millstream.model.errors import CorruptLogError
from millstream.records.batch import HEADER_SIZE, Batch
from millstream.records.builder import BatchOptions, encode_batch
from millstream.records.control import (
    MARKER_BATCH_SIZE,
    ControlType,
    EndTransactionMarker,
    MarkerBatch,
    _read_marker,
    build_marker_batch,
    parse_marker,
)
from millstream.records.isolation import CommittedOnly
from millstream.records.record import Record


def marker(kind: ControlType, producer_id: int, offset: int) -> Batch:
    data = build_marker_batch(
        EndTransactionMarker(kind, 3),
        producer_id=producer_id,
        producer_epoch=1,
        timestamp_ms=1000,
        base_offset=offset,
    )
    assert len(data) == MARKER_BATCH_SIZE
    return Batch(memoryview(data))


def data(producer_id: int, offset: int, *, transactional: bool = True) -> Batch:
    options = BatchOptions(
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=1,
        base_sequence=0,
        is_transactional=transactional,
    )
    return Batch(memoryview(encode_batch([Record(0, 0, None, b"v")], options)))


def control(key: bytes | None, value: bytes | None) -> Batch:
    options = BatchOptions(is_control=True, is_transactional=True)
    return Batch(memoryview(encode_batch([Record(0, 0, key, value)], options)))


def test_a_marker_survives() -> None:
    for kind in (ControlType.ABORT, ControlType.COMMIT):
        batch = marker(kind, 7, 5)
        assert (batch.is_control, batch.is_transactional, batch.base_sequence) == (True, True, -1)
        assert parse_marker(batch) == EndTransactionMarker(kind, 3)


@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
def test_a_marker_is_the_same_in_every_partition_but_for_its_place(kind: ControlType) -> None:
    end = EndTransactionMarker(kind, 3)
    batch = MarkerBatch.of(end, producer_id=7, producer_epoch=1, timestamp_ms=1000)
    for offset, epoch in ((0, 0), (5, 9), (2**40, -1)):
        data = batch.placed(offset, epoch)
        options = BatchOptions(
            base_offset=offset,
            leader_epoch=epoch,
            producer_id=7,
            producer_epoch=1,
            is_transactional=True,
            is_control=True,
        )
        record = Record(0, 1000, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 3))
        assert data == encode_batch([record], options)
        assert Batch(memoryview(data)).is_valid


@pytest.mark.parametrize("value", [0, 1, 2, 8, 12, 16, 32, 127, 128, 255])
def test_a_marker_read_at_once_is_the_one_read_field_by_field(value: int) -> None:
    whole = bytearray(marker(ControlType.COMMIT, 7, 5).buffer)
    for position in range(HEADER_SIZE, MARKER_BATCH_SIZE):
        changed = bytearray(whole)
        changed[position] = value
        batch = Batch(memoryview(changed))
        assert outcome(parse_marker, batch) == outcome(_read_marker, batch), position


def outcome(
    read: Callable[[Batch], EndTransactionMarker | None], batch: Batch
) -> EndTransactionMarker | str | None:
    try:
        return read(batch)
    except CorruptLogError as error:
        return str(error)


def test_control_records_of_other_kinds_and_versions() -> None:
    newer = control(b"\0\1\0\1" + b"more", b"\0\1\0\0\0\x09" + b"more")
    assert parse_marker(newer) == EndTransactionMarker(ControlType.COMMIT, 9)
    assert parse_marker(control(b"\0\0\0\2", b"")) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        (b"\0\0\0", b"\0" * 6),
        (b"\xff\xff\0\0", b"\0" * 6),
        (b"\0\0\0\1", None),
        (b"\0\0\0\1", b"\0" * 5),
        (b"\0\0\0\1", b"\xff\xff" + b"\0" * 4),
    ],
)
def test_broken_control_records(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptLogError):
        parse_marker(control(key, value))


def test_two_producers_one_aborts_and_begins_again() -> None:
    log = [
        data(1, 0),
        data(2, 1),
        marker(ControlType.ABORT, 1, 2),
        data(1, 3),
        data(2, 4),
        marker(ControlType.COMMIT, 2, 5),
        marker(ControlType.COMMIT, 1, 6),
        data(1, 7),
        data(1, 8, transactional=False),
        marker(ControlType.ABORT, 1, 9),
    ]
    keep = CommittedOnly([(1, 7), (1, 0)])
    assert [batch.base_offset for batch in log if keep(batch)] == [1, 3, 4, 8]
