"""Where two logs of one partition diverge, found by their leader epochs (KIP-101, KIP-279,
KIP-595).

Offsets alone are not enough: two logs may have different records at one offset, but never at one
offset and epoch. A follower sends the epoch of its last record with its log end. The leader looks
up where that epoch, or the largest one before it, ends in its own log; when that is not at or
beyond the follower's end, the follower cuts back to the smaller of the two ends and asks again.
"""

from __future__ import annotations

from millstream.model.epoch_end import EpochEndOffset
from millstream.model.offsets import NO_LEADER_EPOCH, LeaderEpoch, Offset


def is_diverging(
    leader_end: EpochEndOffset, *, last_fetched_epoch: LeaderEpoch, fetch_offset: Offset
) -> bool:
    """Tell whether a follower's log diverges from the leader's, whose end for
    ``last_fetched_epoch`` is given.
    """
    if last_fetched_epoch == NO_LEADER_EPOCH:
        return False
    return leader_end.leader_epoch < last_fetched_epoch or leader_end.end_offset < fetch_offset


def truncation_offset(
    diverging: EpochEndOffset, own_end: EpochEndOffset, *, log_end_offset: Offset
) -> Offset:
    """Return where a follower cuts its log, given the leader's answer and its own end for the
    epoch that the leader named.

    A follower whose log has no such epoch truncates to the leader's end.
    """
    offset = diverging.end_offset
    if own_end.leader_epoch != NO_LEADER_EPOCH:
        offset = min(offset, own_end.end_offset)
    return max(0, min(offset, log_end_offset))
