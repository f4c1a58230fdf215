"""DescribeFetchers: API key 10007, version 0. Between brokers of Millstream only.

The controller asks a broker which of the leaders that it follows do not answer its fetches.
"""

from __future__ import annotations

from millstream.protocol.fields import array, int16, int32
from millstream.protocol.message import Request, Response


class DescribeFetchersRequest(Request, key=10007, versions="0", flexible="0+"):
    """Request of DescribeFetchers."""

    controller_epoch: int = int32()


class DescribeFetchersResponse(Response, key=10007, versions="0", flexible="0+"):
    """Response of DescribeFetchers."""

    error_code: int = int16(default=0)
    unreachable_leaders: list[int] = array(int32())
