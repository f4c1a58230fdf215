"""The limits that a topic's settings put on produced batches, and the errors that refuse one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from millstream.model.errors import ErrorCode, KafkaError
from millstream.records.batch import CODEC_MASK, Batch
from millstream.records.compression import DEFAULT_MAX_BYTES, Codec
from millstream.records.produce_kernel import ProduceRules

UNLIMITED_MS: Final = 2**63 - 1
"""``message.timestamp.before.max.ms`` unless set: any age."""


class UncheckedBatch(Batch):
    """A produced batch whose header is valid and whose records ``record_checks.prepare`` still has
    to check: :meth:`ProduceLimits.needs_preparation`.
    """

    __slots__ = ("received_ms",)

    received_ms: int
    """When it was validated, in milliseconds since 1970: timestamps are compared with this time."""

    @classmethod
    def received(cls, buffer: memoryview, now_ms: int) -> UncheckedBatch:
        """Return the batch that fills ``buffer``."""
        batch = cls(buffer)
        batch.received_ms = now_ms
        return batch

    def copy(self) -> UncheckedBatch:
        """Return a copy of the batch, still unchecked."""
        return UncheckedBatch.received(memoryview(bytearray(self.buffer)), self.received_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceLimits:
    """Created once per topic configuration, used once per produced batch."""

    max_message_bytes: int = 1_048_588
    is_compacted: bool = False
    log_append_time: bool = False
    timestamp_before_max_ms: int = UNLIMITED_MS
    timestamp_after_max_ms: int = 3_600_000
    codec: Codec | None = None
    """``compression.type``; None is ``producer``: the batch's own codec."""
    level: int | None = None
    """Compression level for ``codec``; None is Kafka's default."""
    is_strict: bool = False
    """``record.validation=strict``: the records of every batch are checked, compressed or not."""
    max_decompressed_bytes: int = DEFAULT_MAX_BYTES
    """Cap on the decompressed size of a batch whose records a rule has to check."""
    looks_inside: bool = field(init=False)
    """True when a rule needs every record of every batch, compressed ones too."""
    rules: ProduceRules = field(init=False, repr=False, compare=False)
    """The rules in the kernel's form."""
    rules_address: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        inside = self.is_strict or self.is_compacted or self.timestamp_before_max_ms < UNLIMITED_MS
        object.__setattr__(self, "looks_inside", inside)
        rules = ProduceRules(
            before_ms=self.timestamp_before_max_ms,
            after_ms=self.timestamp_after_max_ms,
            needs_keys=self.is_compacted,
            any_time=self.log_append_time,
            max_bytes=self.max_message_bytes,
            looks_inside=inside,
            codec=-1 if self.codec is None else self.codec,
        )
        object.__setattr__(self, "rules", rules)
        object.__setattr__(self, "rules_address", rules.address)

    def recompresses(self, batch: Batch) -> bool:
        """True when ``batch`` is stored in another codec than it has."""
        return self.codec is not None and self.codec != batch.attributes & CODEC_MASK

    def needs_preparation(self, batch: Batch) -> bool:
        """True when ``batch`` must go through ``record_checks.prepare`` before it is appended: its
        records still have to be checked or recompressed, which takes too long for the event loop.
        """
        return isinstance(batch, UncheckedBatch) or (
            self.codec is not None and self.recompresses(batch)
        )


@dataclass(frozen=True, slots=True)
class RecordError:
    """One record that a rule refuses: its index in the batch, and why (KIP-467)."""

    batch_index: int
    message: str


class NotOneBatchError(KafkaError):
    """The bytes are not one batch of magic 2; raised before any log is involved."""

    def __init__(self, message: str, error: ErrorCode = ErrorCode.INVALID_RECORD) -> None:
        super().__init__(error, message)


class RecordsRefusedError(KafkaError):
    """INVALID_RECORD or INVALID_TIMESTAMP with the records at fault (KIP-467)."""

    def __init__(
        self, error: ErrorCode, message: str, record_errors: tuple[RecordError, ...]
    ) -> None:
        super().__init__(error, message)
        self.record_errors = record_errors
