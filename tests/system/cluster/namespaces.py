"""Brokers in network namespaces of their own, on three networks that can be cut each by itself.

::

    this machine ──┬── clients 10.231.1.0/24 ──┬── broker 1, 2, 3 (each in a namespace)
                   ├── brokers 10.231.2.0/24 ──┤
                   └── store   10.231.3.0/24 ──┘

Taking a broker's cable out of a network's bridge loses every packet without a word, in both
directions, as a switch does that has failed: no reset, no refusal. It needs root and ``ip``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from tests.broker_process import BrokerProcess
from tests.system.cluster.faulty_site import FaultySite

NETWORKS: Final = {"clients": 1, "brokers": 2, "store": 3}
HERE: Final = 254
PORT: Final = 9092
REPLICATION_PORT: Final = 9093


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=20)


def address(network: str, host: int) -> str:
    return f"10.231.{NETWORKS[network]}.{host}"


class Networks:
    """The three networks of some brokers; ``with`` makes them, or skips the test."""

    def __init__(self, brokers: tuple[int, ...]) -> None:
        self._brokers = brokers
        self._mark = f"ms{os.getpid() % 100_000}"

    def __enter__(self) -> Networks:
        if os.geteuid() != 0 or shutil.which("ip") is None:
            pytest.skip("network namespaces need root and the command ip")
        try:
            self._make()
        except (OSError, subprocess.SubprocessError) as error:
            self.__exit__()
            pytest.skip(f"network namespaces cannot be made here: {error}")
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self._brokers:
            for network in NETWORKS:
                with contextlib.suppress(subprocess.SubprocessError):
                    ip("link", "del", self._cable(network, broker))
            with contextlib.suppress(subprocess.SubprocessError):
                ip("netns", "del", self.namespace(broker))
        for network in NETWORKS:
            with contextlib.suppress(subprocess.SubprocessError):
                ip("link", "del", self._bridge(network))

    def _make(self) -> None:
        for network in NETWORKS:
            bridge = self._bridge(network)
            ip("link", "add", bridge, "type", "bridge")
            ip("addr", "add", f"{address(network, HERE)}/24", "dev", bridge)
            ip("link", "set", bridge, "up")
        for broker in self._brokers:
            namespace = self.namespace(broker)
            ip("netns", "add", namespace)
            ip("-n", namespace, "link", "set", "lo", "up")
            for network in NETWORKS:
                cable, end = self._cable(network, broker), ("peer", "name", network)
                ip("link", "add", cable, "type", "veth", *end, "netns", namespace)
                place = f"{address(network, broker)}/24"
                ip("-n", namespace, "addr", "add", place, "dev", network)
                ip("-n", namespace, "link", "set", network, "up")
                ip("link", "set", cable, "up")
                self.mend(network, broker)

    def namespace(self, broker: int) -> str:
        return f"{self._mark}-{broker}"

    def cut(self, network: str, broker: int) -> None:
        """Lose whatever goes between a broker and a network."""
        ip("link", "set", self._cable(network, broker), "nomaster")

    def mend(self, network: str, broker: int) -> None:
        """Carry packets again."""
        ip("link", "set", self._cable(network, broker), "master", self._bridge(network))

    def mend_all(self) -> None:
        for broker in self._brokers:
            for network in NETWORKS:
                self.mend(network, broker)

    def _bridge(self, network: str) -> str:
        return f"{self._mark}{network[0]}"

    def _cable(self, network: str, broker: int) -> str:
        return f"{self._mark}{network[0]}{broker}"


class Relay:
    """Brings connections to an address of this machine on to another one."""

    def __init__(self, host: str, upstream: tuple[str, int]) -> None:
        self._upstream = upstream
        self._listener = socket.create_server((host, 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for each in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._upstream, 10)
            except OSError:
                return
            far.settimeout(None)
            self._sockets += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class NamespacedBroker(BrokerProcess):
    """A broker whose process lives in a namespace."""

    def __init__(self, directory: Path, settings: Mapping[str, str], namespace: str) -> None:
        super().__init__(directory, settings)
        self._namespace = namespace

    def command(self) -> list[str]:
        command = super().command()
        for option in ("--host", "--port"):
            at = command.index(option)
            del command[at : at + 2]
        return ["ip", "netns", "exec", self._namespace, *command]


class NamespacedSite(FaultySite):
    """Three brokers in namespaces; ZooKeeper is reached over the network ``store`` alone."""

    def __init__(self, directory: Path, networks: Networks, settings: Mapping[str, str]) -> None:
        super().__init__(directory, settings)
        self.networks = networks
        self._relay: Relay | None = None

    def start(self) -> None:
        """Start ZooKeeper here, and the brokers in their namespaces."""
        self.zookeeper.start()
        host, _, port = self.zookeeper.connect.rpartition(":")
        self._relay = Relay(address("store", HERE), (host, int(port)))
        for number, plain in tuple(self.brokers.items()):
            clients = f"PLAINTEXT://{address('clients', number)}:{PORT}"
            brokers = f"REPLICATION://{address('brokers', number)}:{REPLICATION_PORT}"
            settings = plain.settings | {
                "zookeeper.connect": f"{address('store', HERE)}:{self._relay.port}",
                "listeners": f"{clients},{brokers}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,REPLICATION:PLAINTEXT",
                "inter.broker.listener.name": "REPLICATION",
            }
            namespace = self.networks.namespace(number)
            broker = NamespacedBroker(plain.directory, settings, namespace)
            broker.host = address("clients", number)
            self.brokers[number] = broker
            broker.start()

    def stop(self) -> None:
        self.networks.mend_all()
        try:
            super().stop()
        finally:
            if self._relay is not None:
                self._relay.close()
