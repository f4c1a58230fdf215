"""`/api/log`: the structure of a partition's log, for the drawing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from millstream.inspection.log_structure import log_structure, partition_directory
from millstream.model.errors import ConfigError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition


def log_view(
    directories: Sequence[Path], topic: str, partition: int, offset: Offset | None = None
) -> Mapping[str, object]:
    """Return the segments, indexes and batches of a log; what lies near ``offset`` first.

    Reads files: call it off the event loop. ConfigError when no log directory was given, or the
    partition lies in none.
    """
    if not directories:
        raise ConfigError("the console was started without --log-dir DIR, so it reads no log files")
    directory = partition_directory(directories, TopicPartition(topic, partition))
    return asdict(log_structure(directory, offset))
