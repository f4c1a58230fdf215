"""ReportSilentFollowers: API key 10006, version 0. Between brokers of Millstream only.

A leader tells the controller which of its in-sync followers have stopped to fetch from it, and
which leaders it cannot fetch from itself. The controller asks the followers (DescribeFetchers) and
moves leaderships if they say that it is the leader whom they cannot reach.
"""

from __future__ import annotations

from millstream.protocol.fields import array, bool_, int16, int32, int64
from millstream.protocol.message import Request, Response


class ReportSilentFollowersRequest(Request, key=10006, versions="0", flexible="0+"):
    """Request of ReportSilentFollowers."""

    broker_id: int = int32()
    broker_epoch: int = int64()
    silent: list[int] = array(int32())
    unreachable_leaders: list[int] = array(int32())


class ReportSilentFollowersResponse(Response, key=10006, versions="0", flexible="0+"):
    """Response of ReportSilentFollowers."""

    error_code: int = int16(default=0)
    is_behind: bool = bool_(default=False)
    """True when the sender has not acknowledged all that the controller has told it."""
