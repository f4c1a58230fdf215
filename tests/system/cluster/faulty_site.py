"""Three brokers and their store behind proxies that can cut any link."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker_process import BrokerProcess
from tests.cluster_store import StoreProxy
from tests.link_proxy import LinkProxy, Links
from tests.system.cluster.watched import anomalies
from tests.system.cluster_site import TIMEOUT_S, ClusterSite
from tests.waiting import wait_until

from millstream.client.cluster import Cluster
from millstream.client.errors import ClientError
from millstream.client.metadata import Metadata
from millstream.history.checker import History
from millstream.model.errors import KafkaError

IDS = (1, 2, 3)


@dataclass(frozen=True)
class State:
    """Who leads a partition, in which epoch, and who is in sync."""

    leader: int
    epoch: int
    isr: frozenset[int]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


class ListeningProcess(BrokerProcess):
    """A broker whose listeners its settings name."""

    def pid(self) -> int | None:
        process = self._process
        return None if process is None else process.pid

    def command(self) -> list[str]:
        command = super().command()
        for option in ("--host", "--port"):
            at = command.index(option)
            del command[at : at + 2]
        return command


class FaultySite(ClusterSite):
    """A cluster whose links can be cut."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        store: str = "zookeeper",
    ) -> None:
        self.links = Links()
        self._proxies: list[LinkProxy | StoreProxy] = []
        super().__init__(directory, settings=settings, store=store)

    def start(self) -> None:
        """Start the store, then each broker behind a proxy, and before one to the store."""
        self.store.start()
        for number, plain in tuple(self.brokers.items()):
            broker = self.brokers[number] = ListeningProcess(plain.directory, plain.settings)
            listening = free_port()
            proxy = LinkProxy(self.links, ("127.0.0.1", listening), target=number)
            to_store = self.store.proxy(self.links, number)
            self._proxies += [proxy, to_store]
            client_port = free_port()
            broker.settings |= {
                **to_store.settings,
                "listeners": f"PLAINTEXT://127.0.0.1:{client_port},"
                f"REPLICATION://127.0.0.1:{listening}",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{client_port},"
                f"REPLICATION://127.0.0.1:{proxy.port}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,REPLICATION:PLAINTEXT",
                "inter.broker.listener.name": "REPLICATION",
            }
            self.links.owner(number, broker.pid)
            broker.start()

    def stop(self) -> None:
        self.links.heal()
        try:
            super().stop()
        finally:
            self.links.close()
            for proxy in self._proxies:
                proxy.close()

    def others(self, number: int) -> tuple[int, ...]:
        return tuple(each for each in IDS if each != number)

    def pause(self, number: int) -> None:
        os.kill(self.brokers[number].process.pid, signal.SIGSTOP)

    def resume(self, number: int) -> None:
        os.kill(self.brokers[number].process.pid, signal.SIGCONT)

    def create(self, topic: str, order: tuple[int, ...] = IDS) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        wanted = NewTopic(
            topic, 1, replica_assignment=[list(order)], config={"min.insync.replicas": "2"}
        )
        admin.create_topics([wanted])[topic].result(30)
        self.wait_for(topic, set(order), leader=order[0])

    def wait_for(self, topic: str, isr: set[int], leader: int | None = None, ask: int = 0) -> int:
        """Wait for an ISR and perhaps a leader, as broker ``ask`` tells it, or any other."""
        deadline = time.monotonic() + 2 * TIMEOUT_S
        seen: object = None
        while time.monotonic() < deadline:
            bootstrap = self.brokers[ask].bootstrap if ask else self.bootstrap
            try:
                with Cluster.at(bootstrap) as client:
                    seen = partition = client.metadata([topic]).topics[topic].partitions[0]
                if set(partition.isr) == isr and leader in (None, partition.leader):
                    return partition.leader
            except (KafkaError, ClientError, OSError, KeyError, IndexError) as error:
                seen = error
            time.sleep(0.1)
        logs = "\n".join(f"--- {key}\n{each.log[-2000:]}" for key, each in self.brokers.items())
        raise AssertionError(f"no ISR {isr} led by {leader} of {topic}: {seen!r}\n{logs}")

    def known_to(self, number: int) -> Metadata:
        """Return what one broker tells of the cluster."""
        with Cluster.at(self.brokers[number].bootstrap) as client:
            return client.metadata(None)

    def stored(self, path: str) -> bytes:
        """Return what the store itself has, past every proxy."""
        return self.store.read(path)

    def state(self, topic: str) -> State:
        """Return the state of a topic's partition as it is stored."""
        value = json.loads(self.stored(f"/brokers/topics/{topic}/partitions/0/state"))
        return State(value["leader"], value["leader_epoch"], frozenset(value["isr"]))

    def controller_epoch(self) -> int:
        return int(self.stored("/controller_epoch"))

    def logs(self, topic: str) -> dict[int, bytes]:
        """Return the bytes of every replica's log."""
        return {
            number: b"".join(
                each.read_bytes()
                for each in sorted((broker.data_directory / f"{topic}-0").glob("*.log"))
            )
            for number, broker in self.brokers.items()
        }


def problems(site: FaultySite, topic: str, history: History) -> list[str]:
    """Read everything in the end and say what is wrong; the replicas' logs must be equal."""
    found = [each.text for each in anomalies(site.bootstrap, topic, history)]

    def equal() -> bool:
        return len(set(site.logs(topic).values())) == 1

    wait_until(equal, "the same bytes in the logs of all replicas")
    return found
