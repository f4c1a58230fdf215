"""What carries out what a coordinator's operations ask of the leaders of partitions: requests to
brokers, and the markers of transactions for partitions that this broker leads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from millstream.coordinator.result import (
    Continuation,
    EndedPartitions,
    LocalMarkers,
    MarkerCodes,
    OutboundRequest,
)
from millstream.model.broker import BrokerId
from millstream.model.clock import Clock
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.message import Request, Response

log = logging.getLogger(__name__)

RequestSender: TypeAlias = Callable[[BrokerId, Request, int], "Deferred[Response]"]
"""Sends a request to a broker, with its time-out in milliseconds; see ``BrokerChannel.send``."""

MarkerWriter: TypeAlias = Callable[
    [Sequence[EndedPartitions], int, Callable[[Sequence[MarkerCodes]], None]], None
]
"""Writes markers into partitions that this broker leads; see ``marker_writes.write_markers``."""


class Outlets:
    """Sends requests, and has markers written; only transaction coordinators have
    ``write_markers``.
    """

    def __init__(
        self,
        clock: Clock,
        send_request: RequestSender,
        write_markers: MarkerWriter | None = None,
    ) -> None:
        self._clock = clock
        self._send_request = send_request
        self._write_markers = write_markers

    def carry_out(
        self, outbound: OutboundRequest | LocalMarkers, run: Callable[[Continuation], None]
    ) -> None:
        """Do what an operation has asked for; ``run`` then runs what handles the outcome."""
        if isinstance(outbound, OutboundRequest):
            sent = self._send_request(outbound.target, outbound.request, outbound.timeout_ms)
            sent.on_done(partial(_settle, outbound, run))
            return
        write_markers = self._write_markers
        assert write_markers is not None, "this coordinator has no markers to be written"
        written = partial(_written, outbound, run)
        self._clock.call_soon(partial(write_markers, outbound.ends, outbound.timeout_ms, written))


def _settle(
    outbound: OutboundRequest, run: Callable[[Continuation], None], outcome: Deferred[Response]
) -> None:
    answer: Response | KafkaError
    try:
        answer = outcome.result()
    except KafkaError as error:
        answer = error
    except Exception:  # of the handler, where the request was for this broker itself
        log.exception("a request of a coordinator failed")
        answer = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    run(partial(outbound.event, answer))


def _written(
    markers: LocalMarkers, run: Callable[[Continuation], None], codes: Sequence[MarkerCodes]
) -> None:
    run(partial(markers.event, codes))
