"""Where the commands of `millstream log` find their files, and whether a broker uses them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from millstream.cli.failures import CommandFailedError
from millstream.cli.serve_arguments import DEFAULT_DATA_DIRECTORY
from millstream.model.topic import TopicPartition
from millstream.storage.directory import (
    CLUSTER_METADATA_TOPIC,
    LOG,
    DirectoryKind,
    PartitionDirectory,
    parse_directory_name,
    parse_file_name,
)
from millstream.storage.log_directory import LOCK_FILE
from millstream.storage.meta_properties import FILE_NAME as META_PROPERTIES
from millstream.storage.record_lock import lock_holder

DirectoryArgument: TypeAlias = Annotated[
    Path,
    typer.Argument(
        metavar="DIR",
        exists=True,
        file_okay=False,
        help="A log directory (an entry of log.dirs), or the directory of one partition.",
    ),
]
DataDirectories: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option(
        "--data-dir",
        "-d",
        help=f"Where to look for the partition; may be repeated. By default "
        f"./{DEFAULT_DATA_DIRECTORY}.",
    ),
]

_SKIPPED: Final = (DirectoryKind.DELETE,)


@dataclass(frozen=True, slots=True)
class LogSelection:
    """A log directory and those of its partitions that a command is about."""

    log_directory: str
    partitions: list[tuple[PartitionDirectory, DirectoryKind]]
    is_whole: bool
    """True for a log directory with everything in it, False for one partition."""

    @property
    def lock_path(self) -> str:
        """The file that a broker at work has locked."""
        return f"{self.log_directory}/{LOCK_FILE}"

    @property
    def broker_process(self) -> int | None:
        """Process id of the broker that uses the directory now, None when none does."""
        return lock_holder(self.lock_path)


def select_logs(directory: Path) -> LogSelection:
    """Tell a log directory from a partition's by its name and content.

    Raises CommandFailedError when it is neither.
    """
    path = _with_name(directory)
    parsed = parse_directory_name(path.name)
    is_partition = parsed is not None and not (path / META_PROPERTIES).exists()
    if parsed is not None and is_partition and _has_segments(path):
        partition = PartitionDirectory(str(path.parent), path.name, parsed[0])
        return LogSelection(str(path.parent), [(partition, parsed[1])], is_whole=False)
    found: list[tuple[PartitionDirectory, DirectoryKind]] = []
    for name in sorted(os.listdir(path)):
        parsed = parse_directory_name(name)
        if parsed is None or parsed[0].topic == CLUSTER_METADATA_TOPIC or parsed[1] in _SKIPPED:
            continue
        if (path / name).is_dir():
            found.append((PartitionDirectory(str(path), name, parsed[0]), parsed[1]))
    if not found and not (path / META_PROPERTIES).exists():
        raise CommandFailedError(
            f"{directory} is not a log directory: it has no meta.properties and no directories "
            "like orders-0"
        )
    found.sort(key=lambda each: (each[0].topic_partition, each[0].name))
    return LogSelection(str(path), found, is_whole=True)


def find_partition(name: str, data_directories: list[Path] | None) -> PartitionDirectory:
    """Return the directory of ``TOPIC-PARTITION``, which may be a path to it as well.

    Raises CommandFailedError that says where was looked.
    """
    path = _with_name(Path(name))
    parsed = parse_directory_name(path.name)
    if parsed is not None and path.is_dir() and _has_segments(path):
        return PartitionDirectory(str(path.parent), path.name, parsed[0])
    parsed = parse_directory_name(name)
    if parsed is None:
        raise typer.BadParameter(f"{name!r} is not TOPIC-PARTITION, such as orders-0")
    directories = data_directories or [Path(DEFAULT_DATA_DIRECTORY)]
    for directory in directories:
        if (directory / name).is_dir():
            return PartitionDirectory(str(directory), name, parsed[0])
    looked = ", ".join(map(str, directories))
    raise CommandFailedError(
        f"there is no {name} in {looked}: give --data-dir DIR, or the path of its "
        f"directory{_neighbours(directories, parsed[0])}"
    )


def _with_name(path: Path) -> Path:
    """Return the path as it was given, but for one like ``.`` that does not tell its name."""
    return path if path.name not in ("", "..") else Path(os.path.abspath(path))


def _has_segments(path: Path) -> bool:
    return any((parsed := parse_file_name(name)) and parsed[1] == LOG for name in os.listdir(path))


def _neighbours(directories: list[Path], wanted: TopicPartition) -> str:
    """Name what lies there of the same topic, for a partition that was mistyped."""
    found = []
    for directory in filter(Path.is_dir, directories):
        for name in sorted(os.listdir(directory)):
            parsed = parse_directory_name(name)
            if parsed is not None and parsed[0].topic == wanted.topic:
                found.append(name)
    return f" (there: {', '.join(found[:5])})" if found else ""
