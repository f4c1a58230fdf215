"""A Spark standalone cluster of a test: a master and workers, each a process of its own.

``with SparkCluster(directory) as cluster``: ``cluster.master`` is its URL. Everything comes from
PySpark's own jars. A worker has a work, a temporary and a home directory of its own, and where the
system allows it a mount namespace of its own, in which the directories ``hidden`` are empty: what
the driver has there does not exist for the worker, and the other way round.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Final

import psutil
import pyspark
from tests.waiting import wait_until

from millstream.spark.java import java_home

SPARK_HOME: Final = Path(pyspark.__file__).parent
_MASTER: Final = re.compile(r"Starting Spark master at (spark://\S+)")
DRIVER_S: Final = 400.0
_DAEMON: Final = "org.apache.spark.deploy"
_RAN: Final = re.compile(r"Finished task \S+ in stage")
_CHATTER: Final = re.compile(r"\S+ \S+ INFO ")
_HIDE: Final = 'for each in $HIDDEN; do mount -t tmpfs none "$each" || exit 1; done; exec "$@"'


@cache
def can_hide() -> bool:
    """Tell whether a process of a test may have mounts of its own."""
    if shutil.which("unshare") is None:
        return False
    done = subprocess.run(
        [*_unshared(), "sh", "-c", "mount -t tmpfs none /mnt"], capture_output=True, check=False
    )
    return done.returncode == 0


def _unshared() -> list[str]:
    rights = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", "--mount", "--propagation", "private", *rights]


class Daemon:
    """A master or a worker, with its log."""

    def __init__(self, directory: Path, hidden: Sequence[Path] = ()) -> None:
        self.directory = directory
        self._hidden = [str(each) for each in hidden]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, main: str, *arguments: str) -> None:
        for name in ("work", "tmp", "home"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        command = ["bash", str(SPARK_HOME / "bin" / "spark-class"), f"{_DAEMON}.{main}", *arguments]
        if self._hidden:
            command = [*_unshared(), "sh", "-c", _HIDE, "hide", *command]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                env=environment(self.directory) | {"HIDDEN": " ".join(self._hidden)},
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        assert self._process is not None
        text = (self.directory / "log").read_text()
        assert self._process.poll() is None, text[-3000:]
        return text

    def kill(self) -> None:
        """Kill it and everything that it has started, as a machine that loses its power does."""
        assert self._process is not None
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self._process.pid)
            for each in (process, *process.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
        self._process.wait(30)


class SparkCluster:
    """A master and some workers, of one core each."""

    def __init__(self, directory: Path, *, workers: int = 2, hidden: Sequence[Path] = ()) -> None:
        self._master = Daemon(directory / "master")
        self.workers = [Daemon(directory / f"worker-{n}", hidden) for n in range(workers)]
        self.directory = directory

    def __enter__(self) -> SparkCluster:
        local = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        try:
            self._master.start("master.Master", *local)
            wait_until(lambda: _MASTER.search(self._master.log) is not None, "Spark's master")
            for worker in self.workers:
                self.start(worker)
            for worker in self.workers:
                wait_until(lambda it=worker: "Successfully registered" in it.log, "a worker")  # type: ignore[misc]
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        for each in (*self.workers, self._master):
            if each._process is not None:
                each.kill()

    @property
    def master(self) -> str:
        found = _MASTER.search(self._master.log)
        assert found is not None
        return found[1]

    def start(self, worker: Daemon) -> None:
        """Start a worker, for the first time or after it was killed."""
        places = ("--work-dir", str(worker.directory / "work"), "--cores", "1", "--memory", "1g")
        local = ("--host", "127.0.0.1", "--webui-port", "0")
        worker.start("worker.Worker", *local, *places, self.master)

    def tasks(self, worker: Daemon) -> int:
        """Return how many tasks the executors of a worker have finished."""
        logs = (worker.directory / "work").glob("app-*/*/stderr")
        return sum(len(_RAN.findall(each.read_text())) for each in logs)

    def run(
        self,
        *words: str,
        python: Sequence[str] = (),
        settings: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a driver to its end: a command of `millstream`, or what ``python`` says."""
        return self._to_its_end(
            self.driver(*words, python=python, settings=settings, variables=variables)
        )

    @staticmethod
    def _to_its_end(driver: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
        with driver as process:
            try:
                out, err = process.communicate(timeout=DRIVER_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise AssertionError(process.communicate()[1][-3000:]) from None
            finally:
                process.kill()
        told = "".join(line for line in err.splitlines(True) if not _CHATTER.match(line))
        return subprocess.CompletedProcess(process.args, process.returncode, out, told)

    def driver(
        self,
        *words: str,
        python: Sequence[str] = (),
        settings: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """Start a driver, whose directory is its own."""
        program = [sys.executable, *(python or ("-m", "millstream.cli.main")), *words]
        return self._start_driver(program, self.directory / "driver", settings, variables)

    def submit(
        self, job: Path, *, archive: Path, python: str, variables: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Give a job to `spark-submit`, in the job's directory, with an archive of packages."""
        program = [
            *("bash", str(SPARK_HOME / "bin" / "spark-submit"), "--master", self.master),
            *("--archives", f"{archive}#packages"),
            *("--conf", "spark.executorEnv.PYTHONPATH=packages", str(job)),
        ]
        own = {"PYTHONPATH": "packages", "PYSPARK_PYTHON": python, **variables}
        return self._to_its_end(self._start_driver(program, job.parent, {}, own))

    def _start_driver(
        self,
        program: Sequence[str],
        home: Path,
        settings: Mapping[str, str] | None,
        variables: Mapping[str, str] | None,
    ) -> subprocess.Popen[str]:
        for name in ("tmp", "home", "conf"):
            (home / name).mkdir(parents=True, exist_ok=True)
        chosen = {
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.ui.enabled": "false",
            **(settings or {}),
        }
        lines = "".join(f"{name} {text}\n" for name, text in chosen.items())
        (home / "conf" / "spark-defaults.conf").write_text(lines)
        return subprocess.Popen(
            program,
            env=environment(home) | {"SPARK_CONF_DIR": str(home / "conf"), **(variables or {})},
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@cache
def _java_home() -> str:
    return str(java_home(os.environ))


def environment(directory: Path) -> dict[str, str]:
    """Return the environment of a process whose files lie in a directory of its own."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK", "PYSPARK"))}
    return kept | {
        "HOME": str(directory / "home"),
        "TMPDIR": str(directory / "tmp"),
        "JAVA_HOME": _java_home(),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"-XX:+UseSerialGC -Djava.io.tmpdir={directory / 'tmp'}",
    }
