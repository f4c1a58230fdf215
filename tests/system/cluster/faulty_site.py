"""Three brokers and a ZooKeeper behind proxies, and stock clients whose history is kept."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka import KafkaError as ClientSideError
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker_process import BrokerProcess
from tests.link_proxy import ZOOKEEPER, LinkProxy, Links
from tests.system.cluster_site import TIMEOUT_S, ClusterSite

from millstream.client.cluster import Cluster
from millstream.client.errors import ClientError
from millstream.model.errors import KafkaError
from millstream.sim.history import History, Outcome, Poll, Send, check

IDS = (1, 2, 3)
UNCERTAIN = frozenset(
    {
        ClientSideError._MSG_TIMED_OUT,
        ClientSideError._PURGE_INFLIGHT,
        ClientSideError.REQUEST_TIMED_OUT,
        ClientSideError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ClientSideError.NOT_LEADER_FOR_PARTITION,
        ClientSideError.NETWORK_EXCEPTION,
        ClientSideError._TRANSPORT,
    }
)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


class ListeningProcess(BrokerProcess):
    """A broker whose listeners its settings name."""

    def command(self) -> list[str]:
        command = super().command()
        for option in ("--host", "--port"):
            at = command.index(option)
            del command[at : at + 2]
        return command


class FaultySite(ClusterSite):
    """A cluster whose links can be cut."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self.links = Links()
        self._proxies: list[LinkProxy] = []
        super().__init__(directory, settings=settings)

    def start(self) -> None:
        self.zookeeper.start()
        host, _, port = self.zookeeper.connect.rpartition(":")
        for number, plain in tuple(self.brokers.items()):
            broker = self.brokers[number] = ListeningProcess(plain.directory, plain.settings)
            listening = free_port()
            proxy = LinkProxy(self.links, ("127.0.0.1", listening), target=number)
            to_store = LinkProxy(self.links, (host, int(port)), target=ZOOKEEPER, source=number)
            self._proxies += [proxy, to_store]
            client_port = free_port()
            broker.settings |= {
                "zookeeper.connect": f"127.0.0.1:{to_store.port}",
                "listeners": f"PLAINTEXT://127.0.0.1:{client_port},"
                f"REPLICATION://127.0.0.1:{listening}",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{client_port},"
                f"REPLICATION://127.0.0.1:{proxy.port}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,REPLICATION:PLAINTEXT",
                "inter.broker.listener.name": "REPLICATION",
            }
            self.links.owner(
                number, lambda broker=broker: broker.process.pid if broker.is_running else None
            )
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

    def read(self, topic: str, history: History, process: str) -> dict[int, str]:
        """Read a topic to its end, as a consumer that the history takes down."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": process,
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: dict[int, str] = {}
        ended = False
        while not ended:
            for message in consumer.consume(500, 10.0):
                error = message.error()
                if error is not None:
                    ended |= error.code() == ClientSideError._PARTITION_EOF
                    continue
                value = (message.value() or b"").decode()
                found[message.offset()] = value
                history.polls.append(Poll((topic, 0), process, message.offset(), value))
        consumer.close()
        return found


class Load:
    """A stock idempotent producer with acks=all that writes unique values and their fates down."""

    def __init__(self, bootstrap: str, topic: str, history: History, name: str) -> None:
        self._topic = topic
        self._history = history
        self._name = name
        self._stopped = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 90_000,
                "request.timeout.ms": 5_000,
                "socket.timeout.ms": 6_000,
                "log_level": 0,
            }
        )
        self.acknowledged = 0
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._stopped.is_set():
            value = f"{self._name}:{number}"
            number += 1
            send = self._history.send(
                Send((self._topic, 0), value, self._name, durable=True, once=True)
            )
            self._producer.produce(
                self._topic,
                value,
                partition=0,
                on_delivery=lambda error, message, send=send: self._told(send, error, message),
            )
            self._producer.poll(0.002)
        self._producer.flush(100)

    def _told(self, send: Send, error: ClientSideError | None, message: Message) -> None:
        if error is None:
            send.outcome, send.offset = Outcome.ACKNOWLEDGED, message.offset()
            self.acknowledged += 1
        elif error.code() not in UNCERTAIN:
            send.outcome = Outcome.REFUSED

    def wait_for_more(self, count: int = 100) -> None:
        goal = self.acknowledged + count
        deadline = time.monotonic() + 2 * TIMEOUT_S
        while self.acknowledged < goal:
            assert time.monotonic() < deadline, f"{count} more acknowledgements did not come"
            time.sleep(0.05)


def problems(site: FaultySite, topic: str, history: History) -> list[str]:
    """Read everything in the end and say what is wrong."""
    final = site.read(topic, history, f"last-reader-of-{topic}")
    return check(history, {(topic, 0): dict(final)})
