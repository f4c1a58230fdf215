"""Which in-flight records acknowledgements are about, and whether their member holds them."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.model.errors import ErrorCode, KafkaError
from millstream.share.acknowledgements import AcknowledgedRun
from millstream.share.in_flight import InFlight, InFlightRange, cut
from millstream.share.record_state import AcknowledgeType, RecordState


def cut_at(
    in_flight: InFlight, member_id: str, runs: Sequence[AcknowledgedRun]
) -> list[tuple[InFlightRange, AcknowledgeType]]:
    """Cut the ranges at the boundaries of ``runs``; return those that are acknowledged, each with
    what is said of it.

    Nothing is cut where KafkaError(INVALID_RECORD_STATE) is raised: for records that overlap, that
    are not in flight, or that the member does not hold.
    """
    begin = in_flight.index(max(runs[0].first_offset, in_flight.start_offset))
    end, parts, acknowledged = _parts(in_flight, member_id, runs, begin)
    in_flight.replace(begin, end, parts)
    return acknowledged


def _parts(
    in_flight: InFlight, member_id: str, runs: Sequence[AcknowledgedRun], begin: int
) -> tuple[int, list[InFlightRange], list[tuple[InFlightRange, AcknowledgeType]]]:
    """Cut the ranges from ``begin`` on at the boundaries of the runs, changing nothing.

    Return up to which index ranges are replaced, by which, and which of those is acknowledged
    as what.
    """
    ranges = in_flight.ranges
    parts: list[InFlightRange] = []
    acknowledged: list[tuple[InFlightRange, AcknowledgeType]] = []
    index = begin
    # What is left of the range at ``index``.
    rest: InFlightRange | None = ranges[begin]
    previous_last = runs[0].first_offset - 1
    for run in runs:
        before = len(acknowledged)
        if run.first_offset <= previous_last:
            raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "The acknowledgements overlap.")
        previous_last = run.last_offset
        while rest is not None and rest.first_offset <= run.last_offset:
            pieces = [rest]
            if rest.last_offset >= run.first_offset and not _has_no_record(rest):
                _check_held(rest, member_id)
                pieces = cut(rest, run.first_offset, run.last_offset)
                first_inside = pieces[1 if pieces[0].first_offset < run.first_offset else 0]
                acknowledged.append((first_inside, run.acknowledge_type))
            if pieces[-1].first_offset > run.last_offset:
                rest = pieces.pop()
            else:
                index += 1
                rest = ranges[index] if index < len(ranges) else None
            parts += pieces
        if len(acknowledged) == before:
            raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "The records are not in flight.")
    if rest is not None and rest is not ranges[index]:
        parts.append(rest)
        index += 1
    return index, parts, acknowledged


def _has_no_record(found: InFlightRange) -> bool:
    """Return whether the log has no record at these offsets; nobody can acknowledge them, and a
    client that says something of its neighbours in one batch does no wrong.
    """
    return found.state is RecordState.ARCHIVED and not found.delivery_count


def _check_held(found: InFlightRange, member_id: str) -> None:
    if found.state is not RecordState.ACQUIRED:
        raise KafkaError(
            ErrorCode.INVALID_RECORD_STATE,
            "The records cannot be acknowledged. They are not in the acquired state.",
        )
    if found.member_id != member_id:
        raise KafkaError(
            ErrorCode.INVALID_RECORD_STATE, "The member is not the owner of the records."
        )
