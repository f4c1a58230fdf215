"""Checkpoint files: text with a version, a count and that many lines.

::

    0
    2
    orders 0 1500
    orders 1 1720

The four of a log directory have lines ``topic partition offset``:

``recovery-point-offset-checkpoint``   the offset below which everything is flushed
``log-start-offset-checkpoint``        log starts that lie inside a segment
``replication-offset-checkpoint``      high watermarks
``cleaner-offset-checkpoint``          the first dirty offset of compaction

Each is written whole beside the old one, flushed and renamed. Kafka: ``CheckpointFile``,
``OffsetCheckpointFile``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from millstream.model.errors import MillstreamError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"

VERSION: Final = 0
_LINE: Final = re.compile(r"([^ ]*) (\d{1,10}) (-?\d{1,19})", re.ASCII)
_MAX_OFFSET: Final = (1 << 63) - 1


class CorruptCheckpointError(MillstreamError):
    """The text is not that of a checkpoint. The caller recomputes what it held."""


def format_lines(lines: Iterable[str]) -> str:
    """Put version and count before the lines."""
    listed = list(lines)
    return "\n".join([str(VERSION), str(len(listed)), *listed]) + "\n"


def parse_lines(text: str) -> list[str]:
    """Return the lines after version and count. Raises CorruptCheckpointError.

    The last line must end with a newline as well: after a power loss a file may end early, with
    ``33`` cut to ``3``, and only the missing newline shows it.
    """
    lines = text.split("\n")
    if lines.pop() != "":
        raise CorruptCheckpointError("the last line is cut off")
    if len(lines) < 2 or not lines[1].isdecimal():
        raise CorruptCheckpointError("version and count are missing")
    if lines[0] != str(VERSION):
        raise CorruptCheckpointError(f"version {lines[0]!r} is not known")
    if int(lines[1]) != len(lines) - 2:
        raise CorruptCheckpointError(f"{len(lines) - 2} lines where {lines[1]} are announced")
    return lines[2:]


def format_offsets(offsets: Mapping[TopicPartition, Offset]) -> str:
    """Return the text of an offset checkpoint."""
    return format_lines(
        f"{topic_partition.topic} {topic_partition.partition} {offset}"
        for topic_partition, offset in offsets.items()
    )


def parse_offsets(text: str) -> dict[TopicPartition, Offset]:
    """Read the text of an offset checkpoint. Raises CorruptCheckpointError."""
    offsets = {}
    for line in parse_lines(text):
        match = _LINE.fullmatch(line)
        if match is None or int(match[3]) > _MAX_OFFSET:
            raise CorruptCheckpointError(f"not a topic, partition and offset: {line!r}")
        offsets[TopicPartition(match[1], int(match[2]))] = int(match[3])
    return offsets
