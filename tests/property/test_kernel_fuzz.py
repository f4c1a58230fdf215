"""The kernel and Python give the same answers and the same errors, whatever the bytes.

The same input each time. ``python native/sanitize.py`` runs this with a kernel that watches every
read and write, and with more rounds.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.property.hostile_batches import (
    LEAST,
    MOST,
    NOW_MS,
    NUMBERS,
    HostileWriter,
    some_limits,
    spoilt_batch,
    with_sound_crcs,
)

from millstream.model.errors import CorruptLogError, ErrorCode, KafkaError, MillstreamError
from millstream.records import kernel
from millstream.records.arrow_decoder import decode_arrow
from millstream.records.arrow_encoder import ArrowRows
from millstream.records.arrow_encoder import encode_rows as encode_arrow
from millstream.records.batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    iter_batches,
)
from millstream.records.builder import BatchOptions
from millstream.records.columns import decode_columns
from millstream.records.compaction import decompressed_records
from millstream.records.compression import Codec, OverCapError
from millstream.records.crc32c import checksum
from millstream.records.isolation import CommittedOnly
from millstream.records.kernel import Library, Pinned
from millstream.records.kernel_decoder import Selection
from millstream.records.limits import ProduceLimits, RecordsRefusedError
from millstream.records.produce_kernel import why_not
from millstream.records.record import read_records
from millstream.records.record_checks import prepare
from millstream.records.rows import RecordShape, decode_batches, encode_rows
from millstream.records.scan_kernel import new_batch_scanner
from millstream.records.table_partitions import (
    Int32s,
    KeyPartitioner,
    group_rows,
    murmur2_column,
)
from millstream.records.tables import table_schema
from millstream.records.validation import validate_produced
from millstream.storage.new_offset_map import new_offset_map

ROUNDS = int(os.environ.get("MILLSTREAM_FUZZ_ROUNDS", "60"))
FIRST_SEED = int(os.environ.get("MILLSTREAM_FUZZ_SEED", "0"))
LARGE = pa.large_binary()
COLUMNS = [*table_schema(), pa.field("timestampType", pa.int32())]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

Work = Callable[[], object]
Agree = Callable[[Work], None]


@pytest.fixture(scope="module")
def library() -> Library:
    """The installed kernel, or the one that the environment names."""
    path = os.environ.get("MILLSTREAM_FUZZ_KERNEL")
    found = Library(Path(path)) if path else kernel.library()
    if found is None:
        pytest.skip(kernel.describe())
    return found


@pytest.fixture
def agree(library: Library, monkeypatch: pytest.MonkeyPatch) -> Agree:
    """Return what does a piece of work with the kernel and without, and compares."""

    def outcome(work: Work) -> object:
        try:
            return work()
        except OverCapError:
            return CorruptLogError  # which of the two is found first is left open
        except (MillstreamError, ValueError) as error:
            return type(error)

    def compare(work: Work) -> None:
        monkeypatch.setattr(kernel, "_loaded", library)
        with_kernel = outcome(work)
        monkeypatch.setattr(kernel, "_loaded", None)
        assert with_kernel == outcome(work)

    return compare


seeds = pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + 4))


def decode_a_log(agree: Agree, writer: HostileWriter) -> None:
    draw = writer.random.choice
    log = writer.log()
    cut = writer.random.randrange(len(log) + 1)
    buffers = draw([[log], [bytearray(log)], [memoryview(log)], [log[:cut], log[cut:]]])
    start, end = draw([0, 0, LEAST, 1, 3, MOST - 3]), draw([MOST, MOST, 5, 0, MOST - 2])
    aborted, check_crcs = draw([None, None, (), ((5, 0),)]), draw([True, False])
    most = draw([2**20, 2**20, 100])
    schema = pa.schema(writer.random.sample(COLUMNS, writer.random.randrange(9)))

    def select() -> Selection:
        keep = None if aborted is None else CommittedOnly(aborted)
        return Selection(start, end, keep, check_crcs=check_crcs, max_bytes=most)

    def columns() -> object:
        found = decode_columns(
            buffers,
            start_offset=start,
            end_offset=end,
            keep=select().keep,
            check_crcs=check_crcs,
            max_bytes=most,
        )
        kinds = found.timestamp_type.tolist()
        return list(found.iter_records()), kinds, found.next_offset

    def arrow() -> object:
        found = decode_arrow(buffers, schema, topic="tö", partition=3, selection=select())
        found.rows.validate(full=True)
        numbers = [pa.int64() if pa.types.is_timestamp(f.type) else f.type for f in schema]
        cells = [
            column.cast(kind).to_pylist()
            for column, kind in zip(found.rows.columns, numbers, strict=True)
        ]
        return cells, found.rows.num_rows, found.next_offset

    def records() -> object:
        shape = RecordShape(tuple, "t", 1)
        return decode_batches(list(iter_batches(log)), shape, start_offset=start, max_bytes=most)

    for work in (columns, arrow, records):
        agree(work)


@seeds
def test_decoding(agree: Agree, seed: int) -> None:
    writer = HostileWriter(seed)
    for _ in range(ROUNDS):
        decode_a_log(agree, writer)


def scan_and_clean_a_log(agree: Agree, writer: HostileWriter) -> None:
    draw = writer.random.choice
    log = writer.log()
    start, keys, retain = draw([0, 0, 3, MOST - 15]), draw([3, 20, 1000]), draw([True, False])
    latest = draw([-1, 7, MOST])
    base, most = draw([0, 0, 5, 2**31, MOST - 20]), draw([MOST, 2**31, 10])
    interval, grow, room = draw([0, 100, 4096]), draw([True, False]), draw([1, 2, 5, 4096])

    def scan() -> object:
        scanner = new_batch_scanner(
            base, max_offset=most, interval_bytes=interval, epochs_grow=grow, capacity=room
        )
        taken = scanner.scan(memoryview(log), 7)
        places = [batch.base_offset for batch in scanner.producer_batches]
        return (
            taken,
            (scanner.next_offset, scanner.unindexed_bytes, scanner.latest_epoch),
            (scanner.largest_timestamp, scanner.offset_of_largest),
            (scanner.index_entries, scanner.epochs),
            places if room == 4096 else None,
        )

    def take_in() -> object:
        found = new_offset_map(24 * keys, 0.9, bytes(16))
        fits = [
            found.put_records(decompressed_records(batch), batch.count, batch.base_offset, start)
            for batch in iter_batches(log)
        ]
        return found.count, fits

    def filter_each() -> object:
        found = new_offset_map(24 * keys, 0.9, bytes(16))
        found.latest_offset = latest
        left: list[object] = []
        for batch in iter_batches(log):
            data, base_offset = decompressed_records(batch), batch.base_offset
            with contextlib.suppress(CorruptLogError):
                left.append(found.put_records(data, batch.count, base_offset, start))
            left.append(
                found.filter_records(data, batch.count, base_offset, retain_tombstones=retain)
            )
        return left

    for work in (scan, take_in, filter_each):
        agree(work)


@seeds
def test_scanning_and_cleaning(agree: Agree, seed: int) -> None:
    writer = HostileWriter(100 + seed)
    for _ in range(ROUNDS):
        scan_and_clean_a_log(agree, writer)


@seeds
def test_cleaning_many_batches_at_once(library: Library, seed: int) -> None:
    """What is left is sound, and the walk ends; that it is right is ``test_compaction``'s."""
    writer = HostileWriter(200 + seed)
    for _ in range(ROUNDS):
        try:
            log = memoryview(with_sound_crcs(writer.log()))
        except MillstreamError:
            continue
        found = new_offset_map(24 * 20, 0.9, bytes(16))
        stopped, _ = found.put_batches(log, 0, 0)
        assert 0 <= stopped <= len(log)
        found.latest_offset = MOST
        stopped, left = found.filter_batches(log, 0, [3, 7])
        assert 0 <= len(left) <= stopped <= len(log)
        for batch in iter_batches(left):
            batch.ensure_valid()


