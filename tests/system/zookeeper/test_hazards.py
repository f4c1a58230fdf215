"""The hazards of ZooKeeper and of its client, each met with a real server.

1. A write that raised ConnectionLoss may have been applied.
2. The client library does not say that a session is lost while no server is reached.
3. What was meant for one session must not be carried out in the next.
4. A zombie acts for a moment after a pause: versions fence it.
5. After a server restart sessions go on: registered does not mean alive.
6. Watches coalesce: a bounce shows only as another creation id.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.zookeeper.conftest import StoreLoop
from tests.system.zookeeper.proxy import Proxy
from tests.zookeeper_server import java_program

from millstream.model.metadata_store import (
    BadVersionError,
    Check,
    ConnectionLossError,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    SessionEvent,
    SessionExpiredError,
    SetData,
)
from millstream.runtime.controlling.careful_writes import write_surely
from millstream.zookeeper.embedded import ZooKeeperServer
from millstream.zookeeper.metadata_store import ZooKeeperMetadataStore

pytestmark = [pytest.mark.system, pytest.mark.slow]

SESSION_MS = 1_500
GRANTED_MS = 3_000


@pytest.fixture
def proxy(own_server: ZooKeeperServer) -> Iterator[Proxy]:
    made = Proxy(own_server.port)
    yield made
    made.close()


@pytest.fixture
def behind(own_stores: StoreLoop, proxy: Proxy) -> ZooKeeperMetadataStore:
    """A store that reaches the server through the proxy."""
    return own_stores.store(session_timeout_ms=SESSION_MS, connect=proxy.address)


def events_of(store: ZooKeeperMetadataStore) -> list[SessionEvent]:
    heard: list[SessionEvent] = []
    store.watch_session(heard.append)
    return heard


# --- 1 -----------------------------------------------------------------------------------------


def test_a_write_whose_answer_is_lost_may_have_been_applied(
    own_stores: StoreLoop, behind: ZooKeeperMetadataStore, proxy: Proxy
) -> None:
    other = own_stores.store()
    own_stores.wait(behind.multi([Create("/a", b"0")]))
    proxy.drop_answers = True
    written = behind.multi([SetData("/a", b"1", 0)])
    own_stores.until(lambda: own_stores.wait(other.get("/a")).data == b"1")
    proxy.drop_answers = False
    proxy.cut()
    with pytest.raises(ConnectionLossError):
        own_stores.wait(written)


def test_a_careful_write_finds_out_and_is_applied_once(
    own_stores: StoreLoop, behind: ZooKeeperMetadataStore, proxy: Proxy
) -> None:
    from millstream.model.deferred import spawn

    own_stores.wait(behind.multi([Create("/a", b"0")]))
    for answers_lost, version in ((True, 0), (False, 1)):
        proxy.drop_answers, proxy.is_silent = answers_lost, not answers_lost
        written = spawn(
            write_surely(behind, own_stores.clock, [SetData("/a", b"x%d" % version, version)])
        )
        own_stores.run_for(100)
        proxy.drop_answers = proxy.is_silent = False
        proxy.cut()
        own_stores.wait(written)
        node = own_stores.wait(behind.get("/a"))
        assert (node.data, node.version) == (b"x%d" % version, version + 1)


# --- 2 -----------------------------------------------------------------------------------------


def test_a_store_that_is_cut_off_knows_by_itself_when_its_session_may_be_over(
    own_stores: StoreLoop, behind: ZooKeeperMetadataStore, proxy: Proxy
) -> None:
    heard = events_of(behind)
    assert behind.lease_ms > 0
    proxy.is_silent = True
    waiting = behind.get("/")
    own_stores.until(lambda: SessionEvent.SILENT in heard)
    assert behind.lease_ms <= 0
    for call in (waiting, behind.get("/"), behind.multi([Create("/late", b"")])):
        with pytest.raises(ConnectionLossError):
            own_stores.wait(call)
    proxy.is_silent = False
    proxy.cut()
    own_stores.until(lambda: heard[-1:] == [SessionEvent.CONNECTED])
    with pytest.raises(NoNodeError):
        own_stores.wait(behind.get("/late"))


def test_a_paused_server_is_noticed_too(own_stores: StoreLoop, own_server: ZooKeeperServer) -> None:
    store = own_stores.store(session_timeout_ms=SESSION_MS)
    heard = events_of(store)
    os.kill(own_server.process_id, signal.SIGSTOP)
    try:
        own_stores.until(lambda: SessionEvent.SILENT in heard)
    finally:
        os.kill(own_server.process_id, signal.SIGCONT)
    own_stores.until(lambda: heard[-1:] == [SessionEvent.CONNECTED])
    own_stores.wait(store.multi([Create("/a", b"")]))


@pytest.fixture
def strict_server(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    """A server that grants no session time-out above ``GRANTED_MS``."""
    server = ZooKeeperServer(java_program(), tmp_path, max_session_timeout_ms=GRANTED_MS)
    server.start()
    try:
        server.wait()
        yield server
    finally:
        server.stop()


def test_a_session_is_believed_in_for_as_long_as_the_server_grants(
    strict_server: ZooKeeperServer,
) -> None:
    """Ten times as long was asked for: another broker could lead, and this one not know of it."""
    proxy, stores = Proxy(strict_server.port), StoreLoop(strict_server.address)
    behind = stores.store(session_timeout_ms=10 * GRANTED_MS, connect=proxy.address)
    heard = events_of(behind)
    assert 0 < behind.lease_ms <= GRANTED_MS
    stores.run_for(1.2 * GRANTED_MS)
    assert behind.lease_ms > 0, "it is asked for often enough to be kept"
    proxy.is_silent = True
    stores.until(lambda: SessionEvent.SILENT in heard)
    assert behind.lease_ms <= 0
    proxy.is_silent = False
    proxy.cut()
    stores.close()
    proxy.close()


# --- 3 -----------------------------------------------------------------------------------------


def test_what_is_meant_for_one_session_is_not_carried_out_in_the_next(
    own_stores: StoreLoop, behind: ZooKeeperMetadataStore, proxy: Proxy
) -> None:
    heard = events_of(behind)
    other = own_stores.store()
    first = behind.session_id
    own_stores.wait(behind.multi([Create("/mine", b"", ephemeral=True)]))
    proxy.is_silent = True
    asked = behind.multi([Create("/of-the-first", b"", ephemeral=True)])
    own_stores.until(lambda: "mine" not in own_stores.wait(other.children("/")))
    proxy.is_silent = False
    proxy.cut()
    own_stores.until(lambda: heard[-1:] == [SessionEvent.CONNECTED] and behind.session_id != first)
    assert SessionEvent.EXPIRED in heard
    with pytest.raises((ConnectionLossError, SessionExpiredError)):
        own_stores.wait(asked)
    own_stores.run_for(200)
    assert own_stores.wait(behind.children("/")) == ()
    own_stores.wait(behind.multi([Create("/mine", b"", ephemeral=True)]))
    assert own_stores.wait(other.get("/mine")).owner == behind.session_id


# --- 4 -----------------------------------------------------------------------------------------


def test_a_zombie_is_fenced_by_the_version_of_the_epoch(
    own_stores: StoreLoop, behind: ZooKeeperMetadataStore
) -> None:
    own_stores.wait(behind.multi([Create("/epoch", b"1"), Create("/state", b"old")]))
    other = own_stores.store()
    own_stores.wait(other.multi([SetData("/epoch", b"2", 0), SetData("/state", b"new")]))
    with pytest.raises(BadVersionError) as raised:
        own_stores.wait(behind.multi([Check("/epoch", 0), SetData("/state", b"zombie")]))
    assert raised.value.path == "/epoch"
    assert own_stores.wait(other.get("/state")).data == b"new"


# --- 5 -----------------------------------------------------------------------------------------


def test_a_registration_outlives_its_process_where_the_server_restarts(
    own_stores: StoreLoop, own_server: ZooKeeperServer, proxy: Proxy
) -> None:
    gone = own_stores.store(session_timeout_ms=10_000, connect=proxy.address)
    own_stores.wait(gone.multi([Create("/broker", b"", ephemeral=True)]))
    watcher = own_stores.store(session_timeout_ms=20_000)
    proxy.is_silent = True  # nothing comes from it any more, as from a process that was killed
    own_server.kill()
    own_server.start()
    own_server.wait()
    node = None
    while node is None:
        try:
            node = own_stores.wait(watcher.get("/broker"))
        except ConnectionLossError:
            own_stores.run_for(50)
    assert node.ephemeral, "whoever made it is gone, and its time is counted anew"


def test_an_own_session_and_its_nodes_outlive_a_restart_of_the_server(
    own_stores: StoreLoop, own_server: ZooKeeperServer
) -> None:
    store = own_stores.store(session_timeout_ms=10_000)
    heard = events_of(store)
    session = store.session_id
    told: list[str] = []
    store.watch("/broker", told.append)
    own_stores.wait(store.multi([Create("/broker", b"", ephemeral=True)]))
    own_server.kill()
    own_server.start()
    own_server.wait()
    own_stores.until(lambda: SessionEvent.CONNECTED in heard)
    assert store.session_id == session
    assert own_stores.wait(store.get("/broker")).owner == session
    own_stores.until(lambda: bool(told))
    told.clear()
    own_stores.wait(store.multi([SetData("/broker", b"x")]))
    own_stores.until(lambda: told == ["/broker"])


# --- 6 -----------------------------------------------------------------------------------------


def test_a_bounce_shows_as_another_creation_id(own_stores: StoreLoop) -> None:
    watcher, broker = own_stores.store(), own_stores.store()
    own_stores.wait(broker.multi([Create("/ids", b""), Create("/ids/1", b"", ephemeral=True)]))
    before = own_stores.wait(watcher.get("/ids/1")).creation_id
    told: list[str] = []
    watcher.watch("/ids", told.append)
    own_stores.run_for(50)
    own_stores.wait(broker.multi([Delete("/ids/1"), Create("/ids/1", b"", ephemeral=True)]))
    own_stores.until(lambda: bool(told))
    assert own_stores.wait(watcher.children("/ids")) == ("1",)
    assert own_stores.wait(watcher.get("/ids/1")).creation_id > before


def test_a_watch_that_was_lost_with_its_connection_looks_again(
    own_stores: StoreLoop, behind: ZooKeeperMetadataStore, proxy: Proxy
) -> None:
    other = own_stores.store()
    own_stores.wait(behind.multi([Create("/a", b"")]))
    told: list[str] = []
    behind.watch("/a", told.append)
    own_stores.run_for(50)
    proxy.is_silent = True
    own_stores.wait(other.multi([SetData("/a", b"x")]))
    proxy.is_silent = False
    proxy.cut()
    own_stores.until(lambda: told == ["/a"])


def test_one_of_two_claims_wins(own_stores: StoreLoop) -> None:
    stores = [own_stores.store() for _ in range(2)]
    own_stores.wait(stores[0].multi([Create("/epoch", b"0")]))
    claim = [Create("/controller", b"", ephemeral=True), SetData("/epoch", b"1", 0)]
    outcomes = [store.multi(claim) for store in stores]
    own_stores.until(lambda: all(each.done for each in outcomes))
    failures = 0
    for each in outcomes:
        try:
            each.result()
        except NodeExistsError:
            failures += 1
    assert failures == 1


def test_an_ensemble_goes_on_without_one_of_its_servers(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    from tests.zookeeper_server import ensemble

    with ensemble(tmp_path_factory.mktemp("three"), size=3) as three:
        loop = StoreLoop(f"{three.connect}/some/where")
        try:
            store = loop.store()
            loop.wait(store.multi([Create("/a", b"0")]))
            three.servers[0].kill()
            written = False
            while not written:
                try:
                    node = loop.wait(store.get("/a"))
                    loop.wait(store.multi([SetData("/a", b"1", node.version)]))
                    written = True
                except ConnectionLossError:
                    loop.run_for(100)
            assert loop.wait(store.get("/a")).data == b"1"
        finally:
            loop.close()
