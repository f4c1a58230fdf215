"""What holds the last stable offset of partitions: judged from what brokers tell. Pure.

Readers of committed records get nothing at or above the start of the oldest open transaction. Who
has it open is what the leader of the partition knows; under which transactional id, since when and
until when, its coordinator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from millstream.client.core.admin.producers import ActiveProducer, TransactionDescription
from millstream.client.doctor import Severity
from millstream.config.quantities import counted
from millstream.inspection.findings import Finding, duration, not_told, quoted, ranked
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition

_ENDING: Final = frozenset({"PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
_ENDING_MS: Final = 10_000
"""Markers are written within much less than that, unless a leader does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsSight:
    """Partitions and their producers at one moment."""

    at_ms: int
    producers: Mapping[TopicPartition, tuple[ActiveProducer, ...]]
    """Those that have a transaction open, by partition."""
    transactions: Mapping[int, TransactionDescription]
    """What coordinators know, by the id of the producer."""
    ends: Mapping[TopicPartition, Offset]
    """High watermarks."""
    stable: Mapping[TopicPartition, Offset]
    """Last stable offsets."""
    max_timeout_ms: int
    """``transaction.max.timeout.ms``: no transaction is open for longer."""
    unsure: frozenset[int] = frozenset()
    """Producers of which no coordinator could be asked, so that they may well be known."""
    untold: Mapping[str, str] = field(default_factory=dict)
    """What could not be found out, and why."""


def judge_transactions(sight: TransactionsSight) -> list[Finding]:
    """Return who holds the last stable offset of each partition, the worst first."""
    found: list[Finding] = []
    for place in sorted({*sight.producers, *sight.stable}):
        found += _of_partition(sight, place)
    found += (not_told("transactions", what, why) for what, why in sight.untold.items())
    return ranked(found)


def _of_partition(sight: TransactionsSight, place: TopicPartition) -> Iterator[Finding]:
    opened = sorted(sight.producers.get(place, ()), key=lambda each: each.transaction_start_offset)
    end, stable = sight.ends.get(place), sight.stable.get(place)
    for number, producer in enumerate(opened):
        yield _of_producer(sight, place, producer, is_first=number == 0)
    if not opened and end is not None and stable is not None and stable < end:
        yield Finding(
            Severity.NOTE,
            str(place),
            f"The last stable offset {stable} is {counted(end - stable, 'offset')} behind the "
            "high watermark, and the leader knows no open transaction: one has ended just now, or "
            "its marker is not on every replica in sync.",
            "millstream doctor cluster",
        )


def _of_producer(
    sight: TransactionsSight, place: TopicPartition, producer: ActiveProducer, *, is_first: bool
) -> Finding:
    known = sight.transactions.get(producer.producer_id)
    start = producer.transaction_start_offset
    behind = max(sight.ends.get(place, start) - start, 0)
    holds = (
        f"holds the last stable offset at {start}, with {counted(behind, 'offset')} behind it"
        if is_first
        else f"would hold the last stable offset at {start} next"
    )
    who = f"Producer {producer.producer_id}, epoch {producer.producer_epoch},"
    if producer.producer_id in sight.unsure:
        return Finding(
            Severity.RISK,
            str(place),
            f"{who} {holds}. Whether its coordinator knows the transaction could not be found out, "
            "so do not abort it by its partition.",
            f"millstream txn list --producer-id {producer.producer_id}",
        )
    if known is None or place not in known.partitions:
        return _unknown(sight, place, producer, f"{who} {holds}")
    since_ms = sight.at_ms - known.start_time_ms
    said = (
        f"{who} of transactional id {known.transactional_id!r} {holds}: {known.state} for "
        f"{duration(since_ms)}, and its coordinator at {known.coordinator} aborts it after "
        f"{duration(known.timeout_ms)}"
    )
    abort = f"millstream txn abort --id {quoted(known.transactional_id)}"
    if known.state in _ENDING:
        is_late = since_ms > known.timeout_ms + _ENDING_MS
        text = f"{said.partition(', and its')[0]}: the end is decided, and its marker not written"
        return Finding(
            Severity.BROKEN if is_late else Severity.NOTE,
            str(place),
            f"{text} by the coordinator at {known.coordinator}.",
            "millstream doctor cluster",
        )
    if since_ms > known.timeout_ms + _ENDING_MS:
        return Finding(
            Severity.BROKEN,
            str(place),
            f"{said}, which it has not done: the coordinator may be without a majority.",
            abort,
        )
    is_long = since_ms > known.timeout_ms / 2
    return Finding(Severity.RISK if is_long else Severity.NOTE, str(place), f"{said}.", abort)


def _unknown(
    sight: TransactionsSight, place: TopicPartition, producer: ActiveProducer, said: str
) -> Finding:
    """Judge an open transaction that no coordinator knows."""
    since_ms = sight.at_ms - producer.last_timestamp_ms
    hangs = since_ms > sight.max_timeout_ms
    written = f"its last record is {duration(since_ms)} old"
    partition = quoted(f"{place.topic}:{place.partition}")
    return Finding(
        Severity.BROKEN if hangs else Severity.RISK,
        str(place),
        f"{said}. No coordinator knows the transaction, and {written}: "
        + (
            "it hangs and blocks readers of committed records for ever."
            if hangs
            else f"it hangs, unless it has begun just now; after {duration(sight.max_timeout_ms)} "
            "it surely does."
        ),
        f"millstream txn abort {partition} --start-offset {producer.transaction_start_offset}",
    )
