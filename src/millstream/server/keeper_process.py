"""The keeper's process: open the store, listen, serve until a signal.

It ends by itself when the disk fails under the store: what is on disk is unknown then, and whoever
started it starts it again, which reads what is there. A first SIGTERM waits for the brokers that
are connected to leave, as they do when the same signal ends them all; a second one does not.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from millstream.keeper.group_commit import GroupCommit
from millstream.keeper.keeper import Keeper
from millstream.keeper.messages import MAX_REQUEST_BYTES
from millstream.keeper.socket_path import socket_in
from millstream.model.deferred import Deferred
from millstream.net.local_socket import LocalListener
from millstream.platform import new_event_loop
from millstream.runtime.clock import LoopClock
from millstream.runtime.offload import ThreadOffload

log = logging.getLogger(__name__)

T = TypeVar("T")

LAST_WAIT_S: Final = 30.0
"""How long a keeper that was told to stop waits for its clients to leave."""
_LOOK_S: Final = 0.05


def run(directory: Path, announce: Callable[[Path], None]) -> int:
    """Serve the store in ``directory`` until SIGTERM or SIGINT; return the exit code: 0, or 1 when
    the disk has failed. Raises StorageError, ConfigError or OSError when it cannot start.
    """
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s"
    )
    directory.mkdir(parents=True, exist_ok=True)
    process = _KeeperProcess(directory)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, process.stop)
    return process.serve(announce)


class _KeeperProcess:
    def __init__(self, directory: Path) -> None:
        self._path = socket_in(directory)
        self._loop = new_event_loop()
        self._failed = False
        self._signals = 0
        self._offload = ThreadOffload(self._loop.call_soon_threadsafe)
        store = GroupCommit(self._offload, directory, on_failed=self._store_failed)
        self._keeper = Keeper(store, LoopClock(self._loop), new_secret=os.urandom)

    def serve(self, announce: Callable[[Path], None]) -> int:
        """Serve until it is stopped."""
        loop = self._loop
        listener: LocalListener | None = None
        try:
            self._wait(self._keeper.start())
            listener = LocalListener(
                loop, self._path, self._keeper.accept, max_frame_bytes=MAX_REQUEST_BYTES
            )
            announce(self._path)
            while not self._signals and not self._failed:
                loop.run_forever()
            if not self._failed:
                loop.run_until_complete(self._clients_gone())
        finally:
            if listener is not None:
                listener.close()
            if not self._failed:
                self._wait(self._keeper.stop())
            self._offload.close()
            loop.close()
        return 1 if self._failed else 0

    def stop(self, *_: object) -> None:
        """Handle a signal, at any moment."""
        self._signals += 1
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)

    async def _clients_gone(self) -> None:
        deadline = self._loop.time() + LAST_WAIT_S
        while (
            self._keeper.has_clients
            and not self._failed
            and self._signals < 2
            and self._loop.time() < deadline
        ):
            await asyncio.sleep(_LOOK_S)

    def _store_failed(self, error: Exception) -> None:
        log.critical("the store has failed: %s", error)
        self._failed = True
        self._loop.stop()

    def _wait(self, outcome: Deferred[T]) -> T:
        if not outcome.done:
            outcome.on_done(lambda _: self._loop.stop())
        while not outcome.done:
            self._loop.run_forever()
        return outcome.result()
