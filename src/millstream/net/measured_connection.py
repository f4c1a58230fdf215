"""A connection that tells how long its peer took to take what its socket did not take at once."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

from millstream.net.connection import Connection
from millstream.protocol.outgoing import IN_MEMORY, Records

OnSent = Callable[[bool, float], None]
"""Called with whether records of files were among what was sent, and with seconds."""


class MeasuredConnection(Connection):
    """``on_sent`` is called once the answers are sent that a socket did not take at once."""

    def __init__(self, *arguments: Any, on_sent: OnSent, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._on_sent = on_sent
        self._since_s = 0.0
        self._has_records = False

    def _send(self, out: list[Records]) -> None:
        super()._send(out)
        if self._writing and not self._since_s:
            self._since_s = perf_counter()
            self._has_records = not all(isinstance(each, IN_MEMORY) for each in out)

    def _on_writable(self) -> None:
        since_s, has_records = self._since_s, self._has_records
        self._since_s = 0.0
        super()._on_writable()
        if not since_s:
            return
        if self._writing and not self._since_s:
            self._since_s = since_s  # the peer has taken a part of it
        elif not self.closed:
            self._on_sent(has_records, perf_counter() - since_s)
