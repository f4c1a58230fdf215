"""What a topic's settings ask of a produced batch, and the error that names single records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from millstream.model.errors import ErrorCode, KafkaError
from millstream.records.batch import CODEC_MASK, Batch
from millstream.records.compression import DEFAULT_MAX_BYTES, Codec

UNLIMITED_MS: Final = 2**63 - 1
"""``message.timestamp.before.max.ms`` unless set: any age."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceLimits:
    """Made once per topic configuration, asked once per produced batch."""

    max_message_bytes: int = 1_048_588
    is_compacted: bool = False
    log_append_time: bool = False
    timestamp_before_max_ms: int = UNLIMITED_MS
    timestamp_after_max_ms: int = 3_600_000
    codec: Codec | None = None
    """``compression.type``; None is ``producer``: as it came."""
    level: int | None = None
    """Compression level for ``codec``; None is Kafka's default."""
    max_decompressed_bytes: int = DEFAULT_MAX_BYTES
    """Cap on what a batch may hold where a rule makes the broker look inside."""
    looks_inside: bool = field(init=False)
    """True when a rule needs every record of every batch."""

    def __post_init__(self) -> None:
        inside = self.is_compacted or self.timestamp_before_max_ms < UNLIMITED_MS
        object.__setattr__(self, "looks_inside", inside)

    def needs_preparation(self, batch: Batch) -> bool:
        """True when ``batch`` must go through ``record_checks.prepare`` before it is appended."""
        return self.codec is not None and self.codec != batch.attributes & CODEC_MASK


@dataclass(frozen=True, slots=True)
class RecordError:
    """One record that a rule refuses: its index in the batch, and why."""

    batch_index: int
    message: str


class NotOneBatchError(KafkaError):
    """The bytes are not one batch of magic 2: no log was asked."""

    def __init__(self, message: str, error: ErrorCode = ErrorCode.INVALID_RECORD) -> None:
        super().__init__(error, message)


class RecordsRefusedError(KafkaError):
    """INVALID_RECORD or INVALID_TIMESTAMP with the records at fault (KIP-467)."""

    def __init__(
        self, error: ErrorCode, message: str, record_errors: tuple[RecordError, ...]
    ) -> None:
        super().__init__(error, message)
        self.record_errors = record_errors
