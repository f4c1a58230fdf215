"""Apache Kafka 4.3 for tests: finds or fetches its jars, starts one KRaft node, runs its tools.

Where the jars come from, in this order: ``KAFKA_HOME`` (a Kafka directory, or any directory with
the jars in it or in ``libs/``), the cache directory (``MILLSTREAM_KAFKA_CACHE``, by default
``~/.cache/millstream/kafka-4.3.0``), and Maven, which fills the cache once.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

KAFKA_VERSION: Final = "4.3.0"
STARTUP_TIMEOUT_S: Final = 60.0

_POM: Final = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion>
<groupId>millstream</groupId><artifactId>kafka-jars</artifactId><version>1</version>
<dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
<version>{KAFKA_VERSION}</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId>
<version>{KAFKA_VERSION}</version></dependency>
</dependencies></project>
"""


class KafkaUnavailableError(Exception):
    """Apache Kafka cannot be had on this machine; the text says what is missing."""


def kafka_jars() -> Path:
    """Return the directory with Kafka's jars, fetching them through Maven if need be."""
    if shutil.which("java") is None:
        raise KafkaUnavailableError("no java on PATH")
    home = os.environ.get("KAFKA_HOME")
    if home:
        for directory in (Path(home) / "libs", Path(home)):
            if list(directory.glob("kafka-clients-*.jar")):
                return directory
        raise KafkaUnavailableError(f"KAFKA_HOME={home} holds no kafka-clients jar")
    cache = Path(
        os.environ.get("MILLSTREAM_KAFKA_CACHE")
        or Path.home() / ".cache" / "millstream" / f"kafka-{KAFKA_VERSION}"
    )
    jars = cache / "libs"
    if not (jars / f"kafka-clients-{KAFKA_VERSION}.jar").exists():
        _fetch_jars(cache, jars)
    return jars


def _fetch_jars(cache: Path, jars: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaUnavailableError("neither KAFKA_HOME nor Maven (mvn) is at hand")
    cache.mkdir(parents=True, exist_ok=True)
    (cache / "pom.xml").write_text(_POM)
    command = [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
    done = subprocess.run(command, cwd=cache, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stdout + done.stderr).strip().splitlines()[-3:]
        raise KafkaUnavailableError("Maven could not fetch Kafka: " + " ".join(last))


def jar_version(jars: Path) -> str:
    """Return the version that the name of the kafka-clients jar carries."""
    names = [path.stem.removeprefix("kafka-clients-") for path in jars.glob("kafka-clients-*.jar")]
    plain = [name for name in names if name[0].isdigit() and not name.endswith("-test")]
    return plain[0] if plain else "unknown"


@dataclass(frozen=True, slots=True)
class JavaTool:
    """Runs main classes out of Kafka's jars."""

    jars: Path
    heap_mb: int = 256

    def command(self, main_class: str, *arguments: str) -> list[str]:
        """Return the command line that runs ``main_class``."""
        java = shutil.which("java")
        assert java is not None
        return [
            java,
            f"-Xmx{self.heap_mb}M",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            f"{self.jars}/*",
            main_class,
            *arguments,
        ]

    def run(
        self, main_class: str, *arguments: str, stdin: str = "", timeout_s: float = 90
    ) -> subprocess.CompletedProcess[str]:
        """Run ``main_class`` to its end and return what it printed."""
        return subprocess.run(
            self.command(main_class, *arguments),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )


class KafkaNode:
    """One combined KRaft broker and controller in a directory of its own."""

    def __init__(self, jars: Path, directory: Path, settings: Mapping[str, str]) -> None:
        self.jars = jars
        self.directory = directory
        self.data_directory = directory / "kafka-logs"
        self.settings = dict(settings)
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """Where clients connect."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Format the directory at the first start, start the node, wait until it is active."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.port, controller_port = _free_ports(2)
        config = self.directory / "server.properties"
        lines = _properties(self.data_directory, self.port, controller_port) | self.settings
        config.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        if not (self.data_directory / "meta.properties").exists():
            done = JavaTool(self.jars).run(
                "kafka.tools.StorageTool",
                "format",
                "-t",
                "TWlsbHN0cmVhbS10ZXN0cw",
                "-c",
                str(config),
            )
            if done.returncode != 0:
                raise KafkaUnavailableError("StorageTool: " + (done.stdout + done.stderr)[-500:])
        command = JavaTool(self.jars, heap_mb=512).command("kafka.Kafka", str(config))
        with (self.directory / "kafka.out").open("ab") as output:
            self._process = subprocess.Popen(
                command, stdout=output, stderr=output, cwd=self.directory
            )
        self._wait_until_it_answers()

    def _wait_until_it_answers(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + STARTUP_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        output = (self.directory / "kafka.out").read_text(errors="replace")[-1000:]
        self.stop()
        raise KafkaUnavailableError("Kafka did not start: " + output)

    def stop(self) -> None:
        """Stop the node cleanly (SIGTERM), or hard after 30 s."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def __enter__(self) -> KafkaNode:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _properties(data_directory: Path, port: int, controller_port: int) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data_directory),
    }


def _free_ports(count: int) -> Sequence[int]:
    """Ask the system for ports. They are free again when this returns: Kafka cannot be told 0."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
