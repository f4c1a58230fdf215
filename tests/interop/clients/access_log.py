"""The access log that tests of the main job read.

``ACCESS_LOG`` names it; without that it is ``../shared/data/access.log`` beside the
repository, and without that file lines are made up.
"""

from __future__ import annotations

import os
from pathlib import Path

from millstream.cli.access_log import generate_lines

GENERATED_LINES = 10_000


def find_access_log() -> Path | None:
    """Return the file, or None when there is none."""
    named = os.environ.get("ACCESS_LOG")
    if named:
        return Path(named)
    beside = Path(__file__).parents[4] / "shared" / "data" / "access.log"
    return beside if beside.exists() else None


def access_log_bytes() -> bytes:
    """Return the whole log."""
    path = find_access_log()
    if path is not None:
        return path.read_bytes()
    return "".join(f"{line}\n" for line in generate_lines(GENERATED_LINES, seed=1)).encode()


def access_log_lines() -> list[bytes]:
    """Return the lines without their line feeds."""
    return access_log_bytes().removesuffix(b"\n").split(b"\n")
