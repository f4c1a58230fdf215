"""`millstream log verify`: check every file of a log directory against every other."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from millstream.cli.arguments import AsJson
from millstream.cli.failures import FAILED
from millstream.cli.log_files import DirectoryArgument, LogSelection, select_logs
from millstream.cli.output import counted, human_bytes, print_done, print_line, print_note
from millstream.cli.progress import Progress
from millstream.model.topic import TopicPartition
from millstream.storage.directory import DirectoryKind
from millstream.storage.files import LocalFileSystem
from millstream.storage.verify.log_directory import verify_directory_files
from millstream.storage.verify.partition import (
    PartitionReport,
    VerifyOptions,
    verify_partition,
)
from millstream.storage.verify.problem import Problem

WithRecords = Annotated[
    bool,
    typer.Option("--records", "-r", help="Decompress every batch and check its records as well."),
]


def verify(
    directory: DirectoryArgument, records: WithRecords = False, as_json: AsJson = False
) -> None:
    """Check every CRC, offset, index entry, epoch, transaction, snapshot and checkpoint.

    Each problem is one line: the file, the byte (or line) in it, what is wrong, and what a broker
    does about it. Files that recovery set aside are listed, and do not count as problems. The exit
    code is 0 if there are no problems, and 1 otherwise. A broker may be running: nothing is written
    or locked, and a batch that is being written does not count as a problem.
    """
    selection = select_logs(directory)
    is_live = selection.broker_process is not None
    total = 0
    reports: dict[TopicPartition, PartitionReport] = {}
    found = _Found(selection, as_json)
    with Progress(total_bytes=_log_bytes(selection), shows_records=False) as progress:
        options = VerifyOptions(is_live=is_live, with_records=records, on_bytes=progress.add_bytes)
        for partition, kind in selection.partitions:
            try:
                report = verify_partition(LocalFileSystem(), partition, options)
            except FileNotFoundError:
                if not is_live:
                    raise
                continue  # a topic that was deleted meanwhile
            if kind is DirectoryKind.CURRENT:
                reports[partition.topic_partition] = report
            total += report.bytes
            found.segments += report.segments
            found.tell(report.problems)
            found.tell_kept(report.damaged_files)
    if selection.is_whole:
        files = verify_directory_files(
            LocalFileSystem(), selection.log_directory, reports, is_live=is_live
        )
        found.tell(list(files))
    found.sum_up(total, is_live=is_live)
    if found.count:
        raise typer.Exit(FAILED)


class _Found:
    """Prints problems as they come, and counts them."""

    def __init__(self, selection: LogSelection, as_json: bool) -> None:
        self._selection = selection
        self._as_json = as_json
        self.count = 0
        self.segments = 0

    def tell(self, problems: list[Problem]) -> None:
        for problem in problems:
            self.count += 1
            if self._as_json:
                print_line(
                    {
                        "file": problem.path,
                        "position": problem.position,
                        "problem": problem.what,
                        "broker": problem.broker,
                    }
                )
                continue
            name = os.path.relpath(problem.path, self._selection.log_directory)
            position = "" if problem.position is None else f" @{problem.position}"
            told = f"{name}{position}: {problem.what}. What happens: {problem.broker}."
            print_done(told, name, problem.position, problem.what, problem.broker)

    def tell_kept(self, damaged_files: dict[str, int]) -> None:
        for path, size in damaged_files.items():
            if self._as_json:
                print_line({"file": path, "kept_bytes": size})
                continue
            name = os.path.relpath(path, self._selection.log_directory)
            print_note(
                f"{name}: {human_bytes(size)} that a recovery cut off and kept aside, for valid "
                "records are in it. No broker reads it; `millstream log dump` does"
            )

    def sum_up(self, total_bytes: int, *, is_live: bool) -> None:
        partitions = len(self._selection.partitions)
        if self._as_json:
            print_line(
                {
                    "partitions": partitions,
                    "segments": self.segments,
                    "bytes": total_bytes,
                    "problems": self.count,
                    "broker_process": self._selection.broker_process,
                }
            )
            return
        live = f", in use by process {self._selection.broker_process}" if is_live else ""
        verdict = counted(self.count, "problem") if self.count else "no problems"
        print_note(
            f"{self._selection.log_directory}: {counted(partitions, 'partition')}, "
            f"{counted(self.segments, 'segment')}, {human_bytes(total_bytes)}{live}: {verdict}"
        )


def _log_bytes(selection: LogSelection) -> int:
    total = 0
    for partition, _ in selection.partitions:
        with os.scandir(partition.path) as entries:
            total += sum(entry.stat().st_size for entry in entries if entry.name.endswith(".log"))
    return total
