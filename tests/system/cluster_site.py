"""A cluster for tests: a real ZooKeeper or a keeper, and broker processes, all on ports that the
system picked.

``with ClusterSite(directory, brokers=3) as cluster:`` starts everything and stops it again.
Brokers have the ids 1, 2, 3 and may be killed, paused and started again.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

from tests.broker_process import BrokerProcess
from tests.cluster_store import ZooKeeperSite, new_store

from millstream.client.cluster import Cluster
from millstream.client.errors import ClientError
from millstream.model.errors import KafkaError
from millstream.zookeeper.embedded import ZooKeeperEnsemble

T = TypeVar("T")

SETTINGS: Final[Mapping[str, str]] = {
    "zookeeper.session.timeout.ms": "5000",
    "offsets.topic.num.partitions": "4",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "3000",
}
TIMEOUT_S: Final = 60.0


class ClusterSite:
    """A store and brokers by id."""

    def __init__(
        self,
        directory: Path,
        *,
        brokers: int = 3,
        settings: Mapping[str, str] | None = None,
        chroot: str = "",
        store: str = "zookeeper",
    ) -> None:
        self.directory = directory
        self.store = new_store(store, directory, chroot)
        self.brokers: dict[int, BrokerProcess] = {}
        self._settings = {**SETTINGS, **(settings or {})}
        for broker_id in range(1, brokers + 1):
            self.add(broker_id)

    def add(self, broker_id: int, settings: Mapping[str, str] | None = None) -> BrokerProcess:
        """Make a broker of this cluster, not started yet."""
        own = {
            **self._settings,
            **self.store.settings,
            "broker.id": str(broker_id),
            **(settings or {}),
        }
        broker = BrokerProcess(self.directory / f"broker-{broker_id}", own)
        self.brokers[broker_id] = broker
        return broker

    @property
    def zookeeper(self) -> ZooKeeperEnsemble:
        """The ensemble, where that is the store."""
        assert isinstance(self.store, ZooKeeperSite)
        return self.store.ensemble

    @property
    def connect(self) -> str:
        """The brokers' `zookeeper.connect`."""
        assert isinstance(self.store, ZooKeeperSite)
        return self.store.connect

    @property
    def bootstrap(self) -> str:
        """Every broker that has been started, for clients."""
        return ",".join(each.bootstrap for each in self.brokers.values() if each.port)

    def start(self) -> None:
        """Start ZooKeeper, then the brokers one after the other."""
        self.store.start()
        for broker in self.brokers.values():
            broker.start()

    def stop(self) -> None:
        """Stop all that runs; what was paused goes on first."""
        try:
            for broker in self.brokers.values():
                if broker.is_running:
                    broker.process.send_signal(signal.SIGCONT)
                    broker.stop()
        finally:
            for broker in self.brokers.values():
                broker.kill()
            self.store.stop()

    def client(self) -> Cluster:
        """Return a client of this cluster."""
        return Cluster.at(self.bootstrap)

    def controller_id(self) -> int:
        """Return who the controller is, as clients are told."""
        with self.client() as client:
            return client.metadata([]).controller_id

    def until(self, look: Callable[[Cluster], T | None], what: str = "it") -> T:
        """Look until something comes of it; the client is made anew after each failure."""
        deadline = time.monotonic() + TIMEOUT_S
        seen: object = None
        while time.monotonic() < deadline:
            try:
                with self.client() as client:
                    found = look(client)
                    if found is not None and found is not False:
                        return found
                    seen = found
            except (KafkaError, ClientError, OSError) as error:
                seen = error
            time.sleep(0.05)
        logs = "\n".join(f"--- {key}\n{each.log[-1500:]}" for key, each in self.brokers.items())
        raise AssertionError(f"{what} did not come to be ({seen!r})\n{logs}")

    def __enter__(self) -> ClusterSite:
        try:
            self.start()
        except BaseException:
            for broker in self.brokers.values():
                broker.kill()
            self.store.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
