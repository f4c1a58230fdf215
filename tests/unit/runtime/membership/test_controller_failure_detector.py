"""When a controller is taken for gone: two refused connections after a silence, nothing else."""

from __future__ import annotations

from tests.unit.runtime.coordinator_site import HandClock

from millstream.model.broker import Endpoint
from millstream.protocol.outgoing import Outgoing
from millstream.runtime.broker_channels import TransportOwner
from millstream.runtime.membership.controller_failure_detector import (
    PROBE_AGAIN_MS,
    PROBE_TIMEOUT_MS,
    SILENCE_MS,
    ControllerFailureDetector,
)

CONTROLLER = Endpoint("PLAINTEXT", "host", 9092)
REFUSED, RESET = "connection refused", "connection reset by peer"


class Wire:
    received_size = 0

    def __init__(self, owner: TransportOwner) -> None:
        self.owner = owner
        self.is_closed = False

    def send(self, outgoing: Outgoing) -> None:
        raise AssertionError("a probe sends nothing")

    def close(self) -> None:
        self.is_closed = True


class Site:
    def __init__(self) -> None:
        self.clock = HandClock()
        self.opened: list[Wire] = []
        self.gone = 0
        self.endpoint: Endpoint | None = CONTROLLER
        self.detector = ControllerFailureDetector(
            self.clock, self, endpoint=lambda: self.endpoint, on_gone=self._is_gone
        )
        self.detector.start()

    def _is_gone(self) -> None:
        self.gone += 1

    def open(self, host: str, port: int, owner: TransportOwner) -> Wire:
        self.opened.append(Wire(owner))
        return self.opened[-1]

    def stay_silent(self) -> None:
        self.clock.advance(2 * SILENCE_MS)


def test_a_controller_that_is_heard_of_is_not_probed() -> None:
    site = Site()
    for _ in range(20):
        site.clock.advance(SILENCE_MS // 2)
        site.detector.heard()
    assert site.opened == []


def test_two_refusals_after_a_silence_mean_gone() -> None:
    site = Site()
    site.stay_silent()
    assert len(site.opened) == 1
    site.opened[0].owner.closed(REFUSED)
    assert site.gone == 0
    site.clock.advance(PROBE_AGAIN_MS)
    site.opened[1].owner.closed(REFUSED)
    assert site.gone == 1
    site.clock.advance(SILENCE_MS // 2)
    assert len(site.opened) == 2, "its successor is given the same time"


def test_a_controller_that_accepts_or_answers_nothing_is_not_gone() -> None:
    site = Site()
    site.stay_silent()
    site.opened[-1].owner.connected()
    assert site.opened[-1].is_closed
    site.stay_silent()
    site.opened[-1].owner.closed(RESET)
    site.stay_silent()
    unanswered = site.opened[-1]
    site.clock.advance(int(PROBE_TIMEOUT_MS))
    assert unanswered.is_closed
    unanswered.owner.closed(REFUSED)  # too late
    assert site.gone == 0


def test_a_controller_that_is_replaced_meanwhile_is_not_gone() -> None:
    site = Site()
    site.stay_silent()
    site.endpoint = Endpoint("PLAINTEXT", "another", 9092)
    site.opened[-1].owner.closed(REFUSED)
    site.clock.advance(PROBE_AGAIN_MS)
    assert site.gone == 0


def test_nobody_is_probed_while_no_other_broker_is_the_controller() -> None:
    site = Site()
    site.endpoint = None
    site.clock.advance(60_000)
    site.endpoint = CONTROLLER
    site.clock.advance(SILENCE_MS // 2)
    assert site.opened == []
    site.detector.stop()
    site.clock.advance(60_000)
    assert site.opened == []
