"""Silence and missing answers count only while the broker that notices them runs itself."""

from __future__ import annotations

from millstream.model.broker import BrokerId
from millstream.replication.contact import SILENT_AFTER_MS, UNANSWERED_AFTER_MS, FetchContact

TICK_MS = 250.0
WAIT_MS = 500.0
ONE, TWO = BrokerId(1), BrokerId(2)


class Site:
    """A broker that two others fetch from, or that fetches from them."""

    def __init__(self) -> None:
        self.contact = FetchContact(TICK_MS)
        self.now_ms = 0.0

    def run(self, for_ms: float) -> frozenset[BrokerId]:
        """Tick regularly for so long; return who is silent at the end."""
        silent = self.look()
        end_ms = self.now_ms + for_ms
        while self.now_ms < end_ms:
            self.now_ms += TICK_MS
            silent = self.look()
        return silent

    def look(self, *brokers: BrokerId, wait_ms: float = WAIT_MS) -> frozenset[BrokerId]:
        self.contact.tick(self.now_ms)
        return self.contact.silent(brokers or (ONE, TWO), self.now_ms, max_wait_ms=wait_ms)

    def hear(self, *brokers: BrokerId) -> None:
        for each in brokers:
            self.contact.heard(each, self.now_ms)

    def unreachable(self, since_ms: float) -> frozenset[BrokerId]:
        return self.contact.unreachable({ONE: since_ms}, self.now_ms, max_wait_ms=WAIT_MS)


def test_a_follower_that_stops_to_fetch_is_silent() -> None:
    site = Site()
    assert site.run(500) == frozenset()
    site.hear(ONE)
    assert site.run(SILENT_AFTER_MS - 500) == {TWO}
    site.hear(TWO)
    assert site.run(500) == {ONE}
    site.hear(ONE)
    assert site.look() == frozenset()


def test_a_follower_has_its_time_from_when_it_is_named_first() -> None:
    site = Site()
    site.run(2_000)
    three = BrokerId(3)
    assert site.look(three) == frozenset()
    assert site.look(ONE) == frozenset(), "one that comes back begins anew"


def test_a_leader_may_keep_a_fetch_for_long() -> None:
    site = Site()
    assert site.run(1_500) == {ONE, TWO}
    assert site.look(wait_ms=1_000) == frozenset()


def test_a_pause_of_the_leader_is_no_silence_of_its_followers() -> None:
    site = Site()
    site.run(1_000)
    site.hear(ONE, TWO)
    site.now_ms += 5_000
    assert site.look() == frozenset(), "it slept, and knows nothing yet"
    assert site.run(SILENT_AFTER_MS - TICK_MS) == frozenset()
    assert site.run(TICK_MS) == {ONE, TWO}


def test_a_leader_that_owes_an_answer_for_too_long_is_out_of_reach() -> None:
    site = Site()
    site.run(2_000)
    limit_ms = WAIT_MS + UNANSWERED_AFTER_MS
    assert site.unreachable(site.now_ms) == frozenset()
    assert site.unreachable(site.now_ms - limit_ms + 1) == frozenset()
    assert site.unreachable(site.now_ms - limit_ms) == {ONE}


def test_a_pause_of_the_follower_is_no_missing_answer() -> None:
    site = Site()
    site.run(1_000)
    asked_ms = site.now_ms
    site.now_ms += 5_000
    assert site.unreachable(asked_ms) == frozenset(), "before it has looked at its connections"
    site.run(1_000)
    assert site.unreachable(asked_ms) == frozenset()
    site.run(500)
    assert site.unreachable(asked_ms) == {ONE}


def test_a_new_contact_reports_nothing() -> None:
    contact = FetchContact(TICK_MS)
    assert contact.unreachable({ONE: 0.0}, 60_000.0, max_wait_ms=WAIT_MS) == frozenset()
    assert contact.silent((ONE,), 0.0, max_wait_ms=WAIT_MS) == frozenset()
    assert contact.silent((ONE,), 60_000.0, max_wait_ms=WAIT_MS) == frozenset()
