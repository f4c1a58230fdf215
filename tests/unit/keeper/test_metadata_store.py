"""The store at a keeper: the contract, and what becomes of sessions when one side stands still, is
killed, or is cut off. Time is virtual.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import pytest
from tests.contracts.metadata_store import MetadataStoreContract, OpenStore
from tests.unit.keeper.site import LATENCY_MS, TIMEOUT_MS, KeeperSite
from tests.unit.runtime.coordinator_site import HeldOffload

from millstream.keeper import keeper as keeper_module
from millstream.keeper import messages
from millstream.keeper.group_commit import GroupCommit
from millstream.keeper.keeper import Keeper
from millstream.keeper.messages import OpenSession, TooLargeError, encode_frame
from millstream.model.deferred import Deferred
from millstream.model.metadata_store import (
    CLOCK_DRIFT,
    ConnectionLossError,
    Create,
    MetadataStore,
    NoNodeError,
    SessionEvent,
    SessionExpiredError,
    SetData,
)
from millstream.protocol.outgoing import Outgoing
from millstream.sim.loop import Loop, NodeClock
from millstream.sqlite.database import Database

T = TypeVar("T")

A_WHILE_MS = 200.0
CONNECTED, SILENT, EXPIRED = SessionEvent.CONNECTED, SessionEvent.SILENT, SessionEvent.EXPIRED


@pytest.fixture
def site(tmp_path: Path) -> KeeperSite:
    return KeeperSite(tmp_path)


class TestContract(MetadataStoreContract):
    @pytest.fixture(autouse=True)
    def keep(self, site: KeeperSite) -> None:
        self._site = site

    @pytest.fixture
    def open_store(self) -> OpenStore:
        return lambda: self._site.client().store

    def wait(self, deferred: Deferred[T]) -> T:
        return self._site.wait(deferred)


def exists(site: KeeperSite, store: MetadataStore, path: str) -> bool:
    try:
        site.wait(store.get(path))
    except NoNodeError:
        return False
    return True


def test_a_killed_client_loses_its_ephemeral_nodes_at_once(site: KeeperSite) -> None:
    one, other = site.client(), site.client()
    site.wait(one.store.multi([Create("/e", b"", ephemeral=True)]))
    told: list[str] = []
    other.store.watch("/e", told.append)
    other.store.watch("/", told.append)
    site.run_for(A_WHILE_MS)
    one.kill()
    site.run_for(3 * LATENCY_MS)
    assert sorted(told) == ["/", "/e"]
    assert not exists(site, other.store, "/e")


def test_the_session_of_a_client_that_stands_still_ends(site: KeeperSite) -> None:
    one, other = site.client(), site.client()
    site.wait(one.store.multi([Create("/e", b"", ephemeral=True)]))
    before = one.store.session_id
    one.clock.pause()
    site.run_for(TIMEOUT_MS - A_WHILE_MS - TIMEOUT_MS / 5)
    assert exists(site, other.store, "/e"), "a pause that is shorter changes nothing"
    site.run_for(2 * A_WHILE_MS + TIMEOUT_MS / 5)
    assert not exists(site, other.store, "/e")
    one.events.clear()
    one.clock.resume()
    site.run_for(A_WHILE_MS)
    assert EXPIRED in one.events
    assert one.events[-1] is CONNECTED
    assert one.store.session_id not in (0, before)
    site.wait(one.store.multi([Create("/e", b"", ephemeral=True)]))
    assert exists(site, other.store, "/e")


def test_a_client_that_is_cut_off_stops_to_believe_before_its_session_ends(
    site: KeeperSite,
) -> None:
    one, other = site.client(), site.client()
    site.wait(one.store.multi([Create("/e", b"", ephemeral=True)]))
    one.freeze()
    believed_ms = None
    ended_ms = None
    for passed_ms in range(0, 2 * TIMEOUT_MS, 10):
        site.run_for(10)
        if believed_ms is None and one.store.lease_ms <= 0:
            believed_ms = passed_ms
        if not exists(site, other.store, "/e"):
            ended_ms = passed_ms
            break
    assert believed_ms is not None
    assert ended_ms is not None
    assert believed_ms < ended_ms
    site.run_for(TIMEOUT_MS / 5)
    assert SILENT in one.events
    with pytest.raises(ConnectionLossError):
        site.wait(one.store.get("/"))
    one.thaw()
    site.run_for(A_WHILE_MS)
    assert one.events[-2:] == [EXPIRED, CONNECTED]


@pytest.mark.parametrize("rate", [1 - CLOCK_DRIFT / 2, 1 + CLOCK_DRIFT / 2])
def test_a_lease_is_never_longer_than_the_session(site: KeeperSite, rate: float) -> None:
    """Also where the client's clock runs slower than the keeper's."""
    one = site.client(rate=rate)
    one.freeze()
    while one.store.session_id in site.keeper._sessions:
        site.run_for(1)
    assert one.store.lease_ms <= 0


def test_what_was_frozen_and_comes_late_is_of_a_session_that_is_over(site: KeeperSite) -> None:
    one, other = site.client(), site.client()
    one.freeze()
    late = one.store.multi([Create("/late", b"")])
    site.run_for(2 * TIMEOUT_MS)
    with pytest.raises(ConnectionLossError):
        late.result()
    one.thaw()
    site.run_for(A_WHILE_MS)
    assert not exists(site, other.store, "/late")


def test_sessions_survive_the_keeper(site: KeeperSite) -> None:
    one = site.client()
    site.wait(one.store.multi([Create("/e", b"", ephemeral=True)]))
    before = one.store.session_id
    told: list[str] = []
    one.store.watch("/e", told.append)
    site.run_for(A_WHILE_MS)
    one.events.clear()
    site.kill_keeper()
    site.run_for(A_WHILE_MS)
    waits = one.store.get("/e")
    site.start()
    site.run_for(2 * A_WHILE_MS)
    assert waits.result().owner == before == one.store.session_id
    assert one.events == [CONNECTED]
    assert told == ["/e"], "what changed meanwhile was told to nobody"
    site.run_for(2 * TIMEOUT_MS)
    assert one.events == [CONNECTED]
    assert exists(site, one.store, "/e")
    told.clear()
    site.wait(one.store.multi([SetData("/e", b"x")]))
    assert told == ["/e"], "it watches at the new keeper"


def test_a_session_that_nobody_resumes_ends_one_time_out_after_the_start(
    site: KeeperSite,
) -> None:
    one, other = site.client(), site.client()
    site.wait(one.store.multi([Create("/e", b"", ephemeral=True)]))
    site.kill_keeper()
    one.kill()
    site.run_for(TIMEOUT_MS / 2)
    site.start()
    site.run_for(TIMEOUT_MS - A_WHILE_MS)
    assert exists(site, other.store, "/e")
    site.run_for(2 * A_WHILE_MS)
    assert not exists(site, other.store, "/e")


def test_a_write_that_a_keeper_did_not_answer_before_its_end_is_in_doubt(
    site: KeeperSite,
) -> None:
    one = site.client()
    write = one.store.multi([Create("/a", b"")])
    site.run_for(LATENCY_MS)  # it is carried out, and its answer is under way
    assert one.end.other is not None
    one.end.other.is_frozen = True
    site.kill_keeper()
    one.end.owner.closed("killed", by_peer=True)  # type: ignore[union-attr]
    with pytest.raises(ConnectionLossError):
        write.result()
    site.start()
    site.run_for(A_WHILE_MS)
    assert exists(site, one.store, "/a")


def test_what_is_asked_for_without_a_keeper_fails_once_the_session_may_be_over(
    site: KeeperSite,
) -> None:
    one = site.client()
    site.kill_keeper()
    site.run_for(A_WHILE_MS)
    waits = one.store.get("/")
    site.run_for(2 * TIMEOUT_MS)
    with pytest.raises(ConnectionLossError):
        waits.result()
    assert one.events == [CONNECTED, SILENT]
    site.start()
    site.run_for(2 * A_WHILE_MS)
    # The keeper counts from its start, so the session is still there.
    assert one.events == [CONNECTED, SILENT, CONNECTED]


def test_a_keeper_that_stood_still_ends_no_session_for_it(site: KeeperSite) -> None:
    one = site.client()
    site.wait(one.store.multi([Create("/e", b"", ephemeral=True)]))
    before = one.store.session_id
    site.clock.pause()
    site.run_for(3 * TIMEOUT_MS)
    assert one.events == [CONNECTED, SILENT], "nobody may act for what may be over"
    site.clock.resume()
    site.run_for(A_WHILE_MS)
    assert one.events == [CONNECTED, SILENT, CONNECTED]
    assert one.store.session_id == before
    assert exists(site, one.store, "/e")


def test_a_session_is_not_resumed_without_its_secret(site: KeeperSite) -> None:
    one = site.client()
    thief = site.client()
    thief.store._session_id, thief.store._secret = one.store.session_id, b"guessed"
    thief.end.close()
    thief.store.closed("cut", by_peer=True)
    site.run_for(A_WHILE_MS)
    assert EXPIRED in thief.events
    assert thief.store.session_id != one.store.session_id
    site.wait(one.store.multi([Create("/e", b"", ephemeral=True)]))


def test_nothing_meant_for_one_session_is_sent_in_the_next(site: KeeperSite) -> None:
    one = site.client()
    site.kill_keeper()
    site.run_for(A_WHILE_MS)
    write = one.store.multi([Create("/a", b"")])
    one.store._secret = b"forgotten"
    site.start()
    site.run_for(2 * A_WHILE_MS)
    with pytest.raises(SessionExpiredError):
        write.result()
    assert not exists(site, one.store, "/a")


def test_a_start_without_a_keeper_gives_up(site: KeeperSite) -> None:
    site.kill_keeper()
    with pytest.raises(ConnectionLossError):
        site.client()


def test_large_answers_come_in_parts(site: KeeperSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper_module, "PART_BYTES", 1_000)
    one = site.client()
    paths = [f"/x/{number:03}" for number in range(100)]
    data = b"d" * 300
    site.wait(one.store.multi([Create("/x", b""), *(Create(path, data) for path in paths)]))
    one.end.other.sent.clear()  # type: ignore[union-attr]
    assert list(site.wait(one.store.tree("/x"))) == ["/x", *paths]
    assert list(site.wait(one.store.get_all(paths))) == paths
    sizes = [len(each) for each in one.end.other.sent]  # type: ignore[union-attr]
    assert max(sizes) < 2_000


def test_a_request_that_is_too_large_is_not_sent(
    site: KeeperSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = site.client()
    with pytest.raises(TooLargeError):
        site.wait(one.store.multi([Create("/a", b"d" * messages.MAX_REQUEST_BYTES)]))
    assert not exists(site, one.store, "/a")


def test_a_disk_that_fails_ends_the_keeper_and_answers_nothing(site: KeeperSite) -> None:
    one = site.client()
    assert site.commits._database is not None
    site.commits._database.abandon()
    write = one.store.multi([Create("/a", b"")])
    site.run_for(A_WHILE_MS)
    assert len(site.failures) == 1
    assert not write.done


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\0\0\1",
        b"\0\0\0\1\x63",
        b"\0\0\0\0\2\0",  # a request without an id
        b"\0\0\0\1\1\0",  # an answer
        b"\0\0\0\1\4\xff\xff\xff\xff\x0f",  # two thousand million paths
        b"\0\0\0\1\6\3/",  # cut off
        b"\0\0\0\1\2\0junk",
        b"\0\0\0\1\6\5bad/\0",  # no path
    ],
)
def test_a_frame_that_means_nothing_closes_the_connection_and_ends_no_session(
    site: KeeperSite, frame: bytes
) -> None:
    one, other = site.client(), site.client()
    site.wait(one.store.multi([Create("/e", b"", ephemeral=True)]))
    before = one.store.session_id
    size = len(frame).to_bytes(4, "big")
    one.end.send(Outgoing([size + frame], 4 + len(frame)))
    site.run_for(A_WHILE_MS)
    assert len(one.ends) == 2, "it was closed, and the client has come back"
    assert one.store.session_id == before
    assert exists(site, other.store, "/e")


def test_a_client_that_does_not_read_is_cut_off_and_keeps_its_session(site: KeeperSite) -> None:
    one = site.client()
    before = one.store.session_id
    assert one.end.other is not None
    one.end.other.pending_bytes = keeper_module.MAX_UNSENT_BYTES + 1
    reading = one.store.get("/")
    with pytest.raises(ConnectionLossError):
        site.wait(reading)
    site.run_for(A_WHILE_MS)
    assert one.store.session_id == before


def test_a_client_that_hangs_up_itself_stops_to_believe(site: KeeperSite) -> None:
    """To the keeper that is the end of the client, and of its session at once."""
    one, other = site.client(), site.client()
    site.wait(one.store.multi([Create("/e", b"", ephemeral=True)]))
    before = one.store.session_id
    junk = b"\0\0\0\4\0\0\0\1"  # no kind
    assert one.end.other is not None
    one.end.other.send(Outgoing([junk], len(junk)))
    site.run_for(LATENCY_MS)
    assert one.end.is_closed
    assert one.store.lease_ms <= 0
    site.run_for(A_WHILE_MS)
    assert not exists(site, other.store, "/e")
    assert one.store.session_id not in (0, before)
    assert one.store.lease_ms > 0
    assert EXPIRED in one.events


def test_a_session_whose_client_goes_while_it_is_stored_is_over_at_once(tmp_path: Path) -> None:
    class Unread:
        pending_bytes = 0

        def send(self, outgoing: Outgoing) -> None:
            raise AssertionError("nobody is there")

        def close(self) -> None:
            raise AssertionError("it is closed")

    failures: list[Exception] = []
    offload = HeldOffload()
    store = GroupCommit(offload, tmp_path, on_failed=failures.append)
    keeper = Keeper(store, NodeClock(Loop(1)), new_secret=bytes)
    assert keeper.start().done
    connection = keeper.accept(Unread())
    offload.held = True
    frame = encode_frame(1, OpenSession(timeout_ms=3_000)).join()
    connection.frame_received(memoryview(frame)[4:])
    connection.closed("the other side closed the connection", by_peer=True)
    offload.held = False
    offload.release()
    assert store.run(Database.sessions).result() == {}
    assert failures == []
