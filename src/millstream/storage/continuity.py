"""The broker epoch since which a broker has lost nothing: read at start, written after
registration.

`trust` describes the file and when it is believed.
"""

from __future__ import annotations

import json

from millstream.model.errors import StorageError
from millstream.storage.files import FileSystem, replace_file
from millstream.storage.log_manager import LogManager
from millstream.storage.trust import TRUST, read_boot_id, read_trust


def read_continuity(file_system: FileSystem, log_manager: LogManager) -> int | None:
    """Return the broker epoch since which this broker has lost nothing, None when it may have just
    now. Asked once the logs are loaded. A directory that was full when they were loaded is offline
    and keeps what it took: it is skipped here and read at the next start.
    """
    if log_manager.has_lost_writes or damaged_logs(log_manager):
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
