"""`millstream keeper`: run the keeper of a cluster on one machine; typer is not loaded for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from millstream.cli.failures import FAILED, INTERRUPTED, WRONG_USAGE, complain, sentence
from millstream.model.errors import MillstreamError


def keeper(words: Sequence[str]) -> int:
    """Run a keeper with the command line ``words``; return the exit code of the process."""
    if len(words) != 1 or words[0].startswith("-"):
        complain("keeper: give the directory of its store (see millstream keeper --help)")
        return WRONG_USAGE
    from millstream.server.keeper_process import run

    try:
        return run(Path(words[0]), announce)
    except (MillstreamError, OSError) as error:
        complain(f"keeper: {sentence(error)}")
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def announce(socket: Path) -> None:
    """Print the first line of output: where the keeper listens."""
    print(f"millstream keeper listening on {socket}", flush=True)
