"""Whom a broker takes for gone: addresses that refuse, and no others."""

from __future__ import annotations

from tests.unit.runtime.coordinator_site import HandClock

from millstream.model.broker import BrokerId, BrokerNode, Endpoint
from millstream.protocol.outgoing import Outgoing
from millstream.runtime.broker_channels import TransportOwner
from millstream.runtime.membership.failure_detector import (
    RENEW_MS,
    SHORT_MS,
    SHORT_ONES,
    FailureDetector,
)
from millstream.runtime.metadata.metadata_cache import MetadataCache

ME, OTHER = BrokerId(1), BrokerId(2)
REFUSED, RESET = "connection refused", "connection reset by peer"


class Wire:
    received_size = 0

    def __init__(self, owner: TransportOwner) -> None:
        self.owner = owner
        self.is_closed = False

    def send(self, outgoing: Outgoing) -> None:
        raise AssertionError("a failure detector sends nothing")

    def close(self) -> None:
        self.is_closed = True


class Site:
    def __init__(self) -> None:
        self.clock = HandClock()
        self.opened: list[Wire] = []
        self.gone: list[BrokerNode] = []
        self.cache = MetadataCache("")
        self.detector = FailureDetector(
            self.clock, self, self.cache, ME, listener_name="L", on_gone=self.gone.append
        )
        self.detector.start()

    def open(self, host: str, port: int, owner: TransportOwner) -> Wire:
        self.opened.append(Wire(owner))
        return self.opened[-1]

    def register(self, epoch: int = 1) -> BrokerNode:
        node = BrokerNode(OTHER, (Endpoint("L", "host", 9),), None, epoch)
        self.cache.brokers[OTHER] = node
        self.detector.look()
        return node

    @property
    def newest(self) -> Wire:
        return self.opened[-1]

    def refuse(self) -> None:
        self.newest.owner.closed(REFUSED)

    def hold(self, for_ms: int = int(SHORT_MS)) -> Wire:
        held = self.newest
        held.owner.connected()
        self.clock.advance(for_ms)
        return held


def test_a_process_that_is_killed_is_missing_at_once_and_gone_after_two_refusals() -> None:
    site = Site()
    node = site.register()
    site.hold().owner.closed(RESET)
    assert not site.cache.is_reachable(OTHER)
    assert len(site.opened) == 2, "it is tried at once"
    site.refuse()
    assert site.gone == []
    site.clock.advance(100)
    site.refuse()
    assert site.gone == [node]
    assert site.detector.is_gone(node)
    site.clock.advance(1_000)
    site.refuse()
    assert site.gone == [node], "told once"


def test_a_connection_that_breaks_proves_nothing_where_a_new_one_is_taken() -> None:
    site = Site()
    node = site.register()
    site.hold().owner.closed(RESET)
    site.refuse()
    site.clock.advance(100)
    site.newest.owner.connected()
    assert site.cache.is_reachable(OTHER)
    site.clock.advance(int(SHORT_MS))
    site.newest.owner.closed(RESET)
    site.refuse()
    assert site.gone == [], "one refusal of each time do not add up"
    assert not site.detector.is_gone(node)


def test_a_paused_process_keeps_its_connection_and_takes_or_leaves_attempts() -> None:
    """Its kernel takes connections for it; one that is cut off leaves them unanswered."""
    site = Site()
    site.register()
    held = site.hold(int(RENEW_MS))
    assert len(site.opened) == 2, "a connection is renewed from time to time"
    for _ in range(10):
        site.clock.advance(2_000)
    assert len(site.opened) > 5
    assert not held.is_closed
    assert site.cache.is_reachable(OTHER)
    assert site.gone == []


def test_an_attempt_that_nobody_answers_breaks_a_row_of_refusals() -> None:
    site = Site()
    site.register()
    for _ in range(3):
        site.refuse()
        site.clock.advance(100)
        site.newest.owner.closed("timed out")
        assert site.cache.is_reachable(OTHER), "cut off from here, perhaps not from clients"
        site.clock.advance(300)
    assert site.gone == []


def test_a_machine_without_power_is_noticed_once_it_refuses() -> None:
    """It closed nothing: the connection that is held says nothing any more."""
    site = Site()
    node = site.register()
    site.hold(int(RENEW_MS))
    site.refuse()
    site.clock.advance(100)
    site.refuse()
    assert site.gone == [node]


def test_a_new_connection_takes_the_place_of_the_one_before() -> None:
    site = Site()
    site.register()
    held = site.hold(int(RENEW_MS))
    site.newest.owner.connected()
    assert held.is_closed
    assert site.cache.is_reachable(OTHER)
    assert not site.newest.is_closed


def test_connections_that_are_closed_soon_are_not_tried_without_pause() -> None:
    site = Site()
    site.register()
    for attempts in range(1, 8):
        assert len(site.opened) == attempts
        site.hold(1).owner.closed(RESET)
        assert len(site.opened) == attempts
        site.clock.advance(29)
        assert len(site.opened) == attempts
        assert site.cache.is_reachable(OTHER) is (attempts > SHORT_ONES)
        site.clock.advance(1 if attempts <= SHORT_ONES else 221)


def test_a_process_that_takes_a_connection_while_it_ends_is_gone_soon_all_the_same() -> None:
    site = Site()
    node = site.register()
    site.hold().owner.closed(RESET)
    site.hold(0).owner.closed(RESET)
    assert not site.cache.is_reachable(OTHER)
    for _ in range(2):
        site.clock.advance(30)
        site.refuse()
    assert site.gone == [node]


def test_another_life_of_a_broker_is_watched_anew() -> None:
    site = Site()
    older = site.register(1)
    site.refuse()
    site.clock.advance(100)
    site.refuse()
    assert site.detector.is_gone(older)
    newer = site.register(2)
    assert site.cache.is_reachable(OTHER)
    assert not site.detector.is_gone(newer)
    assert not site.detector.is_gone(older)


def test_who_left_is_watched_no_more() -> None:
    site = Site()
    site.register()
    held = site.hold()
    del site.cache.brokers[OTHER]
    site.detector.look()
    assert held.is_closed
    site.register()
    site.detector.stop()
    assert all(each.is_closed for each in site.opened)
    assert site.clock.timers_running == 0
    site.detector.look()
    assert len(site.opened) == 2
