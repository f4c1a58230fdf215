"""Find Apache Kafka on this machine and run one combined KRaft node of it.

Standard library only, so that the interoperability tests use the same finder and node.

Where Kafka comes from, in this order:

1. ``KAFKA_HOME``: a directory with ``libs/*.jar``, as every Kafka download has.
2. The cache of an earlier run: ``~/.cache/millstream/kafka-<version>/libs``.
3. Maven (``mvn`` on the path): ``dependency:copy-dependencies`` into that cache.

Java 17 or newer is needed: ``JAVA_HOME``, else ``java`` on the path.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import socket
import struct
import subprocess
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from bench.peers.maven import JarsMissingError, cached, copied_jars

VERSION = "4.3.0"
NODE_ID = 1
JVM_FLAGS = ("-Xms1G", "-Xmx1G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
START_TIMEOUT_S = 300.0

# What a single node needs; everything else stays at Kafka's own default.
SINGLE_NODE_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": str(NODE_ID),
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}

JARS = (f"org.apache.kafka:kafka_2.13:{VERSION}", f"org.apache.kafka:kafka-tools:{VERSION}")
# Connect with its file connectors, MirrorMaker and the examples of Kafka Streams. Every download
# of Kafka has them too.
PROGRAMS = (
    *(
        f"org.apache.kafka:{name}:{VERSION}"
        for name in ("connect-file", "connect-mirror", "kafka-streams-examples")
    ),
    "org.slf4j:slf4j-simple:1.7.36",
)


class KafkaNotFoundError(Exception):
    """Apache Kafka cannot be run here; the message is one sentence that says why."""


class KafkaFailedError(Exception):
    """A Kafka process ended or did not answer; the message ends with the tail of its output."""


@dataclass(frozen=True)
class KafkaInstall:
    """Jars of one Kafka version and the Java that runs them."""

    libs: Path
    java: Path
    version: str
    java_version: str

    def command(
        self, main_class: str, *arguments: str, jvm_flags: tuple[str, ...] = ()
    ) -> list[str]:
        """Return the command line that runs a main class out of the jars."""
        flags = ("-Djava.awt.headless=true", *jvm_flags)
        return [str(self.java), *flags, "-cp", f"{self.libs}/*", main_class, *arguments]

    def run(
        self, main_class: str, *arguments: str, stdin: str | None = None, timeout_s: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """Run one of Kafka's tools to its end, for example `kafka.tools.StorageTool`."""
        return subprocess.run(
            self.command(main_class, *arguments, jvm_flags=("-XX:TieredStopAtLevel=1",)),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )


def find_kafka(*, allow_maven: bool = True) -> KafkaInstall:
    """Return the Kafka to run; raises `KafkaNotFoundError` with the reason where there is none."""
    return _find(f"kafka-{VERSION}", JARS, allow_maven=allow_maven)


def find_kafka_programs() -> KafkaInstall:
    """Return Connect, MirrorMaker and Kafka Streams; raises `KafkaNotFoundError`."""
    return _find(f"kafka-programs-{VERSION}", PROGRAMS, allow_maven=True)


def _find(name: str, jars: tuple[str, ...], *, allow_maven: bool) -> KafkaInstall:
    java, java_version = _find_java()
    libs = _find_libs(name, jars, allow_maven=allow_maven)
    return KafkaInstall(libs, java, _version_of(libs), java_version)


def _find_java() -> tuple[Path, str]:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None)
    if found is None:
        raise KafkaNotFoundError("no Java was found (JAVA_HOME, or java on the path)")
    answer = subprocess.run([found, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "((\d+)[^"]*)"', answer.stderr)
    if match is None or int(match[2]) < 17:
        raise KafkaNotFoundError(f"{found} is not Java 17 or newer")
    return Path(found), match[1]


def _find_libs(name: str, jars: tuple[str, ...], *, allow_maven: bool) -> Path:
    home = os.environ.get("KAFKA_HOME")
    if home:
        libs = Path(home) / "libs"
        if not any(libs.glob("kafka_*.jar")):
            raise KafkaNotFoundError(f"KAFKA_HOME has no libs/kafka_*.jar: {home}")
        return libs
    try:
        return copied_jars(cached(name) / "libs", jars, allow_maven=allow_maven)
    except JarsMissingError as error:
        raise KafkaNotFoundError(f"KAFKA_HOME is not set, and {error}") from error


def _version_of(libs: Path) -> str:
    for jar in libs.glob("kafka-clients-*.jar"):
        match = re.fullmatch(r"kafka-clients-(\d[\w.]*)\.jar", jar.name)
        if match:
            return match[1]
    return "unknown"


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def new_cluster_id() -> str:
    """Return a random cluster id; one that begins with a dash would be read as an option."""
    return "m" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]


