"""The states of a delivered record, and what a consumer can say about it (KIP-932)."""

from __future__ import annotations

from enum import IntEnum


class RecordState(IntEnum):
    """The delivery state of a record (Kafka: ``RecordState``). The numbers are in the log."""

    AVAILABLE = 0
    ACQUIRED = 1
    """Delivered to one member, whose lock it is under. Never persisted."""
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """Not delivered again, and on its way to the dead-letter topic of the group (KIP-1191)."""
    ARCHIVED = 4
    """Not delivered again: rejected, delivered as often as allowed, aborted, or not in the log."""

    @property
    def is_terminal(self) -> bool:
        """True if the state does not change any more."""
        return self is RecordState.ACKNOWLEDGED or self is RecordState.ARCHIVED


class AcknowledgeType(IntEnum):
    """What a consumer says about a record (Kafka: ``AcknowledgeType``)."""

    GAP = 0
    """There is no such record: compacted away, or a control record."""
    ACCEPT = 1
    RELEASE = 2
    """Deliver it again."""
    REJECT = 3
    """Never deliver it again."""
    RENEW = 4
    """Still being processed: the lock starts anew (KIP-1222)."""


class AcquireMode(IntEnum):
    """How many records a fetch may acquire (KIP-1206)."""

    BATCH_OPTIMIZED = 0
    """Whole record batches: the last one may go beyond the limit."""
    RECORD_LIMIT = 1
    """Never more than the limit."""
