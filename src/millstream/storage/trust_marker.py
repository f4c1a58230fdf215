"""Whether a broker still has what it had: the file ``trust`` in its first log directory.

::

    {"version": 1, "boot_id": "…", "continuity": 4294967301}

``boot_id`` names one life of the machine. A broker that was killed while the machine went on has
lost nothing, for the page cache is the kernel's; after a power cut it may lack records that it had
acknowledged. ``continuity`` is the broker epoch since which nothing was lost.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from millstream.storage.files import FileSystem, read_file, replace_file

FILE_NAME: Final = "trust"
BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


def read_continuity(files: FileSystem, directory: str, *, boot_id: str, clean: bool) -> int | None:
    """Return since which broker epoch nothing was lost; None when that cannot be said.

    It can after a clean stop, and where the machine has not been restarted since the marker was
    written. Raises OSError.
    """
    try:
        value = json.loads(read_file(files, f"{directory}/{FILE_NAME}"))
        continuity = int(value["continuity"])
        same_boot = bool(boot_id) and value["boot_id"] == boot_id
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return continuity if clean or same_boot else None


def write_continuity(files: FileSystem, directory: str, *, boot_id: str, continuity: int) -> None:
    """Write the marker, flushed. Raises OSError."""
    value = {"version": 1, "boot_id": boot_id, "continuity": continuity}
    replace_file(files, f"{directory}/{FILE_NAME}", json.dumps(value).encode() + b"\n")


def current_boot_id() -> str:
    """Return what names this life of the machine; empty on a system that has no such name."""
    try:
        return Path(BOOT_ID).read_text(encoding="ascii").strip()
    except OSError:
        return ""
