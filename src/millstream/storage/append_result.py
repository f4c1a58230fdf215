"""What an append to a log returns."""

from __future__ import annotations

from millstream.model.offsets import Offset


class AppendResult:
    """Where a batch went.

    ``log_append_time_ms`` is -1 unless the topic stamps records itself; for a duplicate it is the
    timestamp of the batch that is there already, as in Kafka.
    """

    __slots__ = (
        "base_offset",
        "duplicate",
        "last_offset",
        "log_append_time_ms",
        "log_start_offset",
    )

    def __init__(
        self,
        base_offset: Offset,
        last_offset: Offset,
        log_append_time_ms: int,
        log_start_offset: Offset,
        duplicate: bool = False,
    ) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.duplicate = duplicate
