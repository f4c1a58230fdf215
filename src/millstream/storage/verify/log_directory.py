"""Checks the files of a log directory that are not a partition's: checkpoints, owner, marker."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

from millstream.model.errors import ConfigError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.storage.checkpoint import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    CorruptCheckpointError,
    parse_offsets,
)
from millstream.storage.files import FileSystem, read_file
from millstream.storage.log_directory import CLEAN_SHUTDOWN_MARKER
from millstream.storage.meta_properties import read_meta_properties
from millstream.storage.verify.partition import PartitionReport
from millstream.storage.verify.problem import Problem

_UNREADABLE: Final = {
    RECOVERY_POINTS: "a broker recovers every log from its start",
    LOG_START_OFFSETS: "a broker serves records again that were deleted",
    HIGH_WATERMARKS: "a broker takes the log start for every high watermark",
    CLEANER_OFFSETS: "a broker compacts every log from its start",
}
_BEYOND: Final = {
    RECOVERY_POINTS: "a broker takes the log end",
    LOG_START_OFFSETS: "a broker drops the whole log and starts again at that offset",
    HIGH_WATERMARKS: "a broker takes the log end",
    CLEANER_OFFSETS: "a broker compacts the log from its start",
}


def verify_directory_files(
    file_system: FileSystem,
    directory: str,
    reports: Mapping[TopicPartition, PartitionReport],
    *,
    is_live: bool,
) -> Iterator[Problem]:
    """Yield what is wrong with the checkpoints, ``meta.properties`` and the marker; ``reports``
    says where the logs begin and end. With ``is_live`` offsets have moved on meanwhile, so they
    are not compared.
    """
    for name in (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS):
        path = f"{directory}/{name}"
        try:
            text = read_file(file_system, path).decode("utf-8", "replace")
            offsets = parse_offsets(text)
        except FileNotFoundError:
            continue
        except CorruptCheckpointError as error:
            yield Problem(path, None, str(error), _UNREADABLE[name])
            continue
        if not is_live:
            yield from _compare(path, name, offsets, reports)
    try:
        read_meta_properties(file_system, directory)
    except ConfigError as error:
        path = f"{directory}/meta.properties"
        what = str(error).removeprefix(f"{path}: ")
        yield Problem(path, None, what, "a broker refuses to start")
    yield from _marker(file_system, f"{directory}/{CLEAN_SHUTDOWN_MARKER}")


def _compare(
    path: str,
    name: str,
    offsets: Mapping[TopicPartition, Offset],
    reports: Mapping[TopicPartition, PartitionReport],
) -> Iterator[Problem]:
    for number, (partition, offset) in enumerate(offsets.items()):
        report = reports.get(partition)
        if report is not None and report.segments and offset > report.log_end_offset:
            what = f"{partition} has {offset}, and its log ends at {report.log_end_offset}"
            yield Problem(path, number + 3, what, _BEYOND[name])


def _marker(file_system: FileSystem, path: str) -> Iterator[Problem]:
    """The marker is JSON, or empty as older versions of Kafka wrote it."""
    try:
        data = read_file(file_system, path)
    except FileNotFoundError:
        return
    try:
        if data:
            json.loads(data)
    except ValueError:
        broker = "Millstream goes by its being there; Apache Kafka refuses to use its broker epoch"
        yield Problem(path, 0, "it is not JSON", broker)
