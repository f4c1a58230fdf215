"""The file ``trust`` of a log directory: since when it has lost nothing.

JSON in one line, made by Millstream alone::

    {"version":0,"boot_id":"…","directory_id":"…","continuity":4294967311}

``boot_id``       the machine's at the last start: it changes when the machine, and with it the page
                  cache, goes down
``directory_id``  as in ``meta.properties``: a file that was copied elsewhere says nothing
``continuity``    the broker epoch since which the broker has kept all that it had

A broker that was killed has kept what it wrote, for the page cache outlives the process; one whose
machine lost its power may have lost what was not flushed, though it counted as in sync (KIP-966
calls that an unclean shutdown). It goes on being trusted only if it was closed cleanly or the
machine has not gone down since, if no log was found damaged in the middle, and if no disk has
failed: after a flush that failed the page cache holds pages that will never be written, and may
drop them at any time.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.model.errors import StorageError
from millstream.storage.files import FileSystem, read_file, replace_file

if TYPE_CHECKING:
    from millstream.storage.log_manager import LogManager

TRUST: Final = "trust"
BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


@dataclass(frozen=True, slots=True)
class TrustMarker:
    """What the file says."""

    boot_id: str
    directory_id: str
    continuity: int


def read_boot_id(file_system: FileSystem) -> str:
    """Return the machine's boot id, "" where there is none: then every start is a new one."""
    try:
        # The file claims to be empty, as all of /proc does.
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


def continuity_found(file_system: FileSystem, log_manager: LogManager) -> int | None:
    """Return the broker epoch since which this broker has lost nothing, None when it may have just
    now. Asked once the logs are loaded.
    """
    if log_manager.offline_directories or damaged_logs(log_manager):
        return None
    boot_id = read_boot_id(file_system)
    newest = -1
    for directory in log_manager.directories:
        marker = read_trust(file_system, directory)
        if marker is None or marker.directory_id != log_manager.directory_id(directory):
            return None
        same_boot = boot_id != "" and marker.boot_id == boot_id
        if not (log_manager.had_clean_shutdown or same_boot):
            return None
        newest = max(newest, marker.continuity)
    return newest if newest >= 0 else None


def damaged_logs(log_manager: LogManager) -> list[str]:
    """Return the directories of logs in whose middle recovery found damage."""
    return [
        log.directory
        for log in log_manager.logs()
        if log.recovery_report.truncated_at is not None and not log.recovery_report.is_torn_tail
    ]


def write_trust(file_system: FileSystem, log_manager: LogManager, continuity: int) -> None:
    """Write the file into every log directory, once the broker is registered and before it takes
    part. Raises StorageError.
    """
    boot_id = read_boot_id(file_system)
    for directory in log_manager.directories:
        value = {
            "version": 0,
            "boot_id": boot_id,
            "directory_id": log_manager.directory_id(directory),
            "continuity": continuity,
        }
        data = json.dumps(value, separators=(",", ":")).encode("ascii")
        try:
            replace_file(file_system, f"{directory}/{TRUST}", data)
        except OSError as error:
            raise StorageError(directory, str(error)) from error


def distrust(file_system: FileSystem, directory: str) -> None:
    """Take the file away: what was written to this directory may be lost. A disk that refuses even
    that refuses the next start too.
    """
    with contextlib.suppress(OSError):
        file_system.remove(f"{directory}/{TRUST}")
        file_system.sync_directory(directory)
