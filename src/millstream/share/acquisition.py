"""Which records of a share partition a fetch acquires, and what of the log it passes over.

A fetch that has read the log takes whole record batches: first what is available of those in
flight, then new ones behind the end offset. What the log has no more, and what belongs to aborted
transactions, is archived on the way. Kafka: ``SharePartition.acquire``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from millstream.model.offsets import Offset
from millstream.share.fetched import FetchedBatches
from millstream.share.in_flight import InFlight, InFlightRange, cut
from millstream.share.record_state import AcquireMode, RecordState
from millstream.share.rules import ShareRules

MAX_IN_FLIGHT: Final = 20_000
"""Offsets from the start to the end offset at most. A longer record batch is acquired in parts:
what is said of its records one by one has to fit in the state of a share coordinator, which has one
entry for each run of equal offsets.
"""


class AcquiredRecords(NamedTuple):
    """Offsets that were acquired, and how often they have been delivered now."""

    first_offset: Offset
    last_offset: Offset
    delivery_count: int


@dataclass(frozen=True, slots=True)
class AcquireRequest:
    """What a member wants of one partition."""

    member_id: str
    max_records: int
    batch_size: int
    """Records in one acquired range, at which a longer one is cut between record batches."""
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED


def take(
    in_flight: InFlight,
    rules: ShareRules,
    request: AcquireRequest,
    fetched: FetchedBatches,
    *,
    fetch_offset: Offset,
) -> list[InFlightRange]:
    """Return the ranges that a read at ``fetch_offset`` is to acquire; they are AVAILABLE yet."""
    first = max(fetched.base_offsets[0], in_flight.start_offset)
    if first > fetch_offset:
        _archive_missing(in_flight, fetch_offset, first)
    taken, room = _take_available(in_flight, rules, request, fetched, first)
    if room > 0:
        taken += _take_new(in_flight, rules, request, fetched, room)
    return taken


def _take_available(
    in_flight: InFlight,
    rules: ShareRules,
    request: AcquireRequest,
    fetched: FetchedBatches,
    first: Offset,
) -> tuple[list[InFlightRange], int]:
    """Return available ranges, cut to what may be acquired, and how much more may be."""
    chosen: list[tuple[Offset, Offset]] = []
    room = request.max_records
    for found in in_flight.within(first, fetched.last_offset):
        if not found.is_available:
            continue
        from_offset = max(found.first_offset, first)
        to_offset = min(found.last_offset, fetched.last_offset)
        if found.delivery_count >= rules.throttle_count:
            if not chosen:
                portion = rules.portion(
                    delivery_count=found.delivery_count, acquired_together=found.acquired_together
                )
                portion = min(portion, room)
                chosen.append((from_offset, min(to_offset, from_offset + portion - 1)))
            room = 0
            break
        if to_offset - from_offset + 1 > room:
            most = from_offset + MAX_IN_FLIGHT - 1
            to_offset = min(to_offset, most, _limit(request, fetched, from_offset, room))
        chosen.append((from_offset, to_offset))
        room -= to_offset - from_offset + 1
        if room <= 0:
            break
    return [part for offsets in chosen for part in in_flight.isolate(*offsets)], room


def _take_new(
    in_flight: InFlight,
    rules: ShareRules,
    request: AcquireRequest,
    fetched: FetchedBatches,
    room: int,
) -> list[InFlightRange]:
    """Append ranges for records behind the end offset."""
    first = in_flight.end_offset + 1
    limit = min(rules.max_record_locks, MAX_IN_FLIGHT)
    room = min(room, limit - in_flight.record_count)
    if room <= 0 or fetched.last_offset < first:
        return []
    last = fetched.last_offset
    most = in_flight.start_offset + MAX_IN_FLIGHT - 1
    if last - first + 1 > room:
        last = min(_limit(request, fetched, first, room), most)
    if request.mode is AcquireMode.RECORD_LIMIT:
        # The whole record batch is in flight, and what is behind the limit is available.
        end = max(last, min(fetched.end_of_batch(last), most))
        in_flight.append(
            InFlightRange(
                first,
                end,
                RecordState.AVAILABLE,
                0,
                acquired_together=end - first + 1,
                acquired_from=first,
            )
        )
        return in_flight.isolate(first, last)
    taken = [
        InFlightRange(
            from_offset,
            to_offset,
            RecordState.AVAILABLE,
            0,
            acquired_together=to_offset - from_offset + 1,
            acquired_from=from_offset,
        )
        for from_offset, to_offset in fetched.split(first, last, request.batch_size)
    ]
    for each in taken:
        in_flight.append(each)
    return taken


def _archive_missing(in_flight: InFlight, fetch_offset: Offset, first: Offset) -> None:
    """Archive what the log does not have any more between the offset that was read at and the
    first batch behind it.
    """
    for found in in_flight.isolate(fetch_offset, min(first - 1, in_flight.end_offset)):
        if found.is_available:
            in_flight.change(found, RecordState.ARCHIVED)
    behind = in_flight.end_offset + 1
    if behind < first:
        in_flight.append(InFlightRange(behind, first - 1, RecordState.ARCHIVED, 0))


def archive_aborted(
    in_flight: InFlight, fetched: FetchedBatches, taken: list[InFlightRange]
) -> list[InFlightRange]:
    """Archive records of aborted transactions among those just acquired; return the others."""
    for first_offset, last_offset in fetched.aborted:
        kept: list[InFlightRange] = []
        for each in taken:
            if each.last_offset < first_offset or each.first_offset > last_offset:
                kept.append(each)
                continue
            index = in_flight.index(each.first_offset)
            parts = cut(each, first_offset, last_offset)
            in_flight.replace(index, index + 1, parts)
            for part in parts:
                if first_offset <= part.first_offset <= last_offset:
                    in_flight.change(part, RecordState.ARCHIVED)
                else:
                    kept.append(part)
        taken = kept
    return taken


def _limit(request: AcquireRequest, fetched: FetchedBatches, first: Offset, room: int) -> Offset:
    """Return the last offset to acquire where there is more than ``room``."""
    last = first + room - 1
    return last if request.mode is AcquireMode.RECORD_LIMIT else fetched.end_of_batch(last)


def told(taken: Iterable[InFlightRange]) -> list[AcquiredRecords]:
    """Return the ranges, neighbours of one count as one where they were acquired together first
    (Kafka: ``ShareFetchUtils.accumulateAcquiredRecords``).
    """
    acquired: list[AcquiredRecords] = []
    last: InFlightRange | None = None
    for each in taken:
        first_offset = each.first_offset
        if (
            last is not None
            and last.last_offset + 1 == first_offset
            and last.acquired_from == each.acquired_from
            and last.delivery_count == each.delivery_count
        ):
            first_offset = acquired.pop().first_offset
        acquired.append(AcquiredRecords(first_offset, each.last_offset, each.delivery_count))
        last = each
    return acquired
