"""Reads every kind of file of a log directory into plain values, for `millstream log dump`.

Files are told apart by name; ``.deleted``, ``.cleaned`` and ``.swap`` behind the name change
nothing. Nothing is written and nothing is locked, so a broker may be running.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from millstream.cli.coordinator_text import DECODERS, Decoder, decoded_fields
from millstream.cli.failures import CommandFailedError
from millstream.cli.record_text import payload_fields
from millstream.config.properties import parse_properties
from millstream.model.errors import CorruptLogError
from millstream.records.batch import HEADER_SIZE, Batch, header_at
from millstream.records.compression import Codec
from millstream.records.control import parse_marker
from millstream.records.legacy import LegacyMessage
from millstream.records.legacy_records import iter_legacy_records
from millstream.records.log_entries import LogEntry, iter_log_entries
from millstream.records.record import Record, iter_records
from millstream.storage import checkpoint
from millstream.storage.damaged_files import parse_damaged_name
from millstream.storage.directory import (
    CLEANED,
    DELETED,
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    SWAP,
    parse_directory_name,
    parse_file_name,
)
from millstream.storage.files import LocalFileSystem
from millstream.storage.leader_epochs import LeaderEpochs
from millstream.storage.log_directory import CLEAN_SHUTDOWN_MARKER
from millstream.storage.producer_snapshot import decode_snapshot
from millstream.storage.torn_tail import BatchFinder

Entry: TypeAlias = dict[str, object]

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_ABORTED_ENTRY = struct.Struct(">hqqqq")
_OFFSET_CHECKPOINTS: Final = (
    checkpoint.RECOVERY_POINTS,
    checkpoint.LOG_START_OFFSETS,
    checkpoint.HIGH_WATERMARKS,
    checkpoint.CLEANER_OFFSETS,
)
_CODECS: Final = {codec.value: codec.name.lower() for codec in Codec}
_TIMESTAMP_TYPES: Final = ("create_time", "log_append_time")


def dump_file(
    path: Path, *, with_records: bool = False, decode: Decoder | None = None
) -> Iterator[Entry]:
    """Yield what a file holds, one value for each batch, entry or line.

    With records those of a coordinator's topic are decoded, told by the name of the directory or
    by ``decode``. Raises CommandFailedError for a file of no known kind, and the errors of
    ``storage`` and ``records`` where a file is damaged.
    """
    name = path.name
    for suffix in (DELETED, CLEANED, SWAP):
        name = name.removesuffix(suffix)
    if name in _WHOLE_FILES:
        yield from _WHOLE_FILES[name](path)
        return
    kept = parse_damaged_name(name)
    if kept is not None:
        yield from _dump_kept(path, kept.base_offset, with_records, decode or _decoder_of(path))
        return
    parsed = parse_file_name(name)
    if parsed is None:
        raise CommandFailedError(f"{path}: not the name of a log file")
    base_offset, extension = parsed
    if extension == ".log":
        yield from dump_batches(path, with_records=with_records, decode=decode or _decoder_of(path))
    else:
        yield from _BY_EXTENSION[extension](path, base_offset)


def _decoder_of(path: Path) -> Decoder | None:
    parsed = parse_directory_name(path.absolute().parent.name)
    return None if parsed is None else DECODERS.get(parsed[0].topic)


def dump_batches(path: Path, *, with_records: bool, decode: Decoder | None) -> Iterator[Entry]:
    """Yield the batches of a ``.log`` up to the first that fails its CRC, that one included.

    Raises CommandFailedError there, and where the batches end before the file does.
    """
    data = memoryview(LocalFileSystem().map(str(path)))
    end = 0
    try:
        for position, each in iter_log_entries(data):
            entry = _entry_with_records(each, position, with_records, decode)
            yield entry
            if not entry["is_valid"]:
                raise CommandFailedError(f"{path}: {damage_of(each, position)}")
            end = position + each.size
    except CorruptLogError:
        if any(data[end:]):
            raise
    if end < len(data) and any(data[end:]):
        raise CommandFailedError(
            f"{path}: {len(data) - end} bytes at position {end} are not a complete batch"
        )
    if end < len(data):
        yield {"position": end, "zeros": len(data) - end}


def _dump_kept(
    path: Path, base_offset: int, with_records: bool, decode: Decoder | None
) -> Iterator[Entry]:
    """Yield the valid batches of a file that recovery kept aside, and the bytes between them."""
    file = LocalFileSystem().open(str(path), writable=False)
    position, size = 0, file.size()
    finder = BatchFinder(file, size)
    while position < size:
        found = finder.next(position, base_offset)
        if found != position:
            yield {"position": position, "damaged": (size if found is None else found) - position}
        if found is None:
            return
        batch = header_at(file.read_at(found, header_at(file.read_at(found, HEADER_SIZE)).size))
        yield _entry_with_records(batch, found, with_records, decode)
        position = found + batch.size


def _entry_with_records(
    each: LogEntry, position: int, with_records: bool, decode: Decoder | None
) -> Entry:
    entry = describe_entry(each, position)
    if with_records and entry["is_valid"]:
        is_control = isinstance(each, Batch) and each.is_control
        used = None if is_control else decode
        entry["records"] = [describe_record(record, used) for record in _records(each)]
    return entry


def damage_of(entry: LogEntry, position: int) -> str:
    """Return what is to be said of a batch or message that fails its CRC."""
    kind, offset = (
        ("batch", entry.base_offset) if isinstance(entry, Batch) else ("message", entry.offset)
    )
    return f"the {kind} at offset {offset}, position {position}, fails its CRC"


def _records(entry: LogEntry) -> Iterator[Record]:
    return iter_records(entry) if isinstance(entry, Batch) else iter_legacy_records(entry)


def describe_entry(entry: LogEntry, position: int) -> Entry:
    """Return what stands in the header of a batch, or of a message of magic 0 or 1."""
    if isinstance(entry, LegacyMessage):
        return {
            "position": position,
            "size": entry.size,
            "magic": entry.magic,
            "offset": entry.offset,
            "codec": _CODECS.get(entry.codec, str(entry.codec)),
            "timestamp_type": _TIMESTAMP_TYPES[entry.is_log_append_time],
            "timestamp": entry.timestamp,
            "crc": entry.crc,
            "is_valid": entry.is_valid,
        }
    return _batch_entry(entry, position)


def _batch_entry(batch: Batch, position: int) -> Entry:
    is_valid = batch.is_valid
    entry: Entry = {
        "position": position,
        "size": batch.size,
        "magic": batch.magic,
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "count": batch.count,
        "leader_epoch": batch.partition_leader_epoch,
        "codec": _CODECS.get(batch.codec, str(batch.codec)),
        "timestamp_type": _TIMESTAMP_TYPES[batch.timestamp_type],
        "base_timestamp": batch.base_timestamp,
        "max_timestamp": batch.max_timestamp,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "is_transactional": batch.is_transactional,
        "is_control": batch.is_control,
        "crc": batch.crc,
        "is_valid": is_valid,
    }
    if batch.delete_horizon_ms is not None:
        entry["delete_horizon_ms"] = batch.delete_horizon_ms
    if batch.is_control and is_valid:
        marker = parse_marker(batch)
        if marker is not None:
            entry["marker"] = marker.control_type.name.lower()
            entry["coordinator_epoch"] = marker.coordinator_epoch
    return entry


def describe_record(record: Record, decode: Decoder | None = None) -> Entry:
    """Return a record as JSON can hold it."""
    if decode is not None:
        return {
            "offset": record.offset,
            "timestamp": record.timestamp,
            **decoded_fields(decode, record.key, record.value),
        }
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        **payload_fields("key", record.key),
        **payload_fields("value", record.value),
        "headers": [
            {"key": key, **payload_fields("value", value)} for key, value in record.headers
        ],
    }


def _entries(path: Path, format: struct.Struct) -> Iterator[tuple[int, ...]]:
    """Yield the entries of an index; a preallocated one ends where the zeros begin."""
    data = path.read_bytes()
    whole = len(data) - len(data) % format.size
    for fields in format.iter_unpack(memoryview(data)[:whole]):
        if not any(fields):
            break
        yield fields
    if whole < len(data):
        raise CommandFailedError(
            f"{path}: {len(data) - whole} bytes behind the last complete entry"
        )


def _dump_offset_index(path: Path, base_offset: int) -> Iterator[Entry]:
    for relative, position in _entries(path, _OFFSET_ENTRY):
        yield {"offset": base_offset + relative, "position": position}


def _dump_time_index(path: Path, base_offset: int) -> Iterator[Entry]:
    for timestamp, relative in _entries(path, _TIME_ENTRY):
        yield {"timestamp": timestamp, "offset": base_offset + relative}


def _dump_transaction_index(path: Path, _base_offset: int) -> Iterator[Entry]:
    names = ("version", "producer_id", "first_offset", "last_offset", "last_stable_offset")
    for fields in _ABORTED_ENTRY.iter_unpack(path.read_bytes()):
        yield dict(zip(names, fields, strict=True))


def _dump_snapshot(path: Path, _offset: int) -> Iterator[Entry]:
    for producer in decode_snapshot(path.read_bytes(), str(path)):
        last = producer.batches[-1] if producer.batches else None
        yield {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "last_sequence": producer.last_sequence,
            "last_offset": -1 if last is None else last.last_offset,
            "offset_delta": 0 if last is None else last.offset_delta,
            "timestamp": producer.last_timestamp,
            "coordinator_epoch": producer.coordinator_epoch,
            "current_txn_first_offset": producer.current_txn_first_offset,
        }


def _dump_leader_epochs(path: Path) -> Iterator[Entry]:
    for epoch, start_offset in LeaderEpochs.parse(path.read_text()).entries():
        yield {"epoch": epoch, "start_offset": start_offset}


def _dump_partition_metadata(path: Path) -> Iterator[Entry]:
    fields = dict(line.partition(": ")[::2] for line in path.read_text().splitlines())
    yield dict(fields)


def _dump_offset_checkpoint(path: Path) -> Iterator[Entry]:
    for topic_partition, offset in checkpoint.parse_offsets(path.read_text()).items():
        yield {
            "topic": topic_partition.topic,
            "partition": topic_partition.partition,
            "offset": offset,
        }


def _dump_properties(path: Path) -> Iterator[Entry]:
    yield dict(parse_properties(path.read_text()))


def _dump_marker(path: Path) -> Iterator[Entry]:
    """The clean-shutdown marker: JSON, or nothing at all from older versions of Kafka."""
    text = path.read_text()
    try:
        content = json.loads(text) if text.strip() else {}
    except ValueError:
        raise CommandFailedError(f"{path}: it is not JSON") from None
    yield {"clean_shutdown": True, **content}


_BY_EXTENSION: Final[Mapping[str, Callable[[Path, int], Iterator[Entry]]]] = {
    ".index": _dump_offset_index,
    ".timeindex": _dump_time_index,
    ".txnindex": _dump_transaction_index,
    ".snapshot": _dump_snapshot,
}
_WHOLE_FILES: Final[Mapping[str, Callable[[Path], Iterator[Entry]]]] = {
    LEADER_EPOCH_CHECKPOINT: _dump_leader_epochs,
    PARTITION_METADATA: _dump_partition_metadata,
    "meta.properties": _dump_properties,
    CLEAN_SHUTDOWN_MARKER: _dump_marker,
    **dict.fromkeys(_OFFSET_CHECKPOINTS, _dump_offset_checkpoint),
}
