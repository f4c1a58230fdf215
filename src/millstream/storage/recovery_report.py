"""The progress and the outcome of recovery."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.model.offsets import Offset


@dataclass(slots=True)
class RecoveryCounter:
    """The progress of one recovery thread; any thread may read it."""

    logs: int = 0
    segments: int = 0
    scanned_bytes: int = 0


@dataclass(slots=True)
class RecoveryReport:
    """What recovery did to one log.

    ``truncated_at`` is the log end offset at which a bad batch was met, None if none was. It is a
    torn tail when nothing valid follows: bytes that were being written when the machine stopped.
    Otherwise records were lost that had been written whole.
    """

    scanned_bytes: int = 0
    truncated_bytes: int = 0
    truncated_at: Offset | None = None
    is_torn_tail: bool = True
