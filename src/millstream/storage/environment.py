"""What all logs of a broker share: the file system, the limit on open files, randomness, and the
broker's own settings.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from millstream.model.uuids import random_uuid
from millstream.platform import raise_open_file_limit
from millstream.storage.checkpoint_claims import CheckpointClaims
from millstream.storage.deletion import PendingRemovals
from millstream.storage.files import FileSystem, LocalFileSystem
from millstream.storage.open_files import OpenFiles
from millstream.storage.scanner_pool import ScannerPool


def no_jitter(limit_ms: int) -> int:
    """Take nothing off ``segment.ms``: every segment of a topic rolls at the same age."""
    return 0


def random_jitter(limit_ms: int) -> int:
    """Take up to ``segment.jitter.ms`` off, so that many logs do not roll at once."""
    return random.randrange(limit_ms) if limit_ms else 0


def random_id() -> bytes:
    """Return the 16 random bytes of a directory id."""
    return random_uuid(os.urandom)


@dataclass(slots=True)
class LogEnvironment:
    """Parameters of every log; tests pass twins.

    ``roll_jitter_ms`` gets ``segment.jitter.ms`` and returns how much earlier a new segment rolls;
    ``new_id`` returns the 16 bytes of an id.
    """

    file_system: FileSystem = field(default_factory=LocalFileSystem)
    open_files: OpenFiles = field(default_factory=OpenFiles)
    removals: PendingRemovals = field(default_factory=PendingRemovals)
    roll_jitter_ms: Callable[[int], int] = no_jitter
    new_id: Callable[[], bytes] = random_id
    producer_id_expiration_ms: int = 86_400_000
    scanners: ScannerPool = field(default_factory=ScannerPool)
    _claims: dict[str, CheckpointClaims] = field(default_factory=dict)

    def checkpoint_claims(self, log_directory: str) -> CheckpointClaims:
        """Return what is known of the recovery points and log starts that a log directory has on
        disk.
        """
        claims = self._claims.get(log_directory)
        if claims is None:
            claims = CheckpointClaims(self.file_system, log_directory)
            claims = self._claims.setdefault(log_directory, claims)
        return claims


def broker_environment(*, producer_id_expiration_ms: int) -> LogEnvironment:
    """Return what a real broker uses: the process's limit of open files is raised to the maximum,
    and logs take half of it, or what connections leave.
    """
    open_files = OpenFiles(raise_open_file_limit() // 2)
    return LogEnvironment(
        file_system=LocalFileSystem(open_files.make_room),
        open_files=open_files,
        roll_jitter_ms=random_jitter,
        producer_id_expiration_ms=producer_id_expiration_ms,
    )
