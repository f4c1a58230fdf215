"""The memory of a load on a Spark cluster, by role: the driver's Python and JVM, the executors'
JVMs, and the Python workers that run the tasks.

``python -m tests.system.lakehouse.load_memory --engine spark --gigabytes 1 2.5 5`` measures.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final

import psutil
from tests.spark_cluster import SparkCluster

DRIVER: Final = "driver"
DRIVER_JVM: Final = "driver's JVM"
EXECUTOR_JVM: Final = "executor's JVM"
WORKER: Final = "Python worker"
ROLES: Final = (DRIVER, DRIVER_JVM, EXECUTOR_JVM, WORKER)
HEAPS: Final = {"spark.driver.memory": "512m", "spark.executor.memory": "512m"}
"""What a JVM may use it uses, before it collects its garbage."""

_EXECUTOR: Final = "CoarseGrainedExecutorBackend"
_DAEMON: Final = "pyspark.daemon"
_LOOK_S: Final = 0.1
_PATIENCE_S: Final = 1_800.0


class MemoryWatch:
    """Looks at the processes of a cluster and of a driver until it is left; a context manager.

    ``peaks`` are the most bytes that one process of each role has held at any time.
    """

    def __init__(self, cluster: SparkCluster, driver: int) -> None:
        self.peaks = dict.fromkeys(ROLES, 0)
        self._cluster = cluster
        self._driver = driver
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(_LOOK_S):
            for role, pid in self._processes():
                self.peaks[role] = max(self.peaks[role], peak_bytes(pid))

    def _processes(self) -> Iterator[tuple[str, int]]:
        yield DRIVER, self._driver
        for each in _below(self._driver):
            if _is_java(each):
                yield DRIVER_JVM, each.pid
        for daemon in self._cluster.workers:
            for each in _below(daemon.pid):
                words = _words(each)
                if _EXECUTOR in words and _is_java(each):
                    yield EXECUTOR_JVM, each.pid
                elif _DAEMON in words:
                    yield WORKER, each.pid


def _below(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).children(recursive=True)
    return []


def _words(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def _is_java(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.name() == "java"
    return False


def peak_bytes(pid: int) -> int:
    """Return the kernel's own record of a process, which forgets no moment; 0 once it has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def measure_on_spark(cluster: SparkCluster, words: list[str]) -> tuple[int, dict[str, int]]:
    """Run a command that loads; return its rows, and the most bytes of one process of each role."""
    spark = ["--engine", "spark", "--master", cluster.master, "--driver-size", "0"]
    with cluster.driver(*words, *spark, settings=HEAPS) as driver:
        try:
            with MemoryWatch(cluster, driver.pid) as watch:
                out, said = driver.communicate(timeout=_PATIENCE_S)
        finally:
            driver.kill()
    assert driver.returncode == 0, said[-3000:]
    return json.loads(out)["rows"], watch.peaks
