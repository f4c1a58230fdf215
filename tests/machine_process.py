"""`millstream serve --brokers N` for tests: one process that runs a keeper and brokers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
from tests.broker_process import BrokerProcess


class MachineProcess(BrokerProcess):
    """All brokers of a data directory; ports are picked anew at each start."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        brokers: int = 2,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(directory, settings, arguments=arguments, environment=environment)
        self.brokers = brokers

    def command(self) -> list[str]:
        self.port = 0
        return [*super().command(), "--brokers", str(self.brokers)]

    @property
    def addresses(self) -> list[str]:
        """Where the brokers listen, in the order of their ids."""
        found = re.search(r"listening on (\S+), data", self.first_line)
        assert found is not None, self.first_line
        return found[1].split(",")

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses)

    def _child(self, words: Sequence[str]) -> psutil.Process:
        for each in psutil.Process(self.process.pid).children():
            line = each.cmdline()
            if any(word in line for word in words):
                return each
        raise AssertionError(f"no process of {words}")

    def keeper(self) -> psutil.Process:
        """Return the keeper's process."""
        return self._child(["keeper"])

    def broker(self, broker_id: int) -> psutil.Process:
        """Return a broker's process."""
        return self._child([f"broker.id={broker_id}"])
