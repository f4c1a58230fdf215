"""`millstream log migrate`: convert a directory in message formats 0 and 1 to format 2."""

from __future__ import annotations

from typing import Annotated

import typer

from millstream.cli.arguments import AsJson
from millstream.cli.failures import CommandFailedError
from millstream.cli.log_files import DirectoryArgument, LogSelection, select_logs
from millstream.cli.output import counted, human_bytes, print_done, print_line, print_note
from millstream.cli.progress import Progress
from millstream.storage.environment import LogEnvironment
from millstream.storage.files import Lock
from millstream.storage.migration import MigratedSegment, PartitionMigration

DryRun = Annotated[
    bool, typer.Option("--dry-run", "-n", help="Show what would be converted, and change nothing.")
]


def migrate(directory: DirectoryArgument, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Convert message formats 0 and 1 (Kafka before 0.11) to format 2, in place.

    Offsets, timestamps, keys, values and codecs stay, and so do checkpoints and log starts; indexes
    are rebuilt. Stop the broker first: a directory in use is refused. It may be interrupted at any
    point and run again. Free space for the largest segment is needed.
    """
    selection = select_logs(directory)
    environment = LogEnvironment()
    lock = None if dry_run else _lock(environment, selection)
    migrated: list[MigratedSegment] = []
    try:
        with Progress(total_bytes=None) as progress:
            for partition, _ in selection.partitions:
                conversion = PartitionMigration(environment, partition, progress.add_bytes)
                for segment in conversion.run(dry_run=dry_run):
                    progress.add_records(segment.records)
                    migrated.append(segment)
                    _tell(segment, dry_run=dry_run, as_json=as_json)
    finally:
        if lock is not None:
            lock.release()
    if not as_json:
        _sum_up(migrated, len(selection.partitions), dry_run=dry_run)


def _lock(environment: LogEnvironment, selection: LogSelection) -> Lock:
    try:
        return environment.file_system.lock(selection.lock_path)
    except BlockingIOError:
        raise CommandFailedError(
            f"{selection.log_directory} is in use by process {selection.broker_process}: stop that "
            "broker, then convert"
        ) from None


def _tell(segment: MigratedSegment, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_line(
            {
                "file": segment.path,
                "messages": segment.messages,
                "records": None if dry_run else segment.records,
                "old_bytes": segment.old_bytes,
                "new_bytes": None if dry_run else segment.new_bytes,
                "torn_bytes": segment.torn_bytes,
            }
        )
        return
    said = (
        f"{segment.path}: {counted(segment.messages, 'message')}, {human_bytes(segment.old_bytes)}"
    )
    if not dry_run:
        said += f" -> {counted(segment.records, 'record')}, {human_bytes(segment.new_bytes)}"
    if segment.torn_bytes:
        verb = "would be" if dry_run else "were"
        said += (
            f"; {segment.torn_bytes} bytes at the end were not a complete message and {verb} "
            "left out"
        )
    print_done(
        said,
        segment.path,
        segment.messages,
        None if dry_run else segment.records,
        segment.old_bytes,
        None if dry_run else segment.new_bytes,
        segment.torn_bytes,
    )


def _sum_up(migrated: list[MigratedSegment], partitions: int, *, dry_run: bool) -> None:
    if not migrated:
        where = counted(partitions, "partition")
        print_note(f"nothing to convert in {where}: all messages are in format 2")
        return
    verb = "to convert (nothing was changed)" if dry_run else "converted"
    old_bytes = sum(segment.old_bytes for segment in migrated)
    print_note(f"{counted(len(migrated), 'segment')}, {human_bytes(old_bytes)}, {verb}")
