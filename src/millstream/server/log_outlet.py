"""Lines for a descriptor that may take none: a pipe that nobody reads, a full disk, a reader that
has gone. Nothing here blocks or fails.
"""

from __future__ import annotations

import os
import select
import time
from collections import deque
from typing import Final

MAX_KEPT_BYTES: Final = 1 << 20
LAST_WAIT_S: Final = 1.0
_WRITE_BYTES: Final[int] = getattr(select, "PIPE_BUF", 512)
"""A pipe that is ready takes so much at once, and a write of no more does not block. The descriptor
may be shared with other processes, so it is not made non-blocking.
"""


class LogOutlet:
    """A text stream for a log. What is not taken is kept up to ``max_kept_bytes``; lines beyond are
    left out, and how many is said once there is room. What cannot be written is left out.
    """

    def __init__(self, descriptor: int, *, max_kept_bytes: int = MAX_KEPT_BYTES) -> None:
        self._descriptor = descriptor
        self._max_kept_bytes = max_kept_bytes
        self._kept: deque[bytes] = deque()
        self._size = 0
        self._left_out = 0
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    def write(self, text: str) -> int:
        """Write or keep ``text``, whole lines; return its length, as streams do."""
        line = text.encode(errors="backslashreplace")
        if self._size + len(line) > self._max_kept_bytes:
            self.flush()
        if self._size + len(line) > self._max_kept_bytes:
            self._left_out += 1
            return len(text)
        if self._left_out:
            self._keep(b"%d lines of this log were dropped: nobody read it\n" % self._left_out)
            self._left_out = 0
        self._keep(line)
        self.flush()
        return len(text)

    def flush(self) -> bool:
        """Write what can be written now; True when something is left."""
        while self._kept and self._poll.poll(0):
            piece = self._kept.popleft()
            try:
                count = os.write(self._descriptor, piece[:_WRITE_BYTES])
            except BlockingIOError:  # somebody who shares it has made it so
                self._kept.appendleft(piece)
                break
            except OSError:
                count = len(piece)
            self._size -= count
            if count < len(piece):
                self._kept.appendleft(piece[count:])
        return bool(self._kept)

    def close(self) -> None:
        """Write what is left, for ``LAST_WAIT_S`` at most."""
        deadline_s = time.monotonic() + LAST_WAIT_S
        while self.flush() and (left_s := deadline_s - time.monotonic()) > 0:
            self._poll.poll(left_s * 1000)

    def _keep(self, line: bytes) -> None:
        self._kept.append(line)
        self._size += len(line)
