"""What goes out on a connection: pieces in order, records among them by reference."""

from __future__ import annotations

from typing import Final, Protocol, TypeAlias, cast

MERGE_BELOW_BYTES: Final = 1024
"""Records in memory that are smaller are copied: a piece of their own would cost more."""


class Payload(Protocol):
    """Bytes that lie in a file: sent by the kernel, or read where they must be changed (TLS)."""

    @property
    def position(self) -> int:
        """Where they begin in the file."""

    def __len__(self) -> int:
        """Return how many bytes it sends, as the length of a piece in memory does."""

    def fileno(self) -> int:
        """Return the open file's descriptor."""

    def read(self) -> bytes:
        """Read all of it."""


Records: TypeAlias = bytes | bytearray | memoryview | Payload
"""The value of a ``records`` field to be sent."""

IN_MEMORY: Final = (bytes, bytearray, memoryview)
"""The types of records that are no payload, for ``isinstance``."""


class Outgoing:
    """One framed message as an ordered list of pieces."""

    __slots__ = ("pieces", "size")

    def __init__(self, pieces: list[Records], size: int) -> None:
        self.pieces = pieces
        self.size = size
        """Bytes of all pieces, the four of the frame size included."""

    def join(self) -> bytes:
        """Return the message as one value; only for messages whose pieces are all in memory."""
        return b"".join(cast("list[bytes | bytearray | memoryview]", self.pieces))
