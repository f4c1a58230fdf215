"""The open-source server of Unity Catalog, as a process of a test.

Its jars come from ``~/.cache/millstream``, else from Maven, which fills the cache once.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from bench.peers.maven import JarsMissingError, cached, copied_jars
from tests.object_store import BUCKET, S3Server
from tests.waiting import wait_until

_VERSION: Final = "0.6.0"
_JARS: Final = cached(f"unitycatalog-{_VERSION}")
_MAIN: Final = "io.unitycatalog.server.UnityCatalogServer"
_SERVER: Final = f"io.unitycatalog:unitycatalog-server:{_VERSION}"
_LOG4J: Final = """
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
"""


class UnityMissingError(Exception):
    """The jars are not there, and cannot be had."""


class UnityServer:
    """``with UnityServer(directory) as server``: ``server.uri`` names it, with the catalogue
    ``prod``. It lends keys for the bucket of ``store``. With ``secured=True`` it asks for a token:
    ``server.token``.
    """

    def __init__(
        self, directory: Path, store: S3Server | None = None, *, secured: bool = False
    ) -> None:
        self._directory = directory
        self._store = store
        self._secured = secured

    def __enter__(self) -> UnityServer:
        java = shutil.which("java")
        if java is None:
            raise UnityMissingError("needs Java for the server of Unity Catalog")
        try:
            jars = copied_jars(_JARS, (_SERVER,))
        except JarsMissingError as error:
            raise UnityMissingError(str(error)) from error
        (self._directory / "etc" / "conf").mkdir(parents=True)
        for name, text in {
            "server.properties": self._properties(),
            "server.log4j2.properties": _LOG4J,
            "hibernate.properties": (
                "hibernate.connection.driver_class=org.h2.Driver\n"
                "hibernate.connection.url=jdbc:h2:mem:unity;DB_CLOSE_DELAY=-1\n"
                "hibernate.hbm2ddl.auto=update\n"
            ),
        }.items():
            (self._directory / "etc" / "conf" / name).write_text(text)
        self.port = _two_ports()
        flags = ["-Xmx512M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        self._log = (self._directory / "server.log").open("w+")
        self._process = subprocess.Popen(
            [java, *flags, "-cp", f"{jars}/*", _MAIN, "-p", str(self.port)],
            cwd=self._directory,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        wait_until(self._answers, "Unity Catalog answers", at_most_s=120)
        self.ask("POST", "/catalogs", {"name": "prod"})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait(30)
        self._log.close()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        return (self._directory / "etc" / "conf" / "token.txt").read_text().strip()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"{self.uri}/api/2.1/unity-catalog{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method=method,
        )
        if self._secured:
            request.add_header("Authorization", f"Bearer {self.token}")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or b"{}")

    def _properties(self) -> str:
        lines = [
            "server.env=dev",
            f"server.authorization={'enable' if self._secured else 'disable'}",
            "server.cookie-timeout=P5D",
            f"storage-root.tables=file://{self._directory}/managed",
        ]
        if self._secured:
            lines += ["server.allowed-issuers=internal", "server.audiences=*"]
        if self._store is not None:
            lines += [
                f"s3.bucketPath.0=s3://{BUCKET}",
                "s3.region.0=us-east-1",
                "s3.accessKey.0=somebody",
                "s3.secretKey.0=secret",
                "s3.sessionToken.0=lent",
            ]
        return "".join(f"{each}\n" for each in lines)

    def _answers(self) -> bool:
        assert self._process.poll() is None, (self._directory / "server.log").read_text()
        try:
            self.ask("GET", "/catalogs")
        except (OSError, urllib.error.URLError):
            return False
        return True


def _two_ports() -> int:
    """Return a free port whose neighbour is free: the server listens on both."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            try:
                second.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port
