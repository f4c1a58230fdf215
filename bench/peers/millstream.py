"""Run one Millstream broker as its users do: the `millstream serve` command."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from bench.peers.server_process import ServerProcess


def serve_command(python: Path | None = None) -> list[str]:
    """Return the installed `millstream` script; its entry point where there is none, or where
    another interpreter is to run it.
    """
    script = Path(sys.executable).with_name("millstream")
    if python is None and script.exists():
        return [str(script), "serve"]
    return [
        str(python or sys.executable),
        "-c",
        "from millstream.cli.main import main; main()",
        "serve",
    ]


def millstream_node(
    directory: Path,
    *,
    settings: Mapping[str, str] | None = None,
    port: int = 0,
    python: Path | None = None,
) -> ServerProcess:
    """Return a broker, not yet started, with its data in `directory`; port 0 lets it choose."""
    where = ["--data-dir", str(directory / "data"), "--host", "127.0.0.1", "--port", str(port)]
    overrides = [f"--override={name}={value}" for name, value in (settings or {}).items()]
    node = ServerProcess([*serve_command(python), *where, *overrides], directory / "millstream.out")
    node.port = port
    return node
