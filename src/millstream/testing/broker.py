"""One broker of a cluster under test: its process, its disk, its log."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.testing.errors import TestBrokerError
from millstream.testing.host_process import HostedProcess, HostProcess

if TYPE_CHECKING:
    from millstream.testing.kafka import Kafka

STOP_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class DiskState:
    """What is wrong with a disk; see ``steered_disk``."""

    is_full: bool = False
    is_broken: bool = False
    flush_s: float = 0.0
    write_s: float = 0.0


class Disk:
    """The disk of one broker, as far as logs, indexes and checkpoints are concerned."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.state = DiskState()

    def slow(self, flush: float = 0.0, write: float = 0.0) -> None:
        """Make each flush, and each write, take so many seconds more. A write stops the broker's
        loop for that long.
        """
        self._set(DiskState(flush_s=flush, write_s=write))

    def full(self) -> None:
        """Let writes fail with ENOSPC. As in Kafka, a log directory that fails goes offline, and
        the broker exits if it was the only one.
        """
        self._set(DiskState(is_full=True))

    def fail(self) -> None:
        """Let everything that reaches the disk fail with EIO."""
        self._set(DiskState(is_broken=True))

    def heal(self) -> None:
        """Remove all faults. A log directory that went offline is back after a restart."""
        self._set(DiskState())

    def _set(self, state: DiskState) -> None:
        self._broker.kafka.is_bent = True
        self.state = state
        if self._broker.is_running:
            self.apply()

    def apply(self) -> None:
        """Tell the broker."""
        self._broker.process.call("disk", **{"with": asdict(self.state)})


class Broker:
    """One broker. Every method that changes something returns when it has happened."""

    def __init__(
        self,
        kafka: Kafka,
        broker_id: int,
        directory: Path,
        settings: Callable[[Broker], Mapping[str, str]],
    ) -> None:
        self.kafka = kafka
        self.id = broker_id
        self.directory = directory
        self.port = 0
        """The port of clients; it stays when the broker is started again."""
        self.disk = Disk(self)
        self._settings = settings
        self._process: HostedProcess | None = None

    def __repr__(self) -> str:
        return f"<broker {self.id} at {self.bootstrap}>"

    @property
    def process(self) -> HostedProcess:
        """Its process, or the last one it had."""
        if self._process is None:
            raise TestBrokerError(f"broker {self.id} was never started")
        return self._process

    @property
    def was_started(self) -> bool:
        """True from its first start on."""
        return self._process is not None

    @property
    def process_id(self) -> int:
        """The id of its process."""
        return self.process.process_id

    @property
    def bootstrap(self) -> str:
        """Where clients reach it, as HOST:PORT."""
        return f"127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        """True until its process has ended, also while it is paused."""
        return self._process is not None and not self._process.ended.is_set()

    @property
    def log(self) -> str:
        """What it has logged since the cluster was started."""
        return self.process.log_text()

    def start(self) -> None:
        """Start it, again or for the first time, and return when clients can use it."""
        self.begin()
        self.finish_start()

    def begin(self) -> None:
        """Start it without waiting."""
        if self.is_running:
            raise TestBrokerError(f"broker {self.id} runs already")
        cut = self.kafka.cut_of(self)
        if cut["store"]:
            raise TestBrokerError(
                f"broker {self.id} is cut from the store and cannot start: heal that first"
            )
        self._process = HostedProcess(f"broker {self.id}", self.directory / "broker.log")
        self._host.start(
            self._process,
            "broker",
            settings=dict(self._settings(self)),
            ahead_ms=self.kafka.clock.ahead_ms,
            watched=self.kafka.watched,
            cut=cut,
        )

    def finish_start(self) -> None:
        """Wait until it listens, and tell it what is wrong with its disk."""
        process = self.process
        process.wait_listening()
        self.port = next(port for name, _, port in process.endpoints if name == "CLIENT")
        if self.disk.state != DiskState():
            self.disk.apply()
        self.kafka.tell(self)

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop it with SIGTERM: it moves its leaderships and writes down what it knows."""
        self._end(signal.SIGTERM)

    def restart(self) -> None:
        """Stop it and start it again."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Stop its process with SIGSTOP: connections stay, and nothing is answered."""
        self.kafka.is_bent = True
        self._host.signal(self.process, signal.SIGSTOP)
        self.process.is_paused = True

    def resume(self) -> None:
        """Let it go on."""
        self._host.signal(self.process, signal.SIGCONT)
        self.process.is_paused = False
        self.kafka.tell(self)

    def wait_ended(self, timeout: float = STOP_TIMEOUT_S) -> int:
        """Return its exit code once it has ended; below 0 is the signal that ended it."""
        self.kafka.is_bent = True
        if not self.process.ended.wait(timeout):
            raise TestBrokerError(f"broker {self.id} has not ended after {timeout:g} s")
        assert self.process.code is not None
        return self.process.code

    def wait_for_log(self, text: str, timeout: float = 30.0) -> None:
        """Return once its log contains ``text``; AssertionError after ``timeout`` seconds."""
        deadline_s = time.monotonic() + timeout
        while text not in self.log:
            if time.monotonic() > deadline_s:
                raise AssertionError(f"{text!r} is not in the log of broker {self.id}")
            time.sleep(0.01)

    @property
    def _host(self) -> HostProcess:
        return self.kafka.host

    def _end(self, number: int) -> None:
        self.kafka.is_bent = True
        if self.process.is_paused and number != signal.SIGKILL:
            raise TestBrokerError(f"broker {self.id} is paused: resume it first, or kill it")
        self._host.signal(self.process, number)
        self.wait_ended()
        self.process.is_paused = False
