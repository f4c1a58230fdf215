"""A whole cluster on this machine: its store and its brokers as processes of their own."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Final

from millstream.cli.child_processes import end_process
from millstream.cli.cluster_store import ClusterStore
from millstream.cli.failures import CommandFailedError
from millstream.platform import before_exec, end_with_this_process

STOP_TIMEOUT_S: Final = 30.0

_MOST_REVIVALS: Final = 3
_LATE_S: Final = 300.0
"""A broker that ended so often within this time is not started again."""

_LISTENING = re.compile(r"listening on (\S+:\d+)")


class BrokerSite:
    """One broker process; its log goes to ``broker.log`` in its directory."""

    def __init__(self, broker_id: int, directory: Path, settings: dict[str, str]) -> None:
        self.broker_id = broker_id
        self.address = ""
        self._directory = directory
        self._settings = settings
        self._process: subprocess.Popen[str] | None = None

    @property
    def log_path(self) -> Path:
        """Where its log is."""
        return self._directory / "broker.log"

    @property
    def data(self) -> Path:
        """Where its logs are."""
        return self._directory / "data"

    @property
    def running(self) -> bool:
        """True while the process has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self, port: int) -> None:
        """Start the process; :meth:`wait` returns once it listens."""
        self._directory.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "millstream.cli.main", "serve", "--port", str(port)]
        command += ["--data-dir", str(self.data)]
        for name, value in self._settings.items():
            command += ["--override", f"{name}={value}"]
        with self.log_path.open("a") as errors:
            # In a session of its own: Ctrl-C is for us, and brokers stop before the store does.
            self._process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
                preexec_fn=before_exec(),  # noqa: PLW1509 - it calls the system, and takes no locks
            )
        end_with_this_process(self._process)

    def wait(self) -> None:
        """Return once it listens; CommandFailedError with its last log line when it does not."""
        output = self._output()
        line = output.readline()
        found = _LISTENING.search(line)
        if found is None:
            raise CommandFailedError(f"broker {self.broker_id} did not start: {self.last_line()}")
        self.address = found[1]
        threading.Thread(target=output.read, daemon=True).start()

    def stop(self) -> None:
        """Wait for the end; kill what does not come to it."""
        process, self._process = self._process, None
        if process is not None:
            end_process(process, STOP_TIMEOUT_S)

    def _output(self) -> IO[str]:
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout

    def last_line(self) -> str:
        """Return the last line of its log, without the name of the command that it is."""
        lines = self.log_path.read_text(errors="replace").splitlines()
        return lines[-1].removeprefix("millstream: serve: ") if lines else "its log is empty"


class ClusterSite:
    """A store and brokers 1 to ``size``; a context manager that starts and stops them."""

    def __init__(
        self,
        directory: Path,
        store: ClusterStore,
        *,
        size: int,
        first_port: int,
        settings: dict[str, str],
        restarts: bool = False,
    ) -> None:
        """With ``restarts`` a broker that ends is started again."""
        self._restarts = restarts
        self._first_port = first_port
        self._properties = directory / "broker.properties"
        self._store = store
        self._common = {
            "default.replication.factor": str(min(3, size)),
            "offsets.topic.replication.factor": str(min(3, size)),
            "transaction.state.log.replication.factor": str(min(3, size)),
            "transaction.state.log.min.isr": str(min(2, size)),
            "min.insync.replicas": str(min(2, size)),
            **settings,
        }
        self.brokers = [
            BrokerSite(
                number,
                directory / f"broker-{number}",
                {**store.settings, **self._common, "broker.id": str(number)},
            )
            for number in range(1, size + 1)
        ]
        self._fallen: set[int] = set()
        self._revivals: dict[int, list[float]] = {}
        """When brokers were started again (s), of late."""

    @property
    def bootstrap(self) -> str:
        """Where clients connect."""
        return ",".join(each.address for each in self.brokers)

    @property
    def joining(self) -> str:
        """The command that starts one more broker of this cluster, with the settings of the
        others; ``DATA`` stands for its directory.
        """
        return self._serving(len(self.brokers) + 1, port=0, data="DATA")

    def restarting(self, broker: BrokerSite) -> str:
        """Return the command that starts a broker again that has ended."""
        port = int(broker.address.rpartition(":")[2])
        return self._serving(broker.broker_id, port=port, data=shlex.quote(str(broker.data)))

    def _serving(self, broker_id: int, *, port: int, data: str) -> str:
        found = " ".join(
            f"--override {shlex.quote(f'{name}={value}')}"
            for name, value in self._store.settings.items()
        )
        return (
            f"millstream serve {shlex.quote(str(self._properties))} --port {port} "
            f"--data-dir {data} {found} --override broker.id={broker_id}"
        )

    def start(self) -> None:
        """Start everything; what has started is stopped again when something does not."""
        try:
            self._store.start()
            for offset, broker in enumerate(self.brokers):
                broker.start(self._first_port + offset if self._first_port else 0)
            for broker in self.brokers:
                broker.wait()
            lines = [f"{name}={value}" for name, value in self._common.items()]
            self._properties.write_text("\n".join(lines) + "\n", encoding="utf-8")
        except BaseException:
            self.stop()
            raise

    def look_after(self) -> list[str]:
        """Start a store that has ended again; return a sentence for each process that ended.

        Raises CommandFailedError when no broker is left, or the store ends again and again.
        """
        told = []
        if self._store.restart_what_ended():
            told.append(f"{self._store.name} had ended and was started again")
        for broker in self.brokers:
            if not broker.running and broker.broker_id not in self._fallen:
                if self._restarts and self._revived(broker, told):
                    continue
                self._fallen.add(broker.broker_id)
                told.append(
                    f"broker {broker.broker_id} has exited; the last line of {broker.log_path} is: "
                    f"{broker.last_line()}"
                )
                if len(self._fallen) < len(self.brokers):
                    told.append(f"to start it again: {self.restarting(broker)}")
        if len(self._fallen) == len(self.brokers):
            raise CommandFailedError(f"all brokers have exited; {told[-1] if told else ''}")
        return told

    def _revived(self, broker: BrokerSite, told: list[str]) -> bool:
        """Start a broker again, at its port; False if it ends again and again."""
        now = time.monotonic()
        starts = [each for each in self._revivals.get(broker.broker_id, ()) if now - each < _LATE_S]
        if len(starts) >= _MOST_REVIVALS:
            return False
        self._revivals[broker.broker_id] = [*starts, now]
        last_line = broker.last_line()
        broker.start(int(broker.address.rpartition(":")[2]))
        try:
            broker.wait()
        except CommandFailedError as error:
            told.append(str(error))
            return len(starts) + 1 < _MOST_REVIVALS
        told.append(
            f"broker {broker.broker_id} had ended and was started again; the last line of "
            f"{broker.log_path} was: {last_line}"
        )
        return True

    def stop(self) -> None:
        """Stop the brokers one after the other, each giving its leaderships away, then the store.

        The last brokers have no other broker to hand leadership to, and stop at once.
        """
        for broker in self.brokers:
            broker.stop()
        self._store.stop()

    def __enter__(self) -> ClusterSite:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
