"""The metadata store's contract, over a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest
from tests.contracts.metadata_store import MetadataStoreContract, OpenStore
from tests.system.zookeeper.conftest import StoreLoop

from millstream.model.deferred import Deferred
from millstream.zookeeper.kazoo_internals import MultiRead

pytestmark = pytest.mark.system

T = TypeVar("T")

SETTLE_MS = 40
"""Events travel beside answers: so long one that nobody expects is given after each answer."""


class TestZooKeeperMetadataStore(MetadataStoreContract):
    """Every test of the contract."""

    @pytest.fixture(autouse=True)
    def loop(self, stores: StoreLoop) -> None:
        self._stores = stores

    @pytest.fixture
    def open_store(self) -> OpenStore:
        return self._stores.store

    def wait(self, deferred: Deferred[T]) -> T:
        value: T | None = None
        error: BaseException | None = None
        try:
            value = self._stores.wait(deferred)
        except BaseException as raised:
            error = raised
        self._stores.run_for(SETTLE_MS)
        if error is not None:
            raise error
        return value  # type: ignore[return-value]

    def until(self, condition: Callable[[], bool]) -> None:
        self._stores.until(condition)

    def test_an_older_server_is_asked_for_one_node_after_the_other(
        self, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It answers that it does not know the kind of request, as this one does to 23."""
        monkeypatch.setattr(MultiRead, "type", 23)
        self.test_many_nodes_are_read_and_the_absent_left_out(open_store)
