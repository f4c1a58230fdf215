"""The model of ZooKeeper: the contract that the real one passes too, and what sessions do."""

from __future__ import annotations

from typing import TypeVar

import pytest
from tests.contracts.metadata_store import MetadataStoreContract, OpenStore

from millstream.model.deferred import Deferred
from millstream.model.metadata_store import (
    ConnectionLossError,
    Create,
    SessionEvent,
    SetData,
)
from millstream.sim.coordination import MISLED_LOOK_MS, Ensemble, SimMetadataStore
from millstream.sim.loop import Loop, NodeClock

T = TypeVar("T")
TIMEOUT_MS = 3_000


class Site:
    def __init__(self) -> None:
        self.loop = Loop(1)
        self.ensemble = Ensemble(self.loop)
        self.count = 0

    def open(self) -> SimMetadataStore:
        self.count += 1
        store = SimMetadataStore(
            self.ensemble, self.count, NodeClock(self.loop), session_timeout_ms=TIMEOUT_MS
        )
        store.open()
        self.advance(50)
        return store

    def advance(self, milliseconds: float) -> None:
        self.loop.run_until(self.loop.now_ms + milliseconds)

    def wait(self, deferred: Deferred[T]) -> T:
        for _ in range(100):
            if deferred.done:
                break
            self.advance(100)
        self.advance(20)  # for watches
        return deferred.result()


class TestContract(MetadataStoreContract):
    @pytest.fixture
    def open_store(self) -> OpenStore:
        self.site = Site()
        return self.site.open

    def wait(self, deferred: Deferred[T]) -> T:
        return self.site.wait(deferred)


def test_a_killed_owner_keeps_its_nodes_until_the_session_is_over() -> None:
    site = Site()
    clock = NodeClock(site.loop)
    store = SimMetadataStore(site.ensemble, 1, clock, session_timeout_ms=TIMEOUT_MS)
    store.open()
    site.advance(50)
    site.wait(store.multi([Create("/a", b"", ephemeral=True)]))
    clock.is_dead = True
    site.advance(TIMEOUT_MS - 1_500)
    assert "/a" in site.ensemble.tree.nodes
    site.advance(2_000)
    assert "/a" not in site.ensemble.tree.nodes


def test_a_paused_owner_hears_of_the_end_of_its_session_when_it_wakes() -> None:
    site = Site()
    clock = NodeClock(site.loop)
    store = SimMetadataStore(site.ensemble, 1, clock, session_timeout_ms=TIMEOUT_MS)
    store.open()
    site.advance(50)
    told: list[SessionEvent] = []
    store.watch_session(told.append)
    before = store.session_id
    clock.pause()
    site.advance(2 * TIMEOUT_MS)
    assert told == []
    clock.resume()
    site.advance(1_000)
    assert told[-2:] == [SessionEvent.EXPIRED, SessionEvent.CONNECTED]
    assert store.session_id != before


def test_a_write_whose_answer_is_lost_may_have_been_made() -> None:
    site = Site()
    store = site.open()
    site.wait(store.multi([Create("/a", b"one")]))
    site.ensemble.cuts.add((1, "from"))
    with pytest.raises(ConnectionLossError):
        site.wait(store.multi([SetData("/a", b"two", 0)]))
    assert site.ensemble.tree.nodes["/a"].data == b"two"


def test_a_write_that_does_not_get_through_is_not_made() -> None:
    site = Site()
    store = site.open()
    site.wait(store.multi([Create("/a", b"one")]))
    site.ensemble.cuts.add((1, "to"))
    with pytest.raises(ConnectionLossError):
        site.wait(store.multi([SetData("/a", b"two", 0)]))
    assert site.ensemble.tree.nodes["/a"].data == b"one"


def test_a_silent_store_says_so_and_comes_back() -> None:
    site = Site()
    store = site.open()
    told: list[SessionEvent] = []
    store.watch_session(told.append)
    site.ensemble.cuts.update({(1, "to"), (1, "from")})
    site.advance(TIMEOUT_MS + 1_000)
    assert told == [SessionEvent.SILENT]
    site.ensemble.cuts.clear()
    site.advance(1_000)
    assert told == [SessionEvent.SILENT, SessionEvent.EXPIRED, SessionEvent.CONNECTED]
    site.wait(store.multi([Create("/b", b"")]))


def test_an_owner_is_misled_from_an_early_end_until_its_lease_is_over() -> None:
    site = Site()
    store = site.open()
    site.ensemble.cuts.update({(1, "to"), (1, "from")})
    assert not site.ensemble.was_misled(1, 0.0)
    site.ensemble.end_early(store.session_id)
    assert not site.ensemble.is_alive(store.session_id)
    assert store.lease_ms > 0
    assert site.ensemble.was_misled(1, site.loop.now_ms)
    assert not site.ensemble.was_misled(2, 0.0), "another broker"
    while store.lease_ms > 0:
        site.advance(1)
    over_ms = site.loop.now_ms
    site.advance(1_000)
    assert not site.ensemble.was_misled(1, over_ms + MISLED_LOOK_MS)
    assert site.ensemble.was_misled(1, over_ms - 10), "what was asked before may be out of date"


def test_an_owner_that_hears_of_an_early_end_is_misled_no_more() -> None:
    site = Site()
    store = site.open()
    before = store.session_id
    site.ensemble.end_early(before)
    site.advance(1_000)
    assert store.session_id not in (0, before)
    assert not site.ensemble.was_misled(1, site.loop.now_ms - 100)


def test_nobody_is_misled_whose_session_times_out() -> None:
    """Whatever its lease says: that it ends before the session does is what is to be shown."""
    site = Site()
    clock = NodeClock(site.loop, rate=0.5)
    store = SimMetadataStore(site.ensemble, 1, clock, session_timeout_ms=TIMEOUT_MS)
    store.open()
    site.advance(100)
    session = store.session_id
    site.ensemble.cuts.update({(1, "to"), (1, "from")})
    site.advance(TIMEOUT_MS + 10)
    assert not site.ensemble.is_alive(session)
    assert store.lease_ms > 0
    assert not site.ensemble.was_misled(1, 0.0)


def test_watches_fold_what_happens_between_two_looks() -> None:
    site = Site()
    one, other = site.open(), site.open()
    told: list[str] = []
    one.watch("/a", told.append)
    for count in range(5):
        other.multi([Create("/a", b"") if not count else SetData("/a", b"%d" % count)])
    site.advance(100)
    assert 1 <= len(told) < 5
