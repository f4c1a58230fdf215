"""The store's contract over a real socket, with the store's work on another thread."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from tests.contracts.metadata_store import MetadataStoreContract, OpenStore

from millstream.keeper.group_commit import GroupCommit
from millstream.keeper.keeper import Keeper
from millstream.keeper.messages import MAX_ANSWER_BYTES, MAX_REQUEST_BYTES
from millstream.keeper.metadata_store import KeeperMetadataStore
from millstream.model.deferred import Deferred
from millstream.model.metadata_store import Create, NoNodeError
from millstream.net.local_socket import LocalClient, LocalListener
from millstream.runtime.clock import LoopClock
from millstream.runtime.offload import ThreadOffload

T = TypeVar("T")


class Site:
    """A keeper and its clients on one loop."""

    def __init__(self, directory: Path) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = LoopClock(self.loop)
        self.path = directory / "keeper.sock"
        self._offload = ThreadOffload(self.loop.call_soon_threadsafe)
        store = GroupCommit(
            self._offload, directory, on_failed=lambda error: pytest.fail(repr(error))
        )
        self.keeper = Keeper(store, self.clock, new_secret=os.urandom)
        self.wait(self.keeper.start())
        self._listener = LocalListener(
            self.loop, self.path, self.keeper.accept, max_frame_bytes=MAX_REQUEST_BYTES
        )
        self.stores: list[KeeperMetadataStore] = []

    def store(self) -> KeeperMetadataStore:
        store = KeeperMetadataStore(
            lambda owner: LocalClient(
                self.loop, self.path, owner, max_frame_bytes=MAX_ANSWER_BYTES
            ),
            clock=self.clock,
            session_timeout_ms=6_000,
            name="a test",
        )
        self.stores.append(store)
        self.wait(store.open(10_000))
        return store

    def wait(self, deferred: Deferred[T]) -> T:
        async def poll() -> None:
            while not deferred.done:
                await asyncio.sleep(0.0005)

        self.loop.run_until_complete(asyncio.wait_for(poll(), 30))
        return deferred.result()

    def close(self) -> None:
        for store in self.stores:
            self.wait(store.close())
        self._listener.close()
        self.wait(self.keeper.stop())
        self._offload.close()
        self.loop.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()


class TestContract(MetadataStoreContract):
    @pytest.fixture(autouse=True)
    def keep(self, site: Site) -> None:
        self._site = site

    @pytest.fixture
    def open_store(self) -> OpenStore:
        return self._site.store

    def wait(self, deferred: Deferred[T]) -> T:
        return self._site.wait(deferred)


def test_a_client_whose_socket_closes_loses_its_session(site: Site) -> None:
    one, other = site.store(), site.store()
    site.wait(one.multi([Create("/e", b"", ephemeral=True)]))
    told: list[str] = []
    other.watch("/e", told.append)
    assert one._link is not None
    one._closing = True
    one._link.close()
    site.wait(other.get("/"))
    while not told:
        site.wait(other.get("/"))
    with pytest.raises(NoNodeError):
        site.wait(other.get("/e"))
    one._stop()
