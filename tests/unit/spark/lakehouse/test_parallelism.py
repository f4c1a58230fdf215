"""Tasks are as many as there are cores for."""

from __future__ import annotations

import threading

import pytest

from millstream.spark.lakehouse import parallelism
from millstream.spark.lakehouse.parallelism import run_in_threads, spark_parallelism


class Context:
    """What a driver tells of its session."""

    def __init__(self, settings: dict[str, str], cores: int) -> None:
        self._settings = settings
        self.defaultParallelism = cores

    def getConf(self) -> dict[str, str]:
        return self._settings


class Session:
    def __init__(self, cores: int, **settings: str) -> None:
        names = {f"spark.{name.replace('_', '.')}": text for name, text in settings.items()}
        self.sparkContext = Context(names, cores)


def test_spark_says_how_many_tasks_run() -> None:
    assert spark_parallelism(Session(7)) == 7  # type: ignore[arg-type]
    allowed = {"dynamicAllocation_enabled": "true", "dynamicAllocation_maxExecutors": "10"}
    assert spark_parallelism(Session(2, **allowed)) == 10  # type: ignore[arg-type]
    assert spark_parallelism(Session(2, **allowed, executor_cores="4")) == 40  # type: ignore[arg-type]
    assert spark_parallelism(Session(64, **allowed)) == 64  # type: ignore[arg-type]
    assert spark_parallelism(Session(2, dynamicAllocation_enabled="true")) == 2  # type: ignore[arg-type]


def test_tasks_of_one_machine_run_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallelism, "cores", lambda: 3)
    together = threading.Barrier(3, timeout=30)

    def work(number: int) -> int:
        together.wait()
        return number * number

    assert run_in_threads(work, range(6)) == [0, 1, 4, 9, 16, 25]

    def fails(number: int) -> int:
        raise ValueError(number)

    with pytest.raises(ValueError, match="0"):
        run_in_threads(fails, range(9))
