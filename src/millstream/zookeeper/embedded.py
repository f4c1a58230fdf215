"""Starts real ZooKeeper servers from jar files, such as those that PySpark carries.

Five jars are enough, and few flags make a server small: about 55 MiB and half a second. Each
server has a directory of its own::

    <directory>/zoo.cfg     what it was started with
    <directory>/data/       its snapshots, its log and, in an ensemble, `myid`
    <directory>/server.log  what it printed
    <directory>/.lock       held while the server runs: two servers would corrupt one directory
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millstream.model.errors import MillstreamError
from millstream.platform import before_exec, end_with_this_process, lock_file

LOOPBACK: Final = "127.0.0.1"
TICK_MS: Final = 500
MIN_SESSION_TIMEOUT_MS: Final = 2 * TICK_MS
MAX_SESSION_TIMEOUT_MS: Final = 120_000
START_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 10.0

_NEEDED_JARS: Final = ("zookeeper-[0-9]", "zookeeper-jute", "slf4j-api", "metrics-core", "snappy-")
_FLAGS: Final = (
    "-Xms32m",
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dzookeeper.admin.enableServer=false",
    "-Dzookeeper.preAllocSize=1024",
    "-Djava.awt.headless=true",
)
_STANDALONE: Final = "org.apache.zookeeper.server.ZooKeeperServerMain"
_QUORUM: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_NO_LOCK: Final = -1
_CLIENT_PORT: Final = re.compile(r"^clientPort=(\d+)$", re.MULTILINE)


class ZooKeeperFailedError(MillstreamError):
    """A server did not start; the text ends with what it printed."""


@dataclass(frozen=True, slots=True)
class JavaProgram:
    """The `java` command and the jars of a server."""

    java: Path
    class_path: str


@dataclass(frozen=True, slots=True)
class Member:
    """One server of an ensemble: its number, and its ports for the others and for clients."""

    number: int
    client_port: int
    quorum_port: int
    election_port: int


def find_jars(directory: Path) -> str:
    """Return the class path of a ZooKeeper in ``directory``; ZooKeeperFailedError names what is
    missing.
    """
    found = []
    for pattern in _NEEDED_JARS:
        jars = sorted(directory.glob(f"{pattern}*.jar"))
        if not jars:
            raise ZooKeeperFailedError(f"{directory} has no {pattern.partition('[')[0]}*.jar")
        found.append(str(jars[-1]))
    return os.pathsep.join(found)


class ZooKeeperServer:
    """One server process, standalone or a member of an ensemble; it can be stopped and started
    again.
    """

    def __init__(
        self,
        program: JavaProgram,
        directory: Path,
        *,
        member: Member | None = None,
        ensemble: Sequence[Member] = (),
        port: int = 0,
        max_session_timeout_ms: int = MAX_SESSION_TIMEOUT_MS,
    ) -> None:
        self._program = program
        self.directory = directory
        self._member = member
        self._ensemble = tuple(ensemble)
        self._max_session_timeout_ms = max_session_timeout_ms
        self.port = member.client_port if member is not None else port or self._last_port()
        self._lock = _NO_LOCK
        self._process: subprocess.Popen[bytes] | None = None

    def _last_port(self) -> int:
        """Return the port of the last start, which brokers may be configured with, if it is
        free.
        """
        with contextlib.suppress(OSError):
            text = (self.directory / "zoo.cfg").read_text(encoding="utf-8")
            found = _CLIENT_PORT.search(text)
            if found is not None and is_free(int(found[1])):
                return int(found[1])
        return free_port()

    @property
    def address(self) -> str:
        """Where clients connect, as ``host:port``."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def process_id(self) -> int:
        """The id of the running process."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    @property
    def running(self) -> bool:
        """True while the process has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process; :meth:`wait` says when it serves.

        ZooKeeperFailedError when another process uses the directory.
        """
        assert not self.running, "the server runs already"
        self._unlock()  # reap a process that has ended
        data = self.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(self.directory)
        configuration = self.directory / "zoo.cfg"
        configuration.write_text(self._configuration(data), encoding="utf-8")
        if self._member is not None:
            (data / "myid").write_text(str(self._member.number), encoding="utf-8")
        main = _STANDALONE if self._member is None else _QUORUM
        command = [str(self._program.java), *_FLAGS, "-cp", self._program.class_path, main]
        with (self.directory / "server.log").open("ab") as output:
            self._process = subprocess.Popen(
                [*command, str(configuration)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # no Ctrl-C before the brokers have stopped
                pass_fds=(self._lock,),  # it holds the lock too, should we be killed before it ends
                preexec_fn=before_exec(),  # noqa: PLW1509 - it calls the system, and takes no locks
            )
        end_with_this_process(self._process)

    def _configuration(self, data: Path) -> str:
        lines = [
            f"dataDir={data.absolute()}",
            f"clientPort={self.port}",
            f"clientPortAddress={LOOPBACK}",
            f"tickTime={TICK_MS}",
            f"minSessionTimeout={MIN_SESSION_TIMEOUT_MS}",
            f"maxSessionTimeout={self._max_session_timeout_ms}",
            "maxClientCnxns=0",
            "admin.enableServer=false",
            "autopurge.snapRetainCount=3",
            "autopurge.purgeInterval=1",
            "4lw.commands.whitelist=srvr,ruok",
        ]
        if self._ensemble:
            lines += ["initLimit=40", "syncLimit=20"]
            lines += [
                f"server.{each.number}={LOOPBACK}:{each.quorum_port}:{each.election_port}"
                for each in self._ensemble
            ]
        return "\n".join(lines) + "\n"

    def wait(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Return once the server serves clients; ZooKeeperFailedError when it does not."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if not self.running:
                break
            if "Mode:" in ask(self.port, "srvr"):
                return
            time.sleep(0.05)
        raise ZooKeeperFailedError(f"ZooKeeper does not serve at {self.address}: {self.printed()}")

    def printed(self) -> str:
        """Return the end of what the server printed."""
        try:
            text = (self.directory / "server.log").read_text(errors="replace")
        except OSError:
            return "it printed nothing"
        return text[-1000:].strip() or "it printed nothing"

    def stop(self) -> None:
        """Stop the process with SIGTERM, then SIGKILL. Stopping twice is harmless."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGCONT)  # for one that was paused
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._unlock()

    def kill(self) -> None:
        """End the process with SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock != _NO_LOCK:
            os.close(self._lock)
            self._lock = _NO_LOCK


class ZooKeeperEnsemble:
    """One server, or three or more that agree; a context manager that starts and stops them."""

    def __init__(
        self,
        program: JavaProgram,
        directory: Path,
        *,
        size: int = 1,
        ports: Sequence[int] = (),
    ) -> None:
        assert size > 0
        assert not ports or len(ports) == size
        if size == 1:
            self.servers = [ZooKeeperServer(program, directory, port=ports[0] if ports else 0)]
            return
        free = free_ports(3 * size)
        members = [
            Member(i + 1, ports[i] if ports else free[3 * i], free[3 * i + 1], free[3 * i + 2])
            for i in range(size)
        ]
        self.servers = [
            ZooKeeperServer(program, directory / str(each.number), member=each, ensemble=members)
            for each in members
        ]

    @property
    def connect(self) -> str:
        """The value for a broker's `zookeeper.connect`."""
        return ",".join(server.address for server in self.servers)

    def start(self) -> None:
        """Start every server and wait until all serve."""
        try:
            for server in self.servers:
                server.start()
            for server in self.servers:
                server.wait()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop every server."""
        for server in self.servers:
            server.stop()

    def __enter__(self) -> ZooKeeperEnsemble:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def ask(port: int, words: str) -> str:
    """Return a server's answer to a four-letter word; empty when it gives none."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=2) as connection:
            connection.sendall(words.encode())
            pieces = []
            while piece := connection.recv(4096):
                pieces.append(piece)
    except OSError:
        return ""
    return b"".join(pieces).decode(errors="replace")


def _locked(directory: Path) -> int:
    """Lock a server's directory; return what holds the lock until it is closed."""
    held = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        lock_file(held, waits=False)
    except OSError as error:
        os.close(held)
        raise ZooKeeperFailedError(
            f"{directory}: another process is using this directory"
        ) from error
    return held


def is_free(port: int) -> bool:
    """Tell whether a port is free now."""
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java does
        try:
            tried.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """Return a free port."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return different free ports."""
    opened = [socket.socket() for _ in range(count)]
    try:
        for each in opened:
            each.bind((LOOPBACK, 0))
        return [each.getsockname()[1] for each in opened]
    finally:
        for each in opened:
            each.close()
