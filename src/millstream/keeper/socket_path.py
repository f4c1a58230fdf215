"""Where the socket of a keeper lies."""

from __future__ import annotations

from pathlib import Path
from typing import Final

SOCKET_NAME: Final = "millstream-keeper.sock"


def socket_in(directory: Path) -> Path:
    """Return the socket of the keeper whose store is in ``directory``."""
    return directory.absolute() / SOCKET_NAME
