"""A real cluster for tests: a store and brokers as processes on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from tests.broker_process import BrokerProcess
from tests.cluster_store import new_store

from millstream.client.cluster import Cluster
from millstream.client.metadata import Partition
from millstream.model.errors import MillstreamError

TIMEOUT_S: Final = 60.0

SETTINGS: Final = {
    "zookeeper.session.timeout.ms": "6000",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "default.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
}


class ClusterProcesses:
    """``with ClusterProcesses(directory) as cluster:`` starts one ZooKeeper, or a keeper, and three
    brokers.
    """

    def __init__(
        self,
        directory: Path,
        *,
        brokers: int = 3,
        settings: Mapping[str, str] | None = None,
        directories: Callable[[int], str] | None = None,
        store: str = "zookeeper",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.store = new_store(store, directory)
        self._settings = {**SETTINGS, **(settings or {})}
        self._count = brokers
        self._directories = directories
        self._environment = environment
        self.brokers: dict[int, BrokerProcess] = {}

    def __enter__(self) -> ClusterProcesses:
        self.store.start()
        try:
            for broker_id in range(1, self._count + 1):
                self.add(broker_id)
            self.until(self._all_are_known, "every broker to know of all")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _all_are_known(self) -> bool:
        return all(len(self.known_to(each)) == self._count for each in self.living())

    def known_to(self, broker: BrokerProcess) -> Collection[int]:
        """Return the brokers that one broker knows of; none while it does not answer."""
        try:
            with Cluster.at(broker.bootstrap) as client:
                return client.metadata([]).brokers
        except MillstreamError:
            return ()

    def add(self, broker_id: int) -> BrokerProcess:
        """Start one more broker."""
        broker = BrokerProcess(
            self.directory / f"broker-{broker_id}",
            {
                **self._settings,
                "broker.id": str(broker_id),
                "broker.rack": f"rack-{broker_id}",
                **self.store.settings,
            },
            environment=self._environment,
        )
        if self._directories is not None:
            broker.data_directory = self._directories(broker_id)  # type: ignore[assignment]
        self.brokers[broker_id] = broker
        broker.start()
        return broker

    def close(self) -> None:
        """Stop everything; a broker that does not stop is killed."""
        for broker in self.brokers.values():
            if broker.is_running:
                broker.kill()
        self.store.stop()

    def __getitem__(self, broker_id: int) -> BrokerProcess:
        return self.brokers[broker_id]

    @property
    def bootstrap(self) -> str:
        return ",".join(each.bootstrap for each in self.brokers.values())

    def partition(self, topic: str, index: int = 0) -> Partition | None:
        """Return what some broker that lives says of a partition; None while nobody answers."""
        for broker in self.living():
            try:
                with Cluster.at(broker.bootstrap) as client:
                    partitions = client.metadata([topic]).topics[topic].partitions
                    return partitions[index] if index < len(partitions) else None
            except (MillstreamError, KeyError):
                continue
        return None

    def living(self) -> list[BrokerProcess]:
        """Return the brokers whose process runs."""
        return [each for each in self.brokers.values() if each.is_running]

    def wait_for(self, topic: str, isr: set[int], leader: int | None = None) -> Partition:
        """Wait until a partition has this ISR, and perhaps this leader."""
        found: list[Partition] = []

        def as_wanted() -> bool:
            partition = self.partition(topic)
            found[:] = [] if partition is None else [partition]
            return partition is not None and (
                set(partition.isr) == isr and leader in (None, partition.leader)
            )

        self.until(as_wanted, f"ISR {isr} of {topic}")
        return found[0]

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain: {what}"
            time.sleep(0.1)
