"""What a command sees as its terminal, and what it has printed there."""

from __future__ import annotations

import os
import re
import threading
import time
import tty
from typing import Final

_END: Final = b"\0end of a command\0"
_PATIENCE_S: Final = 60.0
_STYLE: Final = re.compile(r"\x1b\[[0-9;]*m")


class Screen:
    """A pseudo terminal that is nobody's controlling terminal: no signal comes from it."""

    def __init__(self) -> None:
        self._reader, self.descriptor = os.openpty()
        tty.setraw(self.descriptor)  # ends of lines stay as they are
        self._read = bytearray()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                data = os.read(self._reader, 65536)
            except OSError:  # closed, by us and by whoever had it
                return
            with self._changed:
                self._read += data
                self._changed.notify_all()

    def taken(self) -> str:
        """Return what was printed since the last time, without the codes of styles."""
        os.write(self.descriptor, _END)
        deadline = time.monotonic() + _PATIENCE_S
        with self._changed:
            while (end := self._read.find(_END)) < 0:
                if not self._changed.wait(deadline - time.monotonic()):
                    raise TimeoutError("a terminal does not give back what was printed")
            said = bytes(self._read[:end])
            del self._read[: end + len(_END)]
        return _STYLE.sub("", said.decode())

    def close(self) -> None:
        """Close it; what still runs there gets errors."""
        os.close(self.descriptor)
        os.close(self._reader)
