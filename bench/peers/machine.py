"""Millstream with one broker, or several behind one command, each on a port of its own."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path

from bench import wire
from bench.admin import READY_TIMEOUT_S, Admin, BrokerAnswerError
from bench.peers.kafka import KafkaInstall, KafkaNode
from bench.peers.millstream import serve_command
from bench.peers.server_process import ServerProcess


class Machine:
    """A subject whose processes are counted together: `serve`, or `serve --brokers N`."""

    def __init__(self, directory: Path, *, brokers: int, settings: Mapping[str, str]) -> None:
        overrides = [f"--override={name}={value}" for name, value in settings.items()]
        where = ["--data-dir", str(directory / "data"), "--host", "127.0.0.1", "--port", "0"]
        many = ["--brokers", str(brokers)] if brokers > 1 else []
        self._process = ServerProcess(
            [*serve_command(), *where, *many, *overrides], directory / "millstream.out"
        )
        self.ports: tuple[int, ...] = ()

    def start(self) -> None:
        """Start, and learn the ports."""
        self._process.start()
        text = self._process.output.read_text(encoding="utf-8", errors="replace")
        found = re.search(r"listening on (\S+), data", text)
        assert found is not None, text
        self.ports = tuple(int(each.rpartition(":")[2]) for each in found[1].split(","))

    @property
    def pids(self) -> tuple[int, ...]:
        """Every process: brokers, and the keeper and the supervisor of several."""
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
        return (pid, *map(int, children))

    def stop(self) -> None:
        """Stop all of it."""
        self._process.stop()


class KafkaMachine:
    """One Kafka node in the same shape."""

    def __init__(
        self, install: KafkaInstall, directory: Path, *, settings: Mapping[str, str]
    ) -> None:
        self._node = KafkaNode(install, directory, settings=settings)
        self.ports: tuple[int, ...] = ()

    def start(self) -> None:
        """Start, and learn the port."""
        self._node.start()
        self.ports = (self._node.port,)

    @property
    def pids(self) -> tuple[int, ...]:
        """Its process."""
        return (self._node.pid,)

    def stop(self) -> None:
        """Stop it."""
        self._node.stop()


def create_topic(machine: Machine | KafkaMachine, topic: str, partitions: int) -> tuple[int, ...]:
    """Create a topic; return where the leader of each of its partitions listens."""
    request = wire.create_topic_request(topic, partitions, {})
    deadline = time.monotonic() + READY_TIMEOUT_S
    error = -1
    for port in machine.ports:  # one of them is the controller
        with Admin("127.0.0.1", port) as admin:
            reader = admin.send(request)
        reader.take("ii")
        reader.string()
        (error,) = reader.take("h")
        if error == 0:
            break
    if error:
        raise BrokerAnswerError(f"CreateTopics of {topic}: error {error}")
    while True:
        leaders: dict[int, int] = {}
        for port in machine.ports:
            with Admin("127.0.0.1", port) as admin:
                leaders |= dict.fromkeys(admin.led_offsets(topic, partitions), port)
        if len(leaders) == partitions:
            return tuple(leaders[each] for each in range(partitions))
        if time.monotonic() > deadline:
            raise BrokerAnswerError(f"{topic} has partitions without a leader")
        time.sleep(0.05)
