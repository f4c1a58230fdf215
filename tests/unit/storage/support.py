"""What the tests of storage share: small logs, batches, and how to look at both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from millstream.config.topic import TopicConfig
from millstream.model.topic import TopicPartition
from millstream.records.batch import Batch, iter_batches
from millstream.records.builder import BatchOptions, encode_batch
from millstream.records.control import (
    ControlType,
    EndTransactionMarker,
    MarkerBatch,
    parse_marker,
)
from millstream.records.record import Record, read_records
from millstream.storage.directory import PartitionDirectory
from millstream.storage.environment import LogEnvironment
from millstream.storage.loader import LoadOptions
from millstream.storage.log import (
    AppendResult,
    Log,
    ReadAhead,
    TimestampLookup,
    TimestampOffset,
)

NOW_MS = 1_700_000_000_000
TOPIC_PARTITION = TopicPartition("orders", 0)
WHOLE = 1 << 30

SMALL = TopicConfig({"internal.segment.bytes": "1000", "index.interval.bytes": "100"})
ONE_SEGMENT = TopicConfig({"index.interval.bytes": "100"})


def place(root: Path) -> PartitionDirectory:
    return PartitionDirectory(str(root), "orders-0", TOPIC_PARTITION)


def create_log(
    root: Path, config: TopicConfig = SMALL, environment: LogEnvironment | None = None
) -> Log:
    return Log.create(
        environment or LogEnvironment(), place(root), config, topic_id=None, now_ms=NOW_MS
    )


def reopen(
    root: Path,
    config: TopicConfig = SMALL,
    *,
    clean: bool = True,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    environment: LogEnvironment | None = None,
) -> Log:
    log = Log.open(
        environment or LogEnvironment(),
        place(root),
        config,
        LoadOptions(
            now_ms=NOW_MS,
            had_clean_shutdown=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
        ),
    )
    log.offsets.update_high_watermark(log.log_end_offset)
    return log


def close(log: Log) -> None:
    plan = log.close()
    if plan is not None:
        plan.run()
        log.flushed(plan)


def values_batch(
    values: Sequence[bytes], *, timestamps: Sequence[int] | None = None, **options: int | bool
) -> Batch:
    times = timestamps or [NOW_MS] * len(values)
    records = [Record(n, times[n], None, value) for n, value in enumerate(values)]
    data = encode_batch(records, BatchOptions(**options))  # type: ignore[arg-type]
    return Batch(memoryview(bytearray(data)))


def append(
    log: Log,
    *values: bytes,
    timestamps: Sequence[int] | None = None,
    epoch: int = 0,
    now_ms: int = NOW_MS,
    commit: bool = True,
    **options: int | bool,
) -> AppendResult:
    batch = values_batch(values, timestamps=timestamps, **options)
    result = log.appender.append_as_leader(batch, leader_epoch=epoch, now_ms=now_ms)
    if commit:
        log.offsets.update_high_watermark(log.log_end_offset)
    return result


def append_marker(
    log: Log, producer_id: int, *, commit: bool, producer_epoch: int = 0, coordinator_epoch: int = 0
) -> AppendResult:
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    marker = MarkerBatch.of(
        EndTransactionMarker(kind, coordinator_epoch),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timestamp_ms=NOW_MS,
    )
    return log.appender.append_marker(marker, leader_epoch=0, now_ms=NOW_MS)


def look_up_time(log: Log, timestamp: int | None) -> TimestampOffset | None:
    """Return the first record at or after a timestamp, for None the first with the largest one; it
    waits for the disk.
    """
    found = log.reader.look_up(TimestampLookup(timestamp))
    assert not isinstance(found, ReadAhead)
    return found


def read_batches(log: Log, offset: int, max_bytes: int = WHOLE) -> list[Batch]:
    """Return whole batches from ``offset`` to the log end, over all segments."""
    found: list[Batch] = []
    while offset < log.log_end_offset:
        read = log.reader.read(
            offset,
            max_bytes=max_bytes,
            upper_bound_offset=log.log_end_offset,
            min_one_batch=True,
        )
        if read.records is None:
            break
        batches = list(iter_batches(read.records.read()))
        assert batches, "a read that found something holds a whole batch"
        found += batches
        offset = batches[-1].next_offset
    return found


def read_values(
    log: Log, offset: int = 0, max_bytes: int = WHOLE
) -> list[tuple[int, bytes | None]]:
    """Return (offset, value) of every data record from ``offset`` on."""
    return [
        (record.offset, record.value)
        for batch in read_batches(log, offset, max_bytes)
        if not batch.is_control
        for record in read_records(batch)
        if record.offset >= offset
    ]


def files_of(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "orders-0").iterdir())


def read_committed(
    log: Log, offset: int | None = None, max_bytes: int = WHOLE, *, up_to: int | None = None
) -> list[bytes]:
    """Return the values that a committed reader sees from ``offset`` on, in fetches of
    ``max_bytes``, as consumers work them out from batches and aborted transactions.
    """
    values: list[bytes] = []
    position = log.log_start_offset if offset is None else offset
    end = log.last_stable_offset if up_to is None else up_to
    while position < end:
        read = log.reader.read(
            position,
            max_bytes=max_bytes,
            upper_bound_offset=end,
            min_one_batch=True,
            with_aborted=True,
        )
        if read.records is None:
            break
        batches = list(iter_batches(read.records.read()))
        aborted = sorted(read.aborted or (), key=lambda each: each.first_offset)
        open_aborted: set[int] = set()
        for batch in batches:
            while aborted and aborted[0].first_offset <= batch.last_offset:
                open_aborted.add(aborted.pop(0).producer_id)
            if batch.is_control:
                marker = parse_marker(batch)
                if marker is not None and marker.control_type is ControlType.ABORT:
                    open_aborted.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in open_aborted):
                values += [
                    bytes(record.value or b"")
                    for record in read_records(batch)
                    if record.offset >= position
                ]
        assert batches, f"nothing to read at {position}"
        position = batches[-1].next_offset
    return values
