"""The file ``trust`` of a log directory: the broker epoch since which it has lost nothing.

JSON in one line, made by Millstream alone::

    {"version":0,"boot_id":"…","directory_id":"…","continuity":4294967311}

``boot_id``       the machine's at the last start: it changes when the machine, and with it the page
                  cache, goes down
``directory_id`` as in ``meta.properties``: a file that was copied from another directory is ignored
``continuity`` the broker epoch since which the broker has kept all of its data

A broker that was killed has kept what it wrote, for the page cache outlives the process; one whose
machine lost its power may have lost what was not flushed, though it counted as in sync (KIP-966
calls that an unclean shutdown). It stays trusted only if it was closed cleanly or the
machine has not gone down since, if no log was found damaged in the middle, and if no disk has
failed: after a flush that failed the page cache holds pages that will never be written, and may
drop them at any time. After damage or a disk failure the file is removed at once, because a later
start could detect neither.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import Final

from millstream.platform import BOOT_ID_FILE
from millstream.storage.files import FileSystem, read_file

TRUST: Final = "trust"
BOOT_ID: Final = BOOT_ID_FILE


@dataclass(frozen=True, slots=True)
class TrustMarker:
    """What the file says."""

    boot_id: str
    directory_id: str
    continuity: int


def read_boot_id(file_system: FileSystem) -> str:
    """Return the machine's boot id, "" where there is none: then every start is a new one."""
    try:
        # Its size is reported as 0, as for all files that the kernel makes up.
        return file_system.open(BOOT_ID, writable=False).read_at(0, 64).decode("ascii").strip()
    except (OSError, ValueError):
        return ""


def read_trust(file_system: FileSystem, directory: str) -> TrustMarker | None:
    """Return what the file says, None when it is not there or not of its form."""
    try:
        value = json.loads(read_file(file_system, f"{directory}/{TRUST}"))
        return TrustMarker(
            str(value["boot_id"]), str(value["directory_id"]), int(value["continuity"])
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def distrust(file_system: FileSystem, directory: str) -> None:
    """Remove the file: what was written to this directory may be lost. A failure to remove it is
    ignored, because the disk then fails the next start as well.
    """
    with contextlib.suppress(OSError):
        file_system.remove(f"{directory}/{TRUST}")
        file_system.sync_directory(directory)
