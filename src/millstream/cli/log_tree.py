"""`millstream log tree`: partitions, segments and sizes of a log directory as a tree."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.cli.arguments import AsJson
from millstream.cli.log_dump import dump_file
from millstream.cli.log_files import DirectoryArgument, LogSelection, select_logs
from millstream.cli.output import (
    counted,
    human_bytes,
    is_for_a_person,
    print_cells,
    print_line,
)
from millstream.model.errors import MillstreamError
from millstream.model.topic import TopicPartition
from millstream.storage.damaged_files import parse_damaged_name
from millstream.storage.directory import (
    LOG,
    OFFSET_INDEX,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    DirectoryKind,
    PartitionDirectory,
    file_name,
    parse_file_name,
)
from millstream.storage.offset_index import OffsetIndex
from millstream.storage.time_index import TimeIndex

if TYPE_CHECKING:
    from rich.tree import Tree

_INDEX_ENTRY_BYTES: Final = {OFFSET_INDEX: OffsetIndex.entry.size, TIME_INDEX: TimeIndex.entry.size}


@dataclass(slots=True)
class SegmentSizes:
    """Bytes of a segment's log, and how many entries its indexes have."""

    base_offset: int
    log_bytes: int
    index_entries: int = 0
    time_index_entries: int = 0
    aborted_transactions: int = 0


@dataclass(slots=True)
class PartitionSizes:
    """What lies in a partition's directory."""

    topic_partition: TopicPartition
    name: str
    kind: str
    topic_id: str | None
    segments: list[SegmentSizes] = field(default_factory=list)
    snapshots: int = 0
    damaged_files: dict[str, int] = field(default_factory=dict)
    """Bytes of the files that recovery kept aside, by name."""
    other_files: list[str] = field(default_factory=list)

    @property
    def log_bytes(self) -> int:
        """Bytes of all logs."""
        return sum(segment.log_bytes for segment in self.segments)


def tree(directory: DirectoryArgument, as_json: AsJson = False) -> None:
    """Draw the partitions of a log directory, their segments and sizes.

    Into a pipe it prints one line for each segment: topic, partition, kind of directory, file,
    bytes, entries of the offset index and of the time index, aborted transactions. With --json it
    prints one line for each partition. A broker may be running.
    """
    selection = select_logs(directory)
    if as_json:
        for partition in _partitions(selection):
            print_line(_as_json(partition))
        return
    if not is_for_a_person():
        for partition in _partitions(selection):
            _print_segments(partition)
        return
    _print_tree(selection, list(_partitions(selection)))


def _partitions(selection: LogSelection) -> Iterator[PartitionSizes]:
    for directory, kind in selection.partitions:
        if os.path.isdir(directory.path):
            yield _measure(directory, kind)


def _measure(directory: PartitionDirectory, kind: DirectoryKind) -> PartitionSizes:
    sizes = {}
    with os.scandir(directory.path) as entries:
        for entry in entries:
            try:
                sizes[entry.name] = entry.stat().st_size
            except FileNotFoundError:
                continue  # deleted while we look
    found = PartitionSizes(
        directory.topic_partition, directory.name, kind.value, _topic_id(directory)
    )
    for name in sorted(sizes):
        parsed = parse_file_name(name)
        if parse_damaged_name(name) is not None:
            found.damaged_files[name] = sizes[name]
        elif parsed is None:
            found.other_files.append(name)
        elif parsed[1] == LOG:
            found.segments.append(_segment(directory, parsed[0], sizes))
        elif parsed[1] == PRODUCER_SNAPSHOT:
            found.snapshots += 1
    return found


def _segment(
    directory: PartitionDirectory, base_offset: int, sizes: dict[str, int]
) -> SegmentSizes:
    counts = {}
    for extension, entry_bytes in _INDEX_ENTRY_BYTES.items():
        path = Path(directory.file(file_name(base_offset, extension)))
        used = len(path.read_bytes().rstrip(b"\0")) if path.exists() else 0
        counts[extension] = -(-used // entry_bytes)
    aborted = sizes.get(file_name(base_offset, TRANSACTION_INDEX), 0) // 34
    return SegmentSizes(
        base_offset,
        sizes[file_name(base_offset, LOG)],
        counts[OFFSET_INDEX],
        counts[TIME_INDEX],
        aborted,
    )


def _topic_id(directory: PartitionDirectory) -> str | None:
    path = Path(directory.file(PARTITION_METADATA))
    try:
        entry = next(iter(dump_file(path)))
    except (OSError, MillstreamError):
        return None
    return str(entry.get("topic_id"))


def _as_json(partition: PartitionSizes) -> dict[str, object]:
    return {
        "partition": partition.name,
        "kind": partition.kind or "current",
        "topic_id": partition.topic_id,
        "log_bytes": partition.log_bytes,
        "snapshots": partition.snapshots,
        "segments": [
            {
                "base_offset": segment.base_offset,
                "log_bytes": segment.log_bytes,
                "index_entries": segment.index_entries,
                "time_index_entries": segment.time_index_entries,
                "aborted_transactions": segment.aborted_transactions,
            }
            for segment in partition.segments
        ],
        "damaged_files": [
            {"name": name, "bytes": size} for name, size in partition.damaged_files.items()
        ],
        "other_files": partition.other_files,
    }


def _print_tree(selection: LogSelection, partitions: list[PartitionSizes]) -> None:
    from rich.console import Console
    from rich.tree import Tree

    total = sum(partition.log_bytes for partition in partitions)
    process = selection.broker_process
    used = "" if process is None else f", in use by process {process}"
    size = f"{counted(len(partitions), 'partition')}, {human_bytes(total)}"
    root = Tree(f"{selection.log_directory}  {size}{used}")
    for partition in partitions:
        _add(root, partition)
    Console(markup=False, highlight=False).print(root)


def _print_segments(partition: PartitionSizes) -> None:
    place = (
        partition.topic_partition.topic,
        partition.topic_partition.partition,
        partition.kind or "current",
    )
    for each in partition.segments:
        print_cells(
            [
                *place,
                file_name(each.base_offset, LOG),
                each.log_bytes,
                each.index_entries,
                each.time_index_entries,
                each.aborted_transactions,
            ]
        )
    for name, size in partition.damaged_files.items():
        print_cells([*place, name, size, None, None, None])


def _add(root: Tree, partition: PartitionSizes) -> None:
    pieces = [
        partition.name,
        f"  {counted(len(partition.segments), 'segment')}, {human_bytes(partition.log_bytes)}",
    ]
    if partition.kind:
        pieces.append(f" ({partition.kind})")
    branch = root.add("".join(pieces), style="bold" if partition.kind == "" else "dim")
    width = max((len(human_bytes(s.log_bytes)) for s in partition.segments), default=0)
    for segment in partition.segments:
        notes = [
            f"{human_bytes(segment.log_bytes):>{width}}",
            counted(segment.index_entries, "index entry", "index entries"),
            counted(segment.time_index_entries, "time entry", "time entries"),
        ]
        if segment.aborted_transactions:
            notes.append(f"{segment.aborted_transactions} aborted")
        branch.add(f"{file_name(segment.base_offset, LOG)}  {', '.join(notes)}", style="not bold")
    for name, size in partition.damaged_files.items():
        branch.add(f"{name}  {human_bytes(size)}, kept aside by a recovery", style="not bold")
