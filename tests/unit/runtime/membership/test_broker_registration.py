"""A broker's registration: what it leaves in its own metadata, and what it logs while it fails."""

from __future__ import annotations

import logging

import pytest
from tests.memory_metadata_store import MemoryMetadataStore, MemoryTree
from tests.unit.runtime.cluster_site import Heard
from tests.unit.runtime.coordinator_site import HandClock

from millstream.config.broker import BrokerConfig
from millstream.config.dynamic import DynamicConfig
from millstream.controller import paths
from millstream.controller.payloads import Registration
from millstream.model.broker import BrokerId, BrokerNode, Endpoint
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import KafkaError
from millstream.model.metadata_store import (
    ConnectionLossError,
    Create,
    Delete,
    Node,
    SessionEvent,
)
from millstream.runtime.controlling.cluster_reading import prepare_store
from millstream.runtime.membership.broker_registration import BrokerRegistration
from millstream.runtime.metadata.broker_metadata import BrokerMetadata
from millstream.runtime.metadata.metadata_cache import MetadataCache

NODE = BrokerNode(BrokerId(1), (Endpoint("PLAINTEXT", "host", 9092),))
PATH = paths.broker(BrokerId(1))


class CutStore(MemoryMetadataStore):
    """A store whose reads lose their connection while it is ``cut``."""

    cut = False

    def get(self, path: str) -> Deferred[Node]:
        if not self.cut:
            return super().get(path)
        failed: Deferred[Node] = Deferred()
        failed.fail(ConnectionLossError(path))
        return failed


class Site:
    def __init__(self) -> None:
        self.clock = HandClock()
        self.tree = MemoryTree()
        self.store = CutStore(self.tree)
        self.tree.stores.append(self.store)
        spawn(prepare_store(self.store, "cluster")).result()
        self.metadata = BrokerMetadata(
            BrokerId(1),
            MetadataCache("cluster"),
            DynamicConfig(BrokerConfig({"broker.id": "1"})),
            listener=Heard(),
        )
        self.continuities: list[int] = []
        self.registration = BrokerRegistration(
            self.store,
            self.clock,
            self.metadata,
            session_timeout_ms=6_000,
            on_registered=self.continuities.append,
        )

    def start(self, directory_id: str = "here") -> Deferred[int]:
        return self.registration.start(NODE, Registration(directory_id, None))


def test_each_registration_is_a_new_broker_epoch_and_keeps_the_first_continuity() -> None:
    site = Site()
    first = site.start().result()
    assert site.metadata.broker_epoch == first
    assert site.metadata.cache.brokers[BrokerId(1)].epoch == first
    site.store.expire()
    second = site.metadata.broker_epoch
    assert second is not None
    assert second > first
    assert site.tree.nodes[PATH].creation_id == second
    assert set(site.continuities) == {first}


def test_a_session_that_expires_takes_the_broker_epoch_with_it_at_once() -> None:
    site = Site()
    site.start()
    seen: list[tuple[SessionEvent, int | None]] = []
    site.store.watch_session(lambda event: seen.append((event, site.metadata.broker_epoch)))
    site.store.expire()
    assert seen[0] == (SessionEvent.EXPIRED, None)


def test_a_registration_that_is_deleted_is_made_anew() -> None:
    site = Site()
    first = site.start().result()
    site.tree.multi([Delete(PATH)], 99)
    assert site.registration.epoch is not None
    assert site.registration.epoch > first
    site.registration.stop()
    site.tree.multi([Delete(PATH)], 99)
    site.clock.advance(1_000)
    assert PATH not in site.tree.nodes


def test_another_broker_with_the_id_is_waited_for_and_then_the_start_fails() -> None:
    site = Site()
    other = Site()
    other.start("elsewhere")
    data = other.tree.nodes[PATH].data
    session = site.tree.new_session()
    site.tree.multi([Create(PATH, data, ephemeral=True)], session)
    waiting = site.start("here")
    site.clock.advance(5_000)
    assert not waiting.done
    site.clock.advance(5_000)
    with pytest.raises(KafkaError, match="DUPLICATE_BROKER_REGISTRATION"):
        waiting.result()


def test_a_store_that_is_away_is_logged_when_it_goes_and_when_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = Site()
    site.start()
    caplog.set_level(logging.INFO, "millstream.runtime.membership.broker_registration")
    caplog.clear()
    site.store.cut = True
    site.store.reconnect()
    site.clock.advance(60_000)
    assert len(caplog.records) == 1
    site.store.cut = False
    site.clock.advance(1_000)
    assert len(caplog.records) == 2
    assert "attempts that failed" in caplog.messages[1]
