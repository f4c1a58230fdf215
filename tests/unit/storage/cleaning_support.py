"""What the tests of the cleaner share: keyed records, a cleaning from end to end."""

from __future__ import annotations

from collections.abc import Sequence

from tests.unit.storage.support import NOW_MS, read_batches

from millstream.config.topic import TopicConfig
from millstream.model.offsets import Offset
from millstream.records.batch import Batch
from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.records.compression import Codec
from millstream.storage.cleanable import find_cleanable
from millstream.storage.cleaner import Cleaning
from millstream.storage.environment import LogEnvironment
from millstream.storage.log import AppendResult, Log
from millstream.storage.log_compaction import finish_swap, plan_cleaning, swap_in
from millstream.storage.new_offset_map import new_offset_map
from millstream.storage.offset_map import SLOT_BYTES, OffsetMap, PythonOffsetMap

SEED = bytes(range(16))

Pair = tuple[bytes | None, bytes | None]


def clean_now(log: Log, cleaning: Cleaning, *, now_ms: int) -> Offset:
    """Carry a cleaning out from the first step to the last, on one thread; return how far the log
    is clean: what goes into the checkpoint.
    """
    for group in cleaning.build_map():
        swap = swap_in(log, cleaning.clean_group(group), now_ms)
        swap.retire()
        finish_swap(swap, now_ms=now_ms)
        cleaning.sync_directory()
    return cleaning.end_offset


def compacted(**settings: str) -> TopicConfig:
    return TopicConfig(
        {
            "cleanup.policy": "compact",
            "internal.segment.bytes": "600",
            "index.interval.bytes": "100",
            "min.cleanable.dirty.ratio": "0",
        }
        | {name.replace("_", "."): text for name, text in settings.items()}
    )


def keyed_batch(
    pairs: Sequence[Pair],
    *,
    timestamps: Sequence[int] = (),
    codec: Codec = Codec.NONE,
    **options: int | bool,
) -> Batch:
    builder = BatchBuilder(BatchOptions(codec=codec, **options))  # type: ignore[arg-type]
    for number, (key, value) in enumerate(pairs):
        time = timestamps[number] if timestamps else NOW_MS
        builder.append(time, key, value, [("h", b"x")] if number % 2 else ())
    return Batch(memoryview(bytearray(builder.build())))


def put(
    log: Log,
    *pairs: Pair,
    timestamps: Sequence[int] = (),
    codec: Codec = Codec.NONE,
    **options: int | bool,
) -> AppendResult:
    batch = keyed_batch(pairs, timestamps=timestamps, codec=codec, **options)
    result = log.appender.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)
    log.offsets.update_high_watermark(log.log_end_offset)
    return result


def make_map(keys: int = 1000, *, kernel: bool = False) -> OffsetMap:
    """Return a map for so many keys, in the kernel where that is there if asked."""
    make = new_offset_map if kernel else PythonOffsetMap
    return make(keys * 2 * SLOT_BYTES, 0.5, SEED)


def clean(
    log: Log,
    checkpoint: int | None = None,
    *,
    now_ms: int = NOW_MS,
    keys: int = 1000,
    buffer_bytes: int = 200,
    kernel: bool = False,
) -> int:
    """Clean once and return the new checkpoint."""
    dirty = find_cleanable(log, checkpoint, now_ms=now_ms)
    if not dirty.dirty_bytes:
        return dirty.first_dirty_offset
    cleaning = Cleaning(
        LogEnvironment(file_system=log.local.environment.file_system),
        plan_cleaning(log, dirty, now_ms=now_ms),
        make_map(keys, kernel=kernel),
        buffer_bytes=buffer_bytes,
        on_bytes=lambda count: None,
    )
    return clean_now(log, cleaning, now_ms=now_ms)


def clean_all(log: Log, checkpoint: int | None = None, *, now_ms: int = NOW_MS, **more: int) -> int:
    """Clean until nothing is dirty but what may not be cleaned."""
    while True:
        done = clean(log, checkpoint, now_ms=now_ms, **more)  # type: ignore[arg-type]
        if done == checkpoint or not find_cleanable(log, done, now_ms=now_ms).dirty_bytes:
            return done
        checkpoint = done


def offsets_of(log: Log) -> list[int]:
    """Return the base offsets of all batches."""
    return [batch.base_offset for batch in read_batches(log, log.log_start_offset)]
