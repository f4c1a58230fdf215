"""Ports of this machine in place of the ports that a page names."""

from __future__ import annotations

import random
import re
import socket
from contextlib import ExitStack
from typing import Final

RUN_OF_PORTS: Final = range(9092, 9100)
"""Brokers that count up from 9092 find the ports behind it free."""
_NAMED: Final = re.compile(
    r"((?:localhost|127\.0\.0\.1|0\.0\.0\.0):|--port[ =]|\.port=|-L |(?<=\d),)(\d{4,5})(?!\d|\.)"
)
_ATTEMPTS: Final = 200
_BELOW_THE_SYSTEMS_OWN: Final = range(15_000, 32_000)
"""A service may start minutes after its port was chosen. The system gives connections ports above
these, so none of them takes it meanwhile.
"""


class Ports:
    """What stands for each port of a page. A port is free when it is chosen, and nobody holds it
    until the page's own service listens: a test that meets another program there fails visibly.
    """

    def __init__(self) -> None:
        first = _free_run(len(RUN_OF_PORTS))
        self._of = {each: first + number for number, each in enumerate(RUN_OF_PORTS)}

    def __getitem__(self, port: int) -> int:
        if port not in self._of:
            self._of[port] = _free_run(1)
        return self._of[port]

    def into(self, text: str) -> str:
        """Return what is typed for a text of the page."""
        return _NAMED.sub(lambda found: f"{found[1]}{self[int(found[2])]}", text)

    def back(self, text: str) -> str:
        """Return what was printed, with the ports of the page."""
        for of_page, port in self._of.items():
            text = re.sub(rf"\b{port}\b", str(of_page), text)
        return text


def _free_run(count: int) -> int:
    for _ in range(_ATTEMPTS):
        with ExitStack() as held:
            first = random.choice(_BELOW_THE_SYSTEMS_OWN)
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return first
    raise OSError(f"no {count} ports in a row are free")
