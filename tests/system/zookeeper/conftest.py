"""A ZooKeeper server for the tests of this room, and a loop that stores fill their answers on."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest
from tests.zookeeper_server import ensemble

from millstream.model.deferred import Deferred
from millstream.runtime.clock import LoopClock
from millstream.zookeeper.embedded import ZooKeeperServer
from millstream.zookeeper.metadata_store import ZooKeeperMetadataStore

T = TypeVar("T")

TIMEOUT_S = 60.0


class StoreLoop:
    """An event loop that runs while somebody waits, and the stores that live on it."""

    def __init__(self, connect: str) -> None:
        self.connect = connect
        self.loop = asyncio.new_event_loop()
        self.clock = LoopClock(self.loop)
        self._stores: list[ZooKeeperMetadataStore] = []

    def store(
        self, *, session_timeout_ms: int = 6000, connect: str | None = None
    ) -> ZooKeeperMetadataStore:
        """Return a store that is open."""
        store = self.unopened(session_timeout_ms=session_timeout_ms, connect=connect)
        self.wait(store.open(10_000))
        return store

    def unopened(
        self, *, session_timeout_ms: int = 6000, connect: str | None = None
    ) -> ZooKeeperMetadataStore:
        store = ZooKeeperMetadataStore(
            connect or self.connect,
            clock=self.clock,
            session_timeout_ms=session_timeout_ms,
            call_on_loop=self.loop.call_soon_threadsafe,
        )
        self._stores.append(store)
        return store

    def wait(self, deferred: Deferred[T]) -> T:
        """Run the loop until the Deferred is filled."""
        self.until(lambda: deferred.done)
        return deferred.result()

    def until(self, condition: Callable[[], bool]) -> None:
        """Run the loop until something is so."""
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline, "waited in vain"
            self.run_for(5)

    def run_for(self, milliseconds: float) -> None:
        """Run the loop for a while."""
        self.loop.run_until_complete(asyncio.sleep(milliseconds / 1000))

    def close(self) -> None:
        for store in self._stores:
            self.wait(store.close())
        self.loop.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """One server for all tests of this worker that do it no harm."""
    started = ensemble(tmp_path_factory.mktemp("zookeeper"))
    with started:
        yield started.servers[0]


_chroots = itertools.count()


@pytest.fixture
def stores(server: ZooKeeperServer) -> Iterator[StoreLoop]:
    """Stores over a tree of this test's own."""
    loop = StoreLoop(f"{server.address}/test/{next(_chroots)}")
    yield loop
    loop.close()


@pytest.fixture
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A server that the test may stop, kill and pause."""
    started = ensemble(tmp_path_factory.mktemp("own"))
    with started:
        yield started.servers[0]


@pytest.fixture
def own_stores(own_server: ZooKeeperServer) -> Iterator[StoreLoop]:
    """Stores at the test's own server."""
    loop = StoreLoop(own_server.address)
    yield loop
    if not own_server.running:
        own_server.start()
        own_server.wait()
    loop.close()
