"""The flushes of one partition: when one is asked for, and what it makes count when it is done.

The topic's ``flush.policy`` says after how many records, and after how long, a flush has to come:

============  ==============================================================================
``ack``       after each write; concurrent writes share one (group commit)
``interval``  after ``flush.messages`` records, and after ``flush.ms``
``os``        never: the page cache and, in a cluster, the replicas keep it
============  ==============================================================================

While flushes are held nothing more becomes durable, so that a copy of the log can catch up with
what is. Appends go on, and wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from millstream.config.topic import TopicConfig
from millstream.model.offsets import Offset
from millstream.storage.log import FlushPlan, Log

if TYPE_CHECKING:
    from millstream.runtime.replicas.partition import Partition

NEVER: Final = 2**63 - 1


class PartitionFlushes:
    """Which records of one partition a disk does not have yet, and the flushes that bring them.

    ``request`` is called with the partition when its newest records must reach the disk; the answer
    is :meth:`begin` and then :meth:`done`.
    """

    __slots__ = (
        "_after_ms",
        "_clean_ms",
        "_flushing_bytes",
        "_is_wanted",
        "_partition",
        "is_held",
        "record_limit",
        "request",
        "unflushed_records",
    )

    def __init__(
        self,
        partition: Partition,
        request: Callable[[Partition], None],
        config: TopicConfig,
    ) -> None:
        self._partition = partition
        self.request = request
        self.unflushed_records = 0
        self._flushing_bytes = 0
        self.is_held = False
        """True between :meth:`hold` and :meth:`release`."""
        self._is_wanted = False
        self._clean_ms = 0.0
        self.set_policy(config)

    def set_policy(self, config: TopicConfig) -> None:
        """Take over the flush policy of a topic."""
        self.record_limit: int = NEVER
        """At so many records that are not flushed, a flush comes before they count."""
        self._after_ms: int = NEVER
        if config.flush_policy == "ack":
            self.record_limit = 1
        elif config.flush_policy == "interval":
            self.record_limit = config.flush_messages
            self._after_ms = config.flush_ms

    def take_over(self, before: PartitionFlushes) -> None:
        """Go on where another role of the same log ended."""
        self.unflushed_records = before.unflushed_records
        if self.is_due:
            self.ask()

    @property
    def is_due(self) -> bool:
        """True while the newest records do not count: a flush has to come first, and is asked for,
        by this role or by the one before.
        """
        return self.unflushed_records >= self.record_limit

    @property
    def local_end_offset(self) -> Offset:
        """Up to where the log counts on this broker: what is flushed, where each write must be."""
        log = self._partition.log
        end = log.log_end_offset
        if self.record_limit > 1:
            return end
        return max(log.recovery_point, end - self.unflushed_records)

    def ask(self) -> None:
        """Ask for a flush, whatever the policy."""
        self.request(self._partition)

    def ask_if_due(self, now_ms: float) -> None:
        """Ask for the flush that ``flush.ms`` wants, once its time has come (monotonic clock)."""
        if not self.unflushed_records:
            self._clean_ms = now_ms
        elif now_ms - self._clean_ms >= self._after_ms:
            self._clean_ms = now_ms
            self.ask()

    def begin(self) -> FlushPlan | None:
        """Return what makes everything appended so far durable; None when it is, and then it is
        committed now. None as well while flushes are held, and once the role has ended: the next
        one flushes for itself, and says what is committed.
        """
        partition = self._partition
        if partition.is_gone:
            return None
        if self.is_held:
            self._is_wanted = True
            return None
        plan = partition.log.flush_plan()
        self._flushing_bytes = partition.unannounced_bytes
        if plan is None:
            self._flushed_up_to(partition.log.log_end_offset)
        return plan

    def done(self, plan: FlushPlan) -> None:
        """Commit what an fsync has made safe."""
        partition = self._partition
        is_flushed = plan.durability.flushed(plan) and plan.durability is partition.log.durability
        if partition.is_gone:
            return  # another leadership says what is committed
        if is_flushed:
            self._flushed_up_to(plan.recovery_point)
        else:
            self.ask()

    def begin_closed(self) -> FlushPlan | None:
        """Return what makes closed segments durable, None when they are or while flushes are held.
        What is committed does not depend on it.
        """
        return None if self.is_held else self._partition.log.closed_flush_plan()

    def hold(self) -> None:
        """Begin no flush until :meth:`release`."""
        self.is_held = True

    def release(self, log: Log | None = None) -> None:
        """Flush again what waits for it; from now on in ``log``, which replaces the partition's."""
        if log is not None:
            self._partition.log = log
        if self.is_held and (self._is_wanted or log is not None):
            self.ask()
        self.is_held = self._is_wanted = False

    def _flushed_up_to(self, offset: Offset) -> None:
        partition = self._partition
        self.unflushed_records = partition.log.log_end_offset - offset
        partition.counts_up_to(offset, self._flushing_bytes)
