"""A log directory made by hand: what a broker that was stopped leaves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from millstream.records.builder import BatchOptions, encode_batch
from millstream.records.record import Record
from millstream.storage.log_directory import CLEAN_SHUTDOWN_MARKER

BATCH_RECORDS = 5


def write_topic(
    directory: Path, topic: str, partitions: Sequence[Sequence[tuple[int, bytes | None]]]
) -> None:
    """Write the records, each a time (ms) and a value, of each partition; 20 records a segment."""
    directory.mkdir(exist_ok=True)
    (directory / CLEAN_SHUTDOWN_MARKER).touch()
    for number, records in enumerate(partitions):
        path = directory / f"{topic}-{number}"
        path.mkdir()
        (path / f"{0:020}.log").touch()
        for base in range(0, len(records), 4 * BATCH_RECORDS):
            segment = records[base : base + 4 * BATCH_RECORDS]
            (path / f"{base:020}.log").write_bytes(b"".join(_batches(base, segment)))


def _batches(base: int, records: Sequence[tuple[int, bytes | None]]) -> Iterable[bytes]:
    for first in range(0, len(records), BATCH_RECORDS):
        yield encode_batch(
            (
                Record(base + first + delta, time_ms, b"k", value, ())
                for delta, (time_ms, value) in enumerate(records[first : first + BATCH_RECORDS])
            ),
            BatchOptions(base_offset=base + first),
        )
