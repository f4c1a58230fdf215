"""How many tasks run at the same time: as many as there are cores for, here or in Spark."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from typing import TYPE_CHECKING, Final, TypeVar

from millstream.platform import usable_cores
from millstream.spark.lakehouse.kept_threads import on_kept_thread

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

_UNBOUNDED: Final = 2**31 - 1
_SPREAD_ROWS: Final = 1 << 20


def cores() -> int:
    """Return the cores that this process may use."""
    return len(usable_cores())


def run_in_threads(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Do ``work`` for each item, on as many threads as there are cores; return the results in the
    order of the items. The first error is raised; what has not begun then is left out.

    Decoding, compression and reading release the interpreter's lock.
    """
    if len(items) <= 1 or cores() == 1:
        return [work(each) for each in items]
    waiting = deque(range(len(items)))
    results: dict[int, R] = {}
    errors: dict[int, BaseException] = {}

    def run() -> None:
        while waiting:
            try:
                number = waiting.popleft()
            except IndexError:  # another thread has taken the last one
                return
            try:
                results[number] = work(items[number])
            except BaseException as error:
                errors[number] = error
                waiting.clear()

    threads = [on_kept_thread(run) for _ in range(min(cores(), len(items)))]
    try:
        wait(threads)
    finally:
        waiting.clear()
        wait(threads)
    if errors:
        raise errors[min(errors)]
    return [results[number] for number in range(len(items))]


def spark_parallelism(spark: SparkSession) -> int:
    """Return how many tasks a session can run: ``defaultParallelism`` as it is now, and with
    dynamic allocation what the most executors that are allowed have cores for.

    Through Spark Connect, which does not tell, into how many parts Spark divides rows by itself.
    """
    try:
        context = spark.sparkContext
    except Exception:  # Connect has errors of its own for what only the JVM has
        return _parts_of_a_range(spark)
    return max(context.defaultParallelism, _most_by_allocation(context.getConf()), 1)


def _most_by_allocation(conf: SparkConf) -> int:
    if conf.get("spark.dynamicAllocation.enabled", "false") != "true":
        return 0
    executors = int(conf.get("spark.dynamicAllocation.maxExecutors", str(_UNBOUNDED)) or 0)
    if executors >= _UNBOUNDED:
        return 0  # Spark asks for executors while tasks wait
    executor_cores = int(conf.get("spark.executor.cores", "1") or 1)
    return executors * executor_cores // int(conf.get("spark.task.cpus", "1") or 1)


def _parts_of_a_range(spark: SparkSession) -> int:
    from pyspark.sql.functions import spark_partition_id

    rows = spark.range(_SPREAD_ROWS)
    return max(rows.select(spark_partition_id().alias("part")).distinct().count(), 1)
