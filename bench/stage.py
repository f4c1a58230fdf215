"""The processes of one run, started when first asked for and stopped together at the end."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from bench.admin import Admin
from bench.load import c_client, raw
from bench.load.report import LoadReport
from bench.options import Options
from bench.peers import raw_limit
from bench.peers.kafka import (
    KafkaFailedError,
    KafkaInstall,
    KafkaNode,
    KafkaNotFoundError,
    find_kafka,
)
from bench.peers.machine import Machine
from bench.peers.millstream import millstream_node
from bench.peers.server_process import ServerProcess
from bench.peers.subject import Node, SubjectFailedError

LOAD_TIMEOUT_S = 300.0
# Deleted at once, so that one run's dirty pages are dropped before the next one adds its own.
BROKER_SETTINGS = {"log.segment.delete.delay.ms": "100"}
PRODUCE_TOPIC = "bench-run-000000"


class Broker:
    """A broker under measurement.

    `topic_settings` are given to every topic made for a run; `filled` names the topics that were
    filled for reading and stay until the end.
    """

    def __init__(self, node: Node, topic_settings: Mapping[str, str] | None = None) -> None:
        self.node = node
        self.topic_settings = dict(topic_settings or {})
        self.filled: set[str] = set()

    def admin(self) -> Admin:
        return Admin(self.node.host, self.node.port)


class Stage:
    """Owns a directory and the subjects of a run; a context manager."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.kafka_absent = "" if options.use_kafka else "left out by --no-kafka"
        self.millstream_absent = ""
        self.install: KafkaInstall | None = None
        self._stack = ExitStack()
        self._brokers: dict[str, Broker | None] = {}
        self._machines: dict[int, Machine] = {}
        self._raw: dict[str, ServerProcess] = {}
        self._run_number = 0
        self.directory = options.data_dir
        if options.use_kafka:
            try:
                self.install = find_kafka()
            except KafkaNotFoundError as error:
                self.kafka_absent = str(error)

    def __enter__(self) -> Stage:
        self.directory.mkdir(parents=True)
        self._stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def kafka(self, *, fsync: bool = False) -> Broker | None:
        """Return the Kafka node; with `fsync` its topics flush every append before the answer."""
        if self.install is None:
            return None
        if "kafka" not in self._brokers:
            node = KafkaNode(self.install, self.directory / "kafka", settings=BROKER_SETTINGS)
            self._stack.callback(node.stop)
            try:
                self._brokers["kafka"] = Broker(node.start())
            except KafkaFailedError as error:
                self.kafka_absent = str(error)
                self._brokers["kafka"] = None
        broker = self._brokers["kafka"]
        if broker is not None and fsync:
            return Broker(broker.node, {"flush.messages": "1"})
        return broker

    def millstream(self, *, flush_policy: str = "os") -> Broker | None:
        """Return a Millstream node that leaves flushing to the system, or fsyncs (`ack`)."""
        return self._millstream(f"millstream-{flush_policy}", flush_policy)

    def millstream_also(self) -> Broker | None:
        """Return a node on the further interpreter, or None without one."""
        python = self.options.also_on
        return None if python is None else self._millstream("millstream-also", "os", python)

    def _millstream(
        self, name: str, flush_policy: str, python: Path | None = None
    ) -> Broker | None:
        if name not in self._brokers:
            settings = {**BROKER_SETTINGS, "log.flush.policy": flush_policy}
            node = millstream_node(self.directory / name, settings=settings, python=python)
            self._stack.callback(node.stop)
            try:
                self._brokers[name] = Broker(node.start())
            except SubjectFailedError as error:
                self.millstream_absent = str(error).splitlines()[-1]
                self._brokers[name] = None
        return self._brokers[name]

    def machine(self, brokers: int, settings: Mapping[str, str]) -> Machine:
        """Return Millstream with so many brokers behind one command, each with all that a broker of
        the stage is given; SubjectFailedError.
        """
        if brokers not in self._machines:
            machine = Machine(
                self.directory / f"{brokers} brokers",
                brokers=brokers,
                settings={**BROKER_SETTINGS, "log.flush.policy": "os", **settings},
            )
            self._stack.callback(machine.stop)
            machine.start()
            self._machines[brokers] = machine
        return self._machines[brokers]

    def receive_loop(self) -> ServerProcess:
        """Return the loop that receives and writes."""
        if "receive" not in self._raw:
            loop = raw_limit.receive_and_write(self.directory, PRODUCE_TOPIC)
            self._stack.callback(loop.stop)
            self._raw["receive"] = loop.start()
        return self._raw["receive"]

    def send_loop(self, fetch_bytes: int, *, source_bytes: int) -> ServerProcess:
        """Return the loop that sends a file in answers of `fetch_bytes`."""
        name = f"send {fetch_bytes}"
        if name not in self._raw:
            source = self.directory / "sent"
            if not source.exists():
                batch = raw.fetch_batch().data
                source.write_bytes(batch * (source_bytes // len(batch) + 1))
            loop = raw_limit.send_file(self.directory, source, fetch_bytes=fetch_bytes)
            self._stack.callback(loop.stop)
            self._raw[name] = loop.start()
        return self._raw[name]

    def next_topic(self) -> str:
        """Return a topic name never used before; all have one length, so frames do too."""
        self._run_number += 1
        return f"{PRODUCE_TOPIC[:-6]}{self._run_number:06d}"


def run_load(
    spec: raw.ProduceSpec | raw.FetchSpec | c_client.ClientProduceSpec | c_client.ClientConsumeSpec,
) -> LoadReport:
    """Run a load in a process of its own and return what it reports."""
    if isinstance(spec, raw.ProduceSpec | raw.FetchSpec):
        module, argument = "bench.load.raw", raw.to_json(spec)
    else:
        module, argument = "bench.load.c_client", c_client.to_json(spec)
    return run_module(module, argument)


def run_module(module: str, argument: str) -> LoadReport:
    """Run a module with one argument as a load and return what it reports."""
    answer = subprocess.run(
        [sys.executable, "-m", module, argument],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LOAD_TIMEOUT_S,
        check=False,
    )
    if answer.returncode != 0:
        last_line = answer.stderr.strip().splitlines()[-1:]
        raise SubjectFailedError(f"load failed: {' '.join(last_line)}")
    return LoadReport.from_json(answer.stdout)
