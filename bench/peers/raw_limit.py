"""Start the loops of `raw_loops` with the answers that the raw load expects."""

from __future__ import annotations

import sys
from pathlib import Path

from bench import wire
from bench.peers.server_process import ServerProcess

LOOPS = [sys.executable, "-m", "bench.peers.raw_loops"]


def receive_and_write(directory: Path, topic: str) -> ServerProcess:
    """Return the loop that writes what it receives to `directory/received`."""
    answer = wire.produce_response(topic).hex()
    command = [*LOOPS, "receive", str(received_file(directory)), answer]
    return ServerProcess(command, directory / "receive.out")


def received_file(directory: Path) -> Path:
    """Return the file that holds every byte of the last run against `receive_and_write`."""
    return directory / "received"


def send_file(directory: Path, source: Path, *, fetch_bytes: int) -> ServerProcess:
    """Return the loop that answers every fetch with `fetch_bytes` of a file, by sendfile."""
    head = wire.fetch_response_head(fetch_bytes).hex()
    # The loop sends the tags that end a response out of the file too: nobody reads them.
    body = str(fetch_bytes + wire.FETCH_TAIL_BYTES)
    command = [*LOOPS, "send", str(source), head, body]
    return ServerProcess(command, directory / f"send-{fetch_bytes}.out")
