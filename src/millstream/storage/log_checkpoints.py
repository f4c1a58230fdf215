"""What the checkpoints of a log directory say of its logs: recovery points, log starts, high
watermarks (`LogDirectory.write_checkpoints`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.storage.log import Log

Offsets: TypeAlias = dict[TopicPartition, Offset]


def checkpoints_of(logs: Sequence[Log]) -> tuple[Offsets, Offsets, Offsets]:
    """Return the three; a log start is included only if the segment files do not imply it."""
    return (
        {log.topic_partition: log.durability.checkpoint_point for log in logs},
        {log.topic_partition: log.log_start_offset for log in logs if log.starts_inside_segment},
        {log.topic_partition: log.high_watermark for log in logs},
    )
