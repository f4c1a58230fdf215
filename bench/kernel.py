"""The columns kernel, and numpy in its place, in one process: records a second on one core."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from rich.table import Table

from bench.session import Session
from bench.tables import NOTHING, JsonValue, Section, Tally
from millstream.client.core.consumer.record import ConsumerRecord
from millstream.records import kernel
from millstream.records.arrow_decoder import decode_arrow
from millstream.records.batch import Batch
from millstream.records.builder import BatchOptions, encode_batch
from millstream.records.compression import Codec
from millstream.records.kernel_decoder import Selection
from millstream.records.limits import ProduceLimits
from millstream.records.record import Record
from millstream.records.record_checks import prepare
from millstream.records.rows import RecordShape, decode_batches, encode_rows
from millstream.records.tables import (
    TableColumns,
    TableRules,
    batches_from_table,
    table_schema,
)
from millstream.records.validation import validate_produced

FETCH_BYTES = 1 << 20
BATCH_BYTES = 1 << 16
RECORDS_IN_A_BATCH = 600
BYTES_PER_ROW = 100_000_000
NOW_MS = 1_700_000_000_000
CHECKS = {"plain topic": ProduceLimits(), "compacted topic": ProduceLimits(is_compacted=True)}
C, NUMPY = "C kernel", "Python, numpy"

CONDITIONS = (
    "one thread; random values, no keys unless said; batches of 64 KB, decoded a megabyte at a "
    "time as a fetch gives them; columns key, value, topic, partition, offset, timestamp, headers",
    "CPU time of the thread, so that a busy machine takes little away; best of the rounds",
    "produced batches: 100-byte values with keys, all checks of a leader",
    f"one by one: lists of bytes to a batch of {RECORDS_IN_A_BATCH} records and back",
)


@dataclass
class Speed:
    """Records a second of one piece of work, with and without the kernel."""

    name: str
    at_least: float | None
    records: int
    work: Callable[[], None]


def run(session: Session) -> list[Section]:
    """Measure every row that `--only` leaves."""
    table = Table(title="Kernel · million records a second", title_justify="left")
    for heading in ("work", C, NUMPY, "ratio", "target for the kernel"):
        table.add_column(heading, justify="left" if heading == "work" else "right")
    rows: list[JsonValue] = []
    tally = Tally()
    for speed in _speeds(session):
        if session.options.only not in speed.name:
            continue
        values = _measure(speed, session.options.pairs)
        ours, theirs = values.get(C), values.get(NUMPY)
        verdict = NOTHING
        if speed.at_least is not None:
            met = None if ours is None else ours >= speed.at_least
            tally.count(met)
            verdict = f"≥ {speed.at_least:g}" + (
                "" if met is None else " met" if met else " missed"
            )
        table.add_row(
            speed.name,
            *(NOTHING if each is None else f"{each:.1f}" for each in (ours, theirs)),
            f"{ours / theirs:.1f}" if ours and theirs else NOTHING,
            verdict,
        )
        rows.append({"row": speed.name, "unit": "million records/s", "values": dict(values)})
        session.say(f"{speed.name}: done")
    return [Section(table, {"title": "kernel", "rows": rows}, tally)]


def _measure(speed: Speed, rounds: int) -> dict[str, float]:
    values = {}
    for path in (C, NUMPY):
        if path == C and kernel.library() is None:
            continue
        with _path(path):
            speed.work()
            values[path] = speed.records / min(_timed(speed.work) for _ in range(rounds)) / 1e6
    return values


def _timed(work: Callable[[], None]) -> float:
    start = time.thread_time()
    work()
    return time.thread_time() - start


@contextmanager
def _path(path: str) -> Iterator[None]:
    loaded = kernel._loaded
    if path == NUMPY:
        kernel._loaded = None
    try:
        yield
    finally:
        kernel._loaded = loaded


def _speeds(session: Session) -> Iterator[Speed]:
    total = session.options.scaled(BYTES_PER_ROW)
    for size, decode, encode in ((100, 20.0, 20.0), (1000, None, None)):
        table = _table(total // size, size)
        name = f"{size}-byte records"
        log = _log(table, Codec.NONE)
        for crc in (False, True):
            title = f"decode {name}, {'with' if crc else 'without'} CRC"
            yield Speed(title, None if crc else decode, len(table), _decode(log, crc=crc))
        yield Speed(f"decode {name}, value alone", None, len(table), _decode(log, ["value"]))
        yield Speed(f"encode {name}", encode, len(table), _encode(table, 1))
        yield Speed(f"encode {name} with keys to 6 partitions", None, len(table), _encode(table, 6))
    table = _table(total // 100, 100)
    for codec in (Codec.LZ4, Codec.ZSTD):
        log = _log(table, codec)
        yield Speed(
            f"decode 100-byte records, {codec.name.lower()}", None, len(table), _decode(log)
        )
    yield from _one_by_one(total // 100)
    for count in (1, 100, 1000):
        for name, limits in CHECKS.items():
            rounds = total // 1000 // count + 1
            title = f"check a produced batch of {count}, {name}"
            yield Speed(title, None, rounds * count, _check(count, limits, rounds))


def _table(rows: int, size: int) -> pa.Table:
    """Return rows of half random bytes, so that codecs have something to do."""
    chance = random.Random(1)
    values = [chance.randbytes(size // 2) + bytes(size - size // 2) for _ in range(1000)]
    keys = [b"key-%06d" % number for number in range(1000)]
    times = -(-rows // 1000)
    return pa.table(
        {
            "key": pa.array(keys * times, pa.binary()),
            "value": pa.array(values * times, pa.binary()),
        }
    )


def _log(table: pa.Table, codec: Codec) -> list[bytes]:
    """Return the table as buffers of about a megabyte of batches."""
    rules = TableRules(1, 0, options=BatchOptions(codec=codec), batch_bytes=BATCH_BYTES)
    log, part = [], bytearray()
    for batch in batches_from_table(table, rules, TableColumns(key=None)):
        part += batch.data
        if len(part) + BATCH_BYTES > FETCH_BYTES:
            log.append(bytes(part))
            part.clear()
    return [*log, bytes(part)]


def _decode(
    log: list[bytes], names: list[str] | None = None, *, crc: bool = True
) -> Callable[[], None]:
    schema = table_schema()
    if names is not None:
        schema = pa.schema([schema.field(name) for name in names])
    selection = Selection(check_crcs=crc)

    def work() -> None:
        for buffer in log:
            decode_arrow([buffer], schema, topic="bench", partition=0, selection=selection)

    return work


def _encode(table: pa.Table, partitions: int) -> Callable[[], None]:
    columns = TableColumns() if partitions > 1 else TableColumns(key=None)
    rules = TableRules(partitions, 0, batch_bytes=BATCH_BYTES)

    def work() -> None:
        for _ in batches_from_table(table, rules, columns):
            pass

    return work


def _check(count: int, limits: ProduceLimits, rounds: int) -> Callable[[], None]:
    """What a leader does to a batch before it appends it, wherever it does it."""
    key = b"key-%06d"
    batch = encode_batch([Record(0, NOW_MS + n, key % n, bytes(100)) for n in range(count)])
    view = memoryview(bytearray(batch))

    def work() -> None:
        for _ in range(rounds):
            checked = validate_produced(view, limits, version=9, now_ms=NOW_MS)
            if limits.needs_preparation(checked):
                prepare(checked, limits)

    return work


def _one_by_one(records: int) -> Iterator[Speed]:
    count = RECORDS_IN_A_BATCH
    chance = random.Random(2)
    values = [chance.randbytes(100) for _ in range(count)]
    keys: list[bytes | None] = [b"key-%06d" % number for number in range(count)]
    times, options = list(range(count)), BatchOptions()
    batch = Batch(memoryview(encode_rows(times, keys, values, options=options)))
    rounds = records // count // 4 + 1
    shape = RecordShape(ConsumerRecord, "t", 0)

    def encode() -> None:
        for _ in range(rounds):
            encode_rows(times, keys, values, options=options)

    def decode() -> None:
        for _ in range(rounds):
            decode_batches([batch], shape)

    yield Speed("encode one by one, with keys", None, rounds * count, encode)
    yield Speed("decode one by one, with keys", None, rounds * count, decode)
