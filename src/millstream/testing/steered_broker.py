"""A broker under test: a real broker in a process of its own, and what a test does to it.

The test sends commands over a socket that the process inherits. When that socket closes, the test
is gone, and the broker ends.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from millstream.config.broker import BrokerConfig
from millstream.platform import raise_open_file_limit
from millstream.server import lifecycle
from millstream.server.broker import Broker
from millstream.server.machine import Machine
from millstream.storage.environment import LogEnvironment, random_jitter
from millstream.storage.open_files import OpenFiles
from millstream.testing.frames import READ_BYTES, Frame, Unpacker, pack
from millstream.testing.interception import Interception
from millstream.testing.steered_clock import ClusterClock, CountedOffload, SteeredClock
from millstream.testing.steered_disk import SteeredDisk

log = logging.getLogger(__name__)

_QUIET_LOOKS: Final = 3
_LOOK_S: Final = 0.005
_SETTLE_S: Final = 10.0


def run(
    settings: Mapping[str, str],
    control: socket.socket,
    ahead_ms: float,
    watched: Frame,
    cut: Frame,
) -> int:
    """Serve until SIGTERM or until the test is gone; return the exit code."""
    steered: list[SteeredBroker] = []

    def new_broker(
        config: BrokerConfig, loop: AbstractEventLoop, on_fatal: Callable[[], None]
    ) -> Broker:
        steered.append(SteeredBroker(config, loop, control, ahead_ms, watched, on_fatal))
        if config.is_in_cluster:
            steered[0].cut(**cut)
        return steered[0].broker

    def announce(host: str, port: int, directories: list[str]) -> None:
        steered[0].listens()

    return lifecycle.run(BrokerConfig(settings), announce, new_broker)


class SteeredBroker:
    """A broker on a machine that a test steers."""

    def __init__(
        self,
        config: BrokerConfig,
        loop: AbstractEventLoop,
        control: socket.socket,
        ahead_ms: float,
        watched: Frame,
        on_fatal: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._socket = control
        self._socket.setblocking(False)
        self._frames = Unpacker()
        self._unsent = bytearray()
        self._clock = SteeredClock(loop, ahead_ms)
        self._offload = CountedOffload(loop.call_soon_threadsafe)
        open_files = OpenFiles(raise_open_file_limit() // 2)
        self._disk = SteeredDisk(open_files.make_room)
        self._interception = Interception(loop, self._send, **watched)
        machine = Machine(
            clock=self._clock,
            cluster_clock=ClusterClock(loop, self._clock),
            offload=self._offload,
            environment=LogEnvironment(
                file_system=self._disk,
                open_files=open_files,
                roll_jitter_ms=random_jitter,
                producer_id_expiration_ms=config.producer_id_expiration_ms,
            ),
            around=self._interception.around,
        )
        if config.is_in_cluster:
            from dataclasses import replace

            from millstream.testing.cuts import CuttableLinks, CuttableNetwork

            self._network = CuttableNetwork()
            self._links = CuttableLinks()
            machine = replace(machine, network=self._network.around, links=self._links.around)
        self.broker = Broker(config, loop, on_fatal=on_fatal, machine=machine)
        self._commands: dict[str, Callable[..., Any]] = {
            "ping": lambda: None,
            "watch": lambda keys, records: self._interception.watch(keys, records=records),
            "disk": self._set_disk,
            "cut": self.cut,
        }
        loop.add_reader(control.fileno(), self._on_readable)

    def listens(self) -> None:
        """Tell the test where clients and other brokers connect."""
        node = self.broker.node
        assert node is not None
        endpoints = [(each.listener, each.host, each.port) for each in node.endpoints]
        self._send({"event": "listening", "endpoints": endpoints})

    def _set_disk(self, *, is_full: bool, is_broken: bool, flush_s: float, write_s: float) -> None:
        disk = self._disk
        disk.is_full, disk.is_broken = is_full, is_broken
        disk.flush_s, disk.write_s = flush_s, write_s

    def cut(self, *, addresses: list[tuple[str, int]], store: bool) -> None:
        """Cut the connections to these addresses, and those to the store."""
        self._network.cut([(host, port) for host, port in addresses])
        self._links.cut(is_cut=store)

    # --- the clock -------------------------------------------------------------------------------

    def _advance(self, number: int, by_ms: float) -> None:
        self._clock.advance(by_ms)
        self._settle(number, 0, self._loop.time() + _SETTLE_S)

    def _settle(self, number: int, quiet: int, deadline_s: float) -> None:
        """Answer once what came due has run, and what it gave to other threads is done."""
        quiet = 0 if self._offload.working or self._clock.owes() else quiet + 1
        if quiet < _QUIET_LOOKS and self._loop.time() < deadline_s:
            self._loop.call_later(_LOOK_S, self._settle, number, quiet, deadline_s)
        else:
            self._send({"id": number, "ok": self._clock.ahead_ms})

    # --- the connection to the test --------------------------------------------------------------

    def _on_readable(self) -> None:
        try:
            received = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received:
            self._loop.remove_reader(self._socket.fileno())
            os.kill(os.getpid(), signal.SIGKILL)  # nobody is left who would want its data
        for frame in self._frames.take(received):
            self._take(frame)

    def _take(self, frame: Frame) -> None:
        number, command = frame.get("id"), frame["do"]
        if command == "decided":
            try:
                self._interception.decided(frame["number"], frame)
            except Exception:  # of one connection: the decisions that follow are of others
                log.exception("the decision of the test about a request failed")
            return
        assert number is not None
        if command == "advance":
            self._advance(number, frame["by_ms"])
            return
        try:
            answer = self._commands[command](**frame.get("with", {}))
        except Exception as error:
            log.exception("the command %s of the test failed", command)
            self._send({"id": number, "error": f"{type(error).__name__}: {error}"})
        else:
            self._send({"id": number, "ok": answer})

    def _send(self, frame: Frame) -> None:
        was_idle = not self._unsent
        self._unsent += pack(frame)
        if was_idle:
            self._flush()
            if self._unsent:
                self._loop.add_writer(self._socket.fileno(), self._on_writable)

    def _on_writable(self) -> None:
        self._flush()
        if not self._unsent:
            self._loop.remove_writer(self._socket.fileno())

    def _flush(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            return
        except OSError:  # the test is gone: reading says so
            self._unsent.clear()
            return
        del self._unsent[:sent]


def run_keeper(directory: str, control: socket.socket) -> int:
    """Serve the metadata store of a cluster until SIGTERM; return the exit code."""
    from millstream.server import keeper_process

    def announce(path: Path) -> None:
        control.sendall(pack({"event": "listening", "endpoints": []}))

    return keeper_process.run(Path(directory), announce)
