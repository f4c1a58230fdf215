"""Silent followers are reported at once, then less and less often while they are."""

from __future__ import annotations

from itertools import pairwise

from tests.unit.runtime.coordinator_site import HandClock

from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.runtime.membership.silent_follower_reports import (
    FIRST_PAUSE_MS,
    LONGEST_PAUSE_MS,
    Brokers,
    SilentFollowerReports,
)
from millstream.runtime.replicas.replica_manager import CONTACT_INTERVAL_MS

ONE, TWO = BrokerId(1), BrokerId(2)


class Site:
    def __init__(self) -> None:
        self.clock = HandClock()
        self.silent: set[BrokerId] = set()
        self.sent: list[tuple[float, Brokers, Brokers]] = []
        self.answers: list[Deferred[bool]] = []
        self.taken: list[Brokers] = []
        self.reports = SilentFollowerReports(
            self.clock, lambda: self.silent, lambda: {TWO}, self.send, self.taken.append
        )
        self.reports.start()

    def send(self, silent: Brokers, unreachable: Brokers) -> Deferred[bool]:
        self.sent.append((self.clock.monotonic_ms(), silent, unreachable))
        answer: Deferred[bool] = Deferred()
        self.answers.append(answer)
        return answer

    def refuse(self) -> None:
        self.answers[-1].fail(KafkaError(ErrorCode.NOT_CONTROLLER))


def test_nothing_is_reported_while_everybody_is_heard() -> None:
    site = Site()
    site.clock.advance(10_000)
    assert site.sent == []


def test_a_report_is_repeated_after_pauses_that_grow() -> None:
    site = Site()
    site.silent = {ONE}
    for _ in range(100):
        site.clock.advance(CONTACT_INTERVAL_MS)
        if site.answers and not site.answers[-1].done:
            site.refuse()
    moments = [at for at, _, _ in site.sent]
    pauses = [after - before for before, after in pairwise(moments)]
    assert pauses[:5] == [FIRST_PAUSE_MS * 2**i for i in range(5)]
    assert pauses[5] == LONGEST_PAUSE_MS
    assert site.sent[0][1:] == ([ONE], [TWO])
    assert site.taken == [], "nobody has said that this broker is behind"
    site.silent = set()
    site.clock.advance(CONTACT_INTERVAL_MS)
    site.silent = {ONE}
    count = len(site.sent)
    site.clock.advance(CONTACT_INTERVAL_MS)
    assert len(site.sent) == count + 1, "what begins anew is reported at once"
    site.refuse()
    site.clock.advance(FIRST_PAUSE_MS)
    assert len(site.sent) == count + 2, "and the pauses begin anew"


def test_one_report_at_a_time_and_none_after_the_end() -> None:
    site = Site()
    site.silent = {ONE}
    site.clock.advance(20_000)
    assert len(site.sent) == 1
    site.answers[0].complete(True)
    site.clock.advance(CONTACT_INTERVAL_MS)
    assert len(site.sent) == 2
    assert site.taken == [{ONE}]
    site.answers[1].complete(False)
    site.reports.stop()
    site.clock.advance(60_000)
    assert len(site.sent) == 2


def test_the_store_is_read_only_where_the_controller_could_not_tell_what_it_decided() -> None:
    """A follower that is paused is silent for long, and nothing has changed: the states of all
    partitions that it follows are not to be read again and again.
    """
    site = Site()
    site.silent = {ONE}
    site.clock.advance(CONTACT_INTERVAL_MS)
    site.answers[-1].complete(False)
    assert site.taken == []
    site.clock.advance(FIRST_PAUSE_MS)
    site.answers[-1].complete(True)
    assert site.taken == [{ONE}]
