"""While no controller tells a broker anything it looks into the store, less and less often."""

from __future__ import annotations

from tests.unit.runtime.coordinator_site import HandClock

from millstream.model.broker import BrokerId
from millstream.runtime.controlling.controller_election import RegisteredController
from millstream.runtime.membership.unheard_controller import (
    FIRST_PAUSE_MS,
    INTERVAL_MS,
    LONGEST_PAUSE_MS,
    SILENCE_MS,
    UnheardController,
)

FIRST = RegisteredController(BrokerId(1), 10, 4)
HEIR = RegisteredController(BrokerId(3), 11, 5)


class Site:
    def __init__(self) -> None:
        self.clock = HandClock()
        self.registered: RegisteredController | None = FIRST
        self.looks: list[tuple[float, RegisteredController]] = []
        self.unheard = UnheardController(
            self.clock, registered=lambda: self.registered, look=self.look
        )
        self.unheard.start()

    def look(self, registered: RegisteredController) -> None:
        self.looks.append((self.clock.monotonic_ms(), registered))

    def go_on(self, milliseconds: float, *, heard: bool = False) -> None:
        for _ in range(int(milliseconds / INTERVAL_MS)):
            self.clock.advance(INTERVAL_MS)
            if heard:
                self.unheard.heard()


def test_nothing_is_read_while_a_controller_is_heard() -> None:
    site = Site()
    site.go_on(20_000, heard=True)
    assert site.looks == []


def test_looks_begin_after_a_silence_with_pauses_that_grow() -> None:
    site = Site()
    began_ms = site.clock.monotonic_ms()
    site.go_on(60_000)
    moments = [at - began_ms for at, _ in site.looks]
    assert moments[:2] == [SILENCE_MS, SILENCE_MS + FIRST_PAUSE_MS]
    assert moments[-1] - moments[-2] == LONGEST_PAUSE_MS


def test_another_controller_is_looked_for_at_once() -> None:
    site = Site()
    site.go_on(30_000)
    site.looks.clear()
    site.registered = HEIR
    site.go_on(INTERVAL_MS + FIRST_PAUSE_MS)
    assert [each for _, each in site.looks] == [HEIR, HEIR]


def test_a_push_ends_it_and_a_later_silence_has_its_whole_time() -> None:
    site = Site()
    site.go_on(10_000)
    site.unheard.heard()
    site.looks.clear()
    site.go_on(SILENCE_MS - INTERVAL_MS)
    assert site.looks == []
    site.go_on(INTERVAL_MS)
    assert len(site.looks) == 1


def test_nothing_is_read_without_a_reason_or_after_the_end() -> None:
    site = Site()
    site.registered = None
    site.go_on(20_000)
    site.registered = FIRST
    site.go_on(SILENCE_MS - INTERVAL_MS)
    assert site.looks == []
    site.unheard.stop()
    site.go_on(20_000)
    assert site.looks == []
