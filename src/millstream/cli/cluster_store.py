"""Where a cluster on this machine keeps its metadata: at a keeper, or in a ZooKeeper beside it."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Final, Protocol

from millstream.cli.child_processes import end_process
from millstream.cli.failures import CommandFailedError
from millstream.keeper.socket_path import socket_in
from millstream.platform import before_exec, end_with_this_process
from millstream.zookeeper.embedded import ZooKeeperEnsemble

STOP_TIMEOUT_S: Final = 30.0
MOST_REVIVALS: Final = 3
"""How often a store that ends is started again: without it nothing is elected or created."""
KEEPER_DIRECTORY: Final = "keeper"
ZOOKEEPER_DIRECTORY: Final = "zookeeper"


class ClusterStore(Protocol):
    """The process, or processes, of a cluster's metadata."""

    name: str
    """What it is called in sentences."""

    @property
    def settings(self) -> dict[str, str]:
        """What brokers have to be told to find it."""

    def start(self) -> None:
        """Start it; it serves when this returns. A MillstreamError says why it does not."""

    def restart_what_ended(self) -> bool:
        """Start what has ended again; True when something had. CommandFailedError when it ends
        again and again.
        """

    def stop(self) -> None:
        """Stop it; stopping twice is harmless."""


class KeeperStore:
    """A keeper in a process of its own; its log goes to ``keeper.log``."""

    name = "the keeper"

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[str] | None = None
        self._revivals = 0

    @property
    def settings(self) -> dict[str, str]:
        """The socket."""
        return {"metadata.keeper.socket": str(socket_in(self._directory))}

    def start(self) -> None:
        """Start the process and wait for its first line."""
        self._directory.mkdir(parents=True, exist_ok=True)
        with self._log.open("a") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "millstream.cli.main", "keeper", str(self._directory)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,  # no Ctrl-C before the brokers have stopped
                preexec_fn=before_exec(),  # noqa: PLW1509 - it calls the system, and takes no locks
            )
        end_with_this_process(self._process)
        output = self._process.stdout
        assert output is not None
        if "listening on" not in output.readline():
            self.stop()
            raise CommandFailedError(f"the keeper did not start: {self._last_line()}")
        threading.Thread(target=output.read, daemon=True).start()

    def restart_what_ended(self) -> bool:
        """Start the process again if it has ended."""
        if self._process is None or self._process.poll() is None:
            return False
        if self._revivals == MOST_REVIVALS:
            raise CommandFailedError(f"the keeper exits again and again: {self._last_line()}")
        self._revivals += 1
        self.start()
        return True

    def stop(self) -> None:
        """Stop the process; kill it if it does not end."""
        process, self._process = self._process, None
        if process is not None:
            end_process(process, STOP_TIMEOUT_S)

    @property
    def _log(self) -> Path:
        return self._directory / "keeper.log"

    def _last_line(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return lines[-1].removeprefix("millstream: keeper: ") if lines else "its log is empty"


class ZooKeeperStore:
    """A ZooKeeper of one server."""

    name = "ZooKeeper"

    def __init__(self, directory: Path) -> None:
        from millstream.cli.zookeeper import java_program

        self._ensemble = ZooKeeperEnsemble(java_program(), directory)
        self._revivals = 0

    @property
    def settings(self) -> dict[str, str]:
        """Its address."""
        return {"zookeeper.connect": self._ensemble.connect}

    def start(self) -> None:
        """Start the server."""
        self._ensemble.start()

    def restart_what_ended(self) -> bool:
        """Start the server again if it has ended."""
        ended = [each for each in self._ensemble.servers if not each.running]
        for server in ended:
            if self._revivals == MOST_REVIVALS:
                raise CommandFailedError(f"ZooKeeper exits again and again: {server.printed()}")
            self._revivals += 1
            server.start()
            server.wait()
        return bool(ended)

    def stop(self) -> None:
        """Stop the server."""
        self._ensemble.stop()


def store_in(directory: Path, *, zookeeper: bool) -> ClusterStore:
    """Return the store of the cluster in ``directory``: a keeper unless ``zookeeper`` asks for a
    ZooKeeper, or the cluster has one already. CommandFailedError where it has a keeper, and another
    store would not know its topics.
    """
    has_keeper = (directory / KEEPER_DIRECTORY).exists()
    if zookeeper and has_keeper:
        raise CommandFailedError(
            f"the cluster in {directory} has its metadata in a keeper; millstream cluster "
            f"migrate-metadata moves it to ZooKeeper"
        )
    if zookeeper or (not has_keeper and (directory / ZOOKEEPER_DIRECTORY).exists()):
        return ZooKeeperStore(directory / ZOOKEEPER_DIRECTORY)
    return KeeperStore(directory / KEEPER_DIRECTORY)
