"""Apache Iceberg's own REST catalogue (its test fixture), as a process of a test.

Its jars come from ``~/.cache/millstream``, else from Maven, which fills the cache once.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final

from bench.peers.maven import JarsMissingError, cached, copied_jars
from tests.object_store import BUCKET, S3Server
from tests.waiting import wait_until

_ICEBERG: Final = "1.10.0"
_JARS: Final = cached(f"iceberg-rest-s3-{_ICEBERG}")
_DEPENDENCIES: Final = (
    f"org.apache.iceberg:iceberg-open-api:{_ICEBERG}:test-fixtures",
    f"org.apache.iceberg:iceberg-core:{_ICEBERG}",
    f"org.apache.iceberg:iceberg-core:{_ICEBERG}:tests",
    f"org.apache.iceberg:iceberg-aws:{_ICEBERG}",
    f"org.apache.iceberg:iceberg-aws-bundle:{_ICEBERG}",
    "org.apache.hadoop:hadoop-client-api:3.4.1",
    "org.apache.hadoop:hadoop-client-runtime:3.4.1",
    "org.eclipse.jetty:jetty-servlet:11.0.25",
    "org.eclipse.jetty:jetty-server:11.0.25",
    "org.xerial:sqlite-jdbc:3.50.3.0",
    "org.slf4j:slf4j-simple:2.0.17",
)
_MAIN: Final = "org.apache.iceberg.rest.RESTCatalogServer"
_PORT: Final = re.compile(r"Started ServerConnector.*:(\d+)}")


class RestCatalogMissingError(Exception):
    """The jars are not there, and cannot be had."""


class RestCatalogServer:
    """``with RestCatalogServer(directory) as server``: tables lie in ``directory``, or in a store.

    ``server.options`` are the storage options that name it.
    """

    def __init__(self, directory: Path, store: S3Server | None = None) -> None:
        self._directory = directory
        self._store = store

    def __enter__(self) -> RestCatalogServer:
        java = shutil.which("java")
        if java is None:
            raise RestCatalogMissingError("no java")
        try:
            jars = copied_jars(_JARS, _DEPENDENCIES)
        except JarsMissingError as error:
            raise RestCatalogMissingError(str(error)) from error
        environment = {
            **os.environ,
            "CATALOG_REST_PORT": "0",
            "CATALOG_WAREHOUSE": f"file://{self._directory}",
            "CATALOG_URI": f"jdbc:sqlite:file:{self._directory}/backend.db",
        }
        if self._store is not None:
            environment |= {
                "AWS_REGION": "us-east-1",
                "CATALOG_WAREHOUSE": f"s3://{BUCKET}/warehouse",
                "CATALOG_IO__IMPL": "org.apache.iceberg.aws.s3.S3FileIO",
                "CATALOG_S3_ENDPOINT": self._store.endpoint,
                "CATALOG_S3_PATH__STYLE__ACCESS": "true",
                "CATALOG_S3_ACCESS__KEY__ID": "somebody",
                "CATALOG_S3_SECRET__ACCESS__KEY": "secret",
            }
        flags = ["-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        self._directory.mkdir(parents=True, exist_ok=True)
        self._log = (self._directory / "server.log").open("w+")
        self._process = subprocess.Popen(
            [java, *flags, "-cp", f"{jars}/*", _MAIN],
            env=environment,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        wait_until(lambda: self._port() is not None, "the REST catalogue listens")
        self.port = int(self._port() or 0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait(30)
        self._log.close()

    @property
    def options(self) -> dict[str, str]:
        named = {"type": "rest", "uri": f"http://127.0.0.1:{self.port}"}
        if self._store is None:
            return named
        return named | {
            "s3.endpoint": self._store.endpoint,
            "s3.access-key-id": "somebody",
            "s3.secret-access-key": "secret",
            "s3.region": "us-east-1",
        }

    def _port(self) -> str | None:
        assert self._process.poll() is None, self._text()
        found = _PORT.search(self._text())
        return None if found is None else found[1]

    def _text(self) -> str:
        return (self._directory / "server.log").read_text()