def produced(data: bytes, limits: ProduceLimits, now_ms: int) -> object:
    """Return what is appended, or how it is refused, to the word."""
    try:
        batch = validate_produced(memoryview(data), limits, version=9, now_ms=now_ms)
        if limits.needs_preparation(batch):
            batch = prepare(batch.copy(), limits)
    except RecordsRefusedError as error:
        return error.error, error.message, error.record_errors
    except KafkaError as error:
        return error.error, error.message
    return bytes(batch.buffer)


@seeds
def test_checking_what_is_produced(agree: Agree, seed: int) -> None:
    writer = HostileWriter(500 + seed)
    for _ in range(ROUNDS * 4):
        data, limits = spoilt_batch(writer), some_limits(writer, is_strict=True)
        now_ms = writer.random.choice([NOW_MS, NOW_MS, NOW_MS, 0, MOST])
        agree(partial(produced, data, limits, now_ms))


@seeds
def test_relaxed_is_strict_for_what_is_not_compressed(
    library: Library, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(kernel, "_loaded", library)
    if why_not():
        pytest.skip(why_not())
    writer = HostileWriter(600 + seed)
    for _ in range(ROUNDS * 4):
        data, limits = spoilt_batch(writer), some_limits(writer, is_strict=False)
        if len(data) > ATTRIBUTES_POSITION + 1 and data[ATTRIBUTES_POSITION + 1] & CODEC_MASK:
            continue
        monkeypatch.setattr(kernel, "_loaded", library)
        relaxed = produced(data, limits, NOW_MS)
        monkeypatch.setattr(kernel, "_loaded", None)
        assert relaxed == produced(data, replace(limits, is_strict=True), NOW_MS)


def some_rows(
    writer: HostileWriter,
) -> tuple[list[int], list[bytes | None], list[bytes | None], list[list[tuple[str, bytes | None]]]]:
    draw = writer.random.choice
    count = draw([0, 1, 2, 5, 20, 80])
    times = [draw(NUMBERS) if writer.chance(0.3) else NOW_MS + n for n in range(count)]
    headers = [
        [(draw(["", "h", "é"]), writer.cell()) for _ in range(draw([0, 0, 1, 3]))]
        for _ in range(count)
    ]
    cells = [writer.cell() for _ in range(2 * count)]
    return times, cells[:count], cells[count:], headers


def encode_some_rows(agree: Agree, writer: HostileWriter) -> None:
    draw = writer.random.choice
    columns = some_rows(writer)
    options = BatchOptions(
        base_offset=draw([0, 5]),
        codec=draw([Codec.NONE, *Codec]),
        log_append_time_ms=draw([None, None, 5, LEAST]),
        producer_id=draw([-1, 7]),
        base_sequence=draw([-1, 0, 2**31 - 1]),
        has_crc=writer.chance(0.9),
    )
    agree(lambda: bytes(encode_rows(*columns, options=options)))


@seeds
def test_encoding_rows(agree: Agree, seed: int) -> None:
    writer = HostileWriter(300 + seed)
    for _ in range(ROUNDS):
        encode_some_rows(agree, writer)


def encode_some_columns(agree: Agree, writer: HostileWriter) -> None:
    """Slices of columns of several layouts, in any order; where a batch ends is left open."""
    draw = writer.random.choice
    times, keys, values, headers = some_rows(writer)
    if values and writer.chance(0.1):  # more than there is room for at first
        values[-1] = bytes(20_000)
    kinds = [pa.binary(), pa.large_binary(), pa.binary_view()]
    cut = slice(draw([0, 0, 1]), draw([None, -1]))
    arrays = [
        pa.array(keys, draw(kinds)),
        pa.array(values, draw(kinds)),
        pa.array([each or draw([None, []]) for each in headers], HEADERS),
        pa.array(times, pa.int64()).cast(draw([pa.int64(), pa.timestamp("us")])),
    ]
    key, value, header, timestamp = (array[cut] for array in arrays)
    rows = ArrowRows(len(value), draw([key, None]), value, header, draw([timestamp, None]), 5)
    numbers = [n for n in range(len(value)) for _ in range(draw([0, 1, 2]))]
    writer.random.shuffle(numbers)
    order = draw([None, np.array(numbers, np.int64), np.array(numbers, np.int32)])
    batch_bytes, options = draw([0, 100, 300, 2**40]), BatchOptions(codec=draw([*Codec]))

    def encode() -> object:
        found = []
        for each in encode_arrow(rows, order=order, options=options, batch_bytes=batch_bytes):
            (batch,) = iter_batches(each.data)
            batch.ensure_valid()
            assert (each.count, each.max_timestamp) == (batch.count, batch.max_timestamp)
            found += [record[1:] for record in read_records(batch)]
        return found

    agree(encode)
    agree(lambda: KeyPartitioner(3, first=1)(rows, batch_rows=2).tolist())


@pytest.mark.slow
@seeds
def test_encoding_columns(agree: Agree, seed: int) -> None:
    writer = HostileWriter(400 + seed)
    for _ in range(ROUNDS):
        encode_some_columns(agree, writer)


@seeds
def test_grouping_rows(agree: Agree, seed: int) -> None:
    random = np.random.default_rng(seed)
    for _ in range(ROUNDS):
        partitions = int(random.choice([1, 2, 7, 1000]))
        wrong = random.choice([0, 0, 0, 1, 2**31 - partitions])
        chosen = random.integers(0, partitions, int(random.choice([0, 1, 9, 3000])), np.int32)
        chosen[random.random(len(chosen)) < 0.01] += np.int32(wrong)

        def group(chosen: Int32s = chosen, partitions: int = partitions) -> object:
            return [(each, rows.tolist()) for each, rows in group_rows(chosen, partitions)]

        agree(group)


@pytest.mark.slow
@seeds
def test_checksums_of_any_length(library: Library, seed: int) -> None:
    writer = HostileWriter(900 + seed)
    for _ in range(ROUNDS):
        size = writer.random.choice([0, 1, 7, 8, 9, 1023, 3071, 3072, 3073, 6144, 20_001])
        data, crc = writer.random.randbytes(size), writer.random.getrandbits(32)
        place = writer.random.randrange(size + 1)
        pin = Pinned(memoryview(data)[place:])
        expected = checksum(memoryview(data)[place:], crc)
        assert library.crc32c(crc, pin.address, pin.size) == expected
        assert library.crc32c_by_tables(crc, pin.address, pin.size) == expected
        assert library.murmur2(data, size) == int(murmur2_column(pa.array([data], LARGE))[0])


@pytest.mark.slow
@seeds
def test_keys_of_a_map(agree: Agree, seed: int) -> None:
    writer = HostileWriter(1000 + seed)
    for _ in range(ROUNDS):
        keys = [writer.random.randbytes(writer.random.choice([0, 1, 7, 8, 30])) for _ in range(60)]
        work = [(writer.random.choice(keys), writer.random.choice(NUMBERS)) for _ in range(200)]

        def both(room: int, work: list[tuple[bytes, int]] = work) -> object:
            found = new_offset_map(24 * room, 0.9, bytes(range(16)))
            put = [found.put(key, max(offset, 0)) for key, offset in work]
            return put, found.count, [found.get(key) for key, _ in work]

        for room in (3, 20, 100):
            agree(partial(both, room))


def test_what_is_drawn_is_read_and_refused() -> None:
    """Neither would say much alone."""
    writer = HostileWriter(0)
    outcomes = []
    for _ in range(200):
        try:
            outcomes.append(len(decode_columns([writer.log()], check_crcs=False)))
        except MillstreamError:
            outcomes.append(-1)
    assert 40 < outcomes.count(-1) < 120
    assert sum(found > 0 for found in outcomes) > 40


def test_what_is_produced_is_taken_and_refused() -> None:
    writer = HostileWriter(0)
    limits = ProduceLimits(is_strict=True)
    outcomes = [produced(spoilt_batch(writer), limits, NOW_MS) for _ in range(300)]
    assert sum(isinstance(outcome, bytes) for outcome in outcomes) > 60
    refusals = {outcome[0] for outcome in outcomes if isinstance(outcome, tuple)}
    assert refusals >= {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
    assert sum(len(outcome) == 3 for outcome in outcomes if isinstance(outcome, tuple)) > 20