class KafkaNode:
    """One combined broker and controller of Apache Kafka in a directory of its own.

    The directory is formatted at the first start, and a later `start` serves what is in it, on the
    same ports.
    `settings` go over `SINGLE_NODE_SETTINGS`. Use it as a context manager, or call `stop`.
    """

    def __init__(
        self,
        install: KafkaInstall,
        directory: Path,
        *,
        settings: Mapping[str, str] | None = None,
        jvm_flags: tuple[str, ...] = JVM_FLAGS,
        cluster_id: str | None = None,
    ) -> None:
        self.install = install
        self.directory = directory
        self._cluster_id = cluster_id
        self.log_dir = directory / "data"
        self.output = directory / "kafka.out"
        self._settings = dict(settings or {})
        self._jvm_flags = jvm_flags
        self._process: subprocess.Popen[bytes] | None = None
        self.host = "127.0.0.1"
        self.port = 0
        self._controller_port = 0
        self.spawned_at = 0.0

    @property
    def bootstrap(self) -> str:
        """`host:port` of the listener for clients."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """Process id of the running JVM."""
        if self._process is None:
            raise KafkaFailedError("Kafka is not running")
        return self._process.pid

    def __enter__(self) -> KafkaNode:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> KafkaNode:
        """Format if need be, start, and return once ApiVersions is answered."""
        self.prepare()
        self.spawn()
        self.wait_until_ready()
        return self

    def prepare(self) -> None:
        """Write server.properties and format a directory that has no data; pick ports only once."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if not self.port:
            self.port, self._controller_port = free_port(), free_port()
        client_listener = f"PLAINTEXT://{self.host}:{self.port}"
        settings = {
            **SINGLE_NODE_SETTINGS,
            "log.dirs": str(self.log_dir),
            "listeners": f"{client_listener},CONTROLLER://{self.host}:{self._controller_port}",
            "advertised.listeners": client_listener,
            "controller.quorum.voters": f"{NODE_ID}@{self.host}:{self._controller_port}",
            **self._settings,
        }
        lines = "".join(f"{name}={value}\n" for name, value in settings.items())
        self._properties.write_text(lines, encoding="utf-8")
        if not (self.log_dir / "meta.properties").exists():
            self._format()

    @property
    def _properties(self) -> Path:
        return self.directory / "server.properties"

    def _format(self) -> None:
        cluster_id = self._cluster_id or new_cluster_id()
        arguments = ("format", "--cluster-id", cluster_id, "--config", str(self._properties))
        answer = self.install.run("kafka.tools.StorageTool", *arguments)
        if answer.returncode != 0:
            raise KafkaFailedError(f"formatting failed: {answer.stdout}{answer.stderr}")

    def spawn(self) -> None:
        """Start the JVM and return at once; `prepare` must have run.

        `spawned_at` is then the reading of `time.perf_counter` just before.
        """
        command = self.install.command(
            "kafka.Kafka", str(self._properties), jvm_flags=self._jvm_flags
        )
        with self.output.open("ab") as output:
            self.spawned_at = time.perf_counter()
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
            )

    def wait_until_ready(self) -> None:
        """Return once the node answers ApiVersions; `KafkaFailedError` after five minutes."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while not _answers_api_versions(self.host, self.port):
            self.check_alive()
            if time.monotonic() > deadline:
                raise KafkaFailedError(f"Kafka did not answer in time: {self._output_tail()}")
            time.sleep(0.02)

    def check_alive(self) -> None:
        """Raise `KafkaFailedError` with the end of its output when the JVM is gone."""
        if self._process is None or self._process.poll() is not None:
            raise KafkaFailedError(f"Kafka ended: {self._output_tail()}")

    def stop(self, *, timeout_s: float = 60.0) -> None:
        """Stop with SIGTERM, which is Kafka's controlled shutdown, or SIGKILL after a while."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill(self) -> None:
        """Stop with SIGKILL, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _output_tail(self) -> str:
        text = self.output.read_text(encoding="utf-8", errors="replace")
        return text[-2000:]


def _answers_api_versions(host: str, port: int) -> bool:
    # ApiVersions (18) version 0, correlation id 1, client id null; any answer will do.
    request = struct.pack(">ihhih", 10, 18, 0, 1, -1)
    try:
        with socket.create_connection((host, port), timeout=2.0) as connection:
            connection.sendall(request)
            return len(connection.recv(8)) > 0
    except OSError:
        return False
