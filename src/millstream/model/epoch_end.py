"""Where a leader epoch ends in a log: what OffsetForLeaderEpoch answers (KIP-101, KIP-279)."""

from __future__ import annotations

from typing import Final, NamedTuple

from millstream.model.offsets import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch, Offset


class EpochEndOffset(NamedTuple):
    """The largest epoch at or below the one asked for and where it ends; both -1 if unknown."""

    leader_epoch: LeaderEpoch
    end_offset: Offset


UNKNOWN_END: Final = EpochEndOffset(NO_LEADER_EPOCH, NO_OFFSET)
