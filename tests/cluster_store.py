"""The store of a cluster in tests: a real ZooKeeper, or a keeper; links to it can be cut."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final, Protocol

from kazoo.client import KazooClient
from tests.link_proxy import ZOOKEEPER, LinkProxy, Links, LocalLinkProxy
from tests.zookeeper_server import ensemble

from millstream.keeper.messages import MAX_ANSWER_BYTES
from millstream.keeper.metadata_store import KeeperMetadataStore
from millstream.keeper.socket_path import socket_in
from millstream.model.deferred import Deferred
from millstream.net.local_socket import LocalClient
from millstream.runtime.clock import LoopClock

STORES: Final = ("zookeeper", "keeper")


def stores_for(test: str, telling: Collection[str]) -> tuple[str, ...]:
    """Return the stores that a test runs over: a ZooKeeper, and a keeper too for those that tell
    most; every test runs over both with ``MILLSTREAM_EVERY_STORE=1``.
    """
    return STORES if test in telling or os.environ.get("MILLSTREAM_EVERY_STORE") else STORES[:1]


class StoreProxy(Protocol):
    """Stands between a broker and the store."""

    settings: dict[str, str]

    def close(self) -> None: ...


class StoreSite(Protocol):
    """A store that runs in processes of its own."""

    @property
    def settings(self) -> dict[str, str]:
        """What a broker has to be told to find it."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def read(self, path: str) -> bytes:
        """Read a node, past every proxy."""

    def proxy(self, links: Links, number: int) -> StoreProxy:
        """Return what a broker is to connect to, so that its link can be cut."""


class ZooKeeperSite:
    """One server."""

    def __init__(self, directory: Path, chroot: str = "") -> None:
        self.ensemble = ensemble(directory / "zookeeper")
        self.connect = self.ensemble.connect + chroot

    @property
    def settings(self) -> dict[str, str]:
        return {"zookeeper.connect": self.connect}

    def start(self) -> None:
        self.ensemble.start()

    def stop(self) -> None:
        self.ensemble.stop()

    def read(self, path: str) -> bytes:
        client = KazooClient(self.connect)
        client.start(30)
        try:
            value: bytes = client.get(path)[0]
            return value
        finally:
            client.stop()
            client.close()

    def proxy(self, links: Links, number: int) -> StoreProxy:
        host, _, port = self.ensemble.connect.rpartition(":")
        return _ZooKeeperProxy(LinkProxy(links, (host, int(port)), target=ZOOKEEPER, source=number))


class _ZooKeeperProxy:
    def __init__(self, proxy: LinkProxy) -> None:
        self.settings = {"zookeeper.connect": f"127.0.0.1:{proxy.port}"}
        self.close = proxy.close


class KeeperProcess:
    """A keeper; it can be killed, paused and started again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "keeper"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def settings(self) -> dict[str, str]:
        return {"metadata.keeper.socket": str(socket_in(self.directory))}

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / "keeper.err").open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "millstream.cli.main", "keeper", str(self.directory)],
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert b"listening on" in line, (self.directory / "keeper.err").read_text()

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGCONT)
        process.send_signal(number)
        process.wait(60)
        assert process.stdout is not None
        process.stdout.close()

    def read(self, path: str) -> bytes:
        loop = asyncio.new_event_loop()
        store = KeeperMetadataStore(
            lambda owner: LocalClient(
                loop, socket_in(self.directory), owner, max_frame_bytes=MAX_ANSWER_BYTES
            ),
            clock=LoopClock(loop),
            session_timeout_ms=30_000,
            name="a test",
        )

        async def filled(outcome: Deferred[Any]) -> None:
            while not outcome.done:
                await asyncio.sleep(0.002)

        try:
            opening = store.open(30_000)
            loop.run_until_complete(filled(opening))
            opening.result()
            reading = store.get(path)
            loop.run_until_complete(filled(reading))
            return reading.result().data
        finally:
            loop.run_until_complete(filled(store.close()))
            loop.close()

    def proxy(self, links: Links, number: int) -> StoreProxy:
        path = self.directory / f"link-{number}.sock"
        return _KeeperProxy(
            path, LocalLinkProxy(links, socket_in(self.directory), path, source=number)
        )


class _KeeperProxy:
    def __init__(self, path: Path, proxy: LocalLinkProxy) -> None:
        self.settings = {"metadata.keeper.socket": str(path)}
        self.close = proxy.close


def new_store(kind: str, directory: Path, chroot: str = "") -> StoreSite:
    """Return a store of this kind that is not started yet."""
    if kind == "keeper":
        return KeeperProcess(directory)
    return ZooKeeperSite(directory, chroot)
