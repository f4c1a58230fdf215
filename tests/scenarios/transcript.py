"""Transcripts: what is done, and what comes of it, in a text that is read as well as run.

A transcript is a text of blocks, each a command, a line ``----``, and what the command gave::

    join a
    ----
    a: MEMBER_ID_REQUIRED, id a-1

Lines that begin with ``#`` and empty lines between blocks are for the reader. Run pytest with
``MILLSTREAM_REWRITE=1`` to put what comes of the commands into the files, and read the difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

SEPARATOR = "----"


def check(path: Path, run: Callable[[str], list[str]]) -> None:
    """Run every command of a transcript and compare, or rewrite the file."""
    written = path.read_text()
    played = _replies_to(written, run)
    if os.environ.get("MILLSTREAM_REWRITE") == "1":
        path.write_text(played)
        return
    assert played == written


def _replies_to(text: str, run: Callable[[str], list[str]]) -> str:
    played: list[str] = []
    lines = iter(text.splitlines())
    for line in lines:
        played.append(line)
        if not line or line.startswith("#"):
            continue
        assert next(lines) == SEPARATOR, f"no {SEPARATOR} after {line!r}"
        played.append(SEPARATOR)
        played += run(line)
        for expected in lines:
            if not expected:
                played.append("")
                break
    return "\n".join(played).rstrip("\n") + "\n"
