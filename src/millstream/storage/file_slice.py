"""A piece of a file, referred to and not read: what a fetch returns and sendfile sends."""

from __future__ import annotations

from millstream.storage.files import File


class FileSlice:
    """``size`` bytes of ``file`` from ``position`` on (a ``protocol.outgoing.Payload``).

    The slice holds the open file, so the bytes stay readable after the file was renamed, deleted,
    or closed by its log. A log that is truncated takes bytes away: a send then comes up short.
    """

    __slots__ = ("file", "position", "size")

    def __init__(self, file: File, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size

    def __len__(self) -> int:
        return self.size

    def fileno(self) -> int:
        """Return the descriptor to hand to sendfile, together with ``position`` and ``size``."""
        return self.file.fileno()

    def read(self) -> bytes:
        """Return the bytes; fewer than ``size`` where the file has been cut since."""
        return self.file.read_at(self.position, self.size)
