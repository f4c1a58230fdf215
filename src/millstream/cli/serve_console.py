"""`millstream serve --console`: a console as a process of its own beside the broker."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from types import TracebackType
from typing import Final

from millstream.cli.child_processes import await_process
from millstream.cli.failures import CommandFailedError, complain
from millstream.cli.serve_arguments import ServeArguments
from millstream.config.broker import BrokerConfig
from millstream.config.listeners import PROTECTED_PROTOCOLS
from millstream.config.properties import CLIENT_PREFIX

_STOP_S: Final = 5.0
_CLIENT_FILE: Final = f"{CLIENT_PREFIX}CONFIG"
_PROTOCOL: Final = f"{CLIENT_PREFIX}SECURITY_PROTOCOL"
_BOOTSTRAP: Final = f"{CLIENT_PREFIX}BOOTSTRAP_SERVERS"
_EVERY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "": "127.0.0.1"}


class ConsoleBeside:
    """A console for the brokers of this process, started once they listen.

    It ends with the process however that ends: it waits for the end of a pipe that only this
    process holds. A context manager that stops it.
    """

    def __init__(
        self,
        arguments: ServeArguments,
        config: BrokerConfig,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """CommandFailedError where there can be no console."""
        for name in ("starlette", "uvicorn"):
            if find_spec(name) is None:
                raise CommandFailedError(
                    f"--console needs {name}: pip install 'millstream[console]'"
                )
        protocol = config.listening()[0].protocol
        if protocol in PROTECTED_PROTOCOLS and not {_CLIENT_FILE, _PROTOCOL} & set(environment):
            raise CommandFailedError(
                f"--console connects to the first listener, which is {protocol}: give the settings "
                f"of a client in {_CLIENT_FILE}=FILE, or run `millstream console` on its own"
            )
        self._arguments = arguments
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, addresses: Sequence[str], directories: Sequence[str]) -> None:
        """Start it for brokers that listen. What fails here is told and stops no broker."""
        bootstrap = ",".join(map(_reachable, addresses))
        command = [sys.executable, "-m", "millstream.cli.console_beside"]
        command += ["--port", str(self._arguments.console_port)]
        if self._arguments.console_writes:
            command.append("--allow-writes")
        for each in directories:
            command += ["--log-dir", each]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                # A profile or a file of the user may name other brokers.
                env={**self._environment, _BOOTSTRAP: bootstrap},
                start_new_session=True,  # Ctrl-C is for the broker, which stops in order
            )
        except OSError as error:
            complain(f"serve: the console was not started: {error.strerror}")

    def __enter__(self) -> ConsoleBeside:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        await_process(process, _STOP_S)


def _reachable(address: str) -> str:
    """Return the address at which this machine reaches a broker that listens on ``address``."""
    host, _, port = address.rpartition(":")
    return f"{_EVERY_ADDRESS.get(host, host)}:{port}"
