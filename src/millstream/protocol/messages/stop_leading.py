"""StopLeading: API key 10002, version 0. Between brokers of Millstream only.

A broker in controlled shutdown asks the controller to move its leaderships to other brokers (Kafka:
``ControlledShutdown``).
"""

from __future__ import annotations

from millstream.protocol.fields import array, int16, int32, int64, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class StopLeadingRequest(Request, key=10002, versions="0", flexible="0+"):
    """Request of StopLeading."""

    broker_id: int = int32()
    broker_epoch: int = int64()


class StillLed(Struct):
    """One of ``StopLeadingResponse.remaining``: a partition that no other broker can lead."""

    topic: str = string()
    index: int = int32()


class StopLeadingResponse(Response, key=10002, versions="0", flexible="0+"):
    """Response of StopLeading."""

    error_code: int = int16(default=0)
    remaining: list[StillLed] = array(StillLed)
