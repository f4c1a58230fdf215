"""Runs loads: with Spark if that pays, and with restarts after temporary errors.

A Spark session takes seconds to start, so it is created when the first batch needs it, which small
batches never do.
"""

from __future__ import annotations

import errno
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from millstream.client.errors import ConnectionFailedError, TimedOutError, is_retriable
from millstream.model.errors import ConfigError, MillstreamError
from millstream.schemas.schema import RegistryAwayError, RegistryRefusedError
from millstream.spark.lakehouse.batches import BatchReport
from millstream.spark.lakehouse.fan_out import FanOut, FanOutError
from millstream.spark.lakehouse.full_disk import of_a_full_disk
from millstream.spark.lakehouse.landing import Landed, Landing, UnreadableRecordError, land_on_spark
from millstream.spark.lakehouse.landing_ahead import inherit_nothing
from millstream.spark.lakehouse.ledger import RecreatedTopicError
from millstream.spark.lakehouse.load import Loader, local_runner
from millstream.spark.lakehouse.load_observers import LoadObserver, LoadObservers
from millstream.spark.lakehouse.parallelism import cores, spark_parallelism
from millstream.spark.lakehouse.reject_limit import TooManyRejectsError
from millstream.spark.lakehouse.session_catalog import offering
from millstream.spark.lakehouse.settings import LoadSettings
from millstream.spark.lakehouse.table import ConcurrentLoadError
from millstream.spark.lakehouse.topic_reader import ReplacedRecordsError
from millstream.spark.lakehouse.works import Work, land_works_locally, land_works_on_spark
from millstream.spark.locations.location import StoreError
from millstream.spark.options import load_source
from millstream.spark.plan import DataLossError
from millstream.spark.ranges import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

T = TypeVar("T")

FATAL: Final = (
    *(ConfigError, RegistryRefusedError, DataLossError, RecreatedTopicError),
    *(UnreadableRecordError, TooManyRejectsError, FanOutError),
)
"""Permanent errors, which are not retried."""

_PASSING: Final = (
    *(ConcurrentLoadError, ReplacedRecordsError, RegistryAwayError, StoreError),
    TimeoutError,
)
_UNREACHABLE: Final = (ConnectionFailedError, TimedOutError)

_OF_CATALOGUES: Final = frozenset(
    {"CommitStateUnknownException", "ServerError", "ServiceUnavailableError"}
)
"""Exceptions of pyiceberg, which is not imported for them."""

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 20.0
_OF_A_PATH: Final = frozenset(
    {
        errno.EACCES,
        errno.EISDIR,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EPERM,
        errno.EROFS,
    }
)
_ATTEMPTS_WITHOUT_PROGRESS: Final = 5


class SparkRunner:
    """Runs tasks in a Spark session, which is created when first needed."""

    def __init__(
        self,
        make_session: Callable[[], SparkSession],
        give_back: Callable[[SparkSession], None],
    ) -> None:
        self._make_session = make_session
        self._give_back = give_back
        self._session: SparkSession | None = None

    @property
    def session(self) -> SparkSession:
        """The session; a new one if the present one is dead."""
        if self._session is None:
            self._session = self._make_session()
        return self._session

    def started(self) -> SparkSession:
        """Return the session, for who asks later."""
        return self.session

    def __call__(self, tasks: Sequence[Sequence[OffsetRange]], landing: Landing) -> list[Landed]:
        """Run the tasks of one batch."""
        return land_on_spark(self.session, tasks, landing)

    def parallelism(self) -> int:
        """Return how many tasks can run at the same time."""
        return spark_parallelism(self.session)

    def inherit(self, run: Callable[[], T], /) -> Callable[[], T]:
        """Return what runs on another thread with the properties of Spark that this one has."""
        from pyspark import inheritable_thread_target

        if self._session is None:
            return run
        bound: Callable[[], T] = inheritable_thread_target(self._session)(run)
        return bound

    def run_works(self, works: Sequence[Work]) -> list[Landed | Exception]:
        """Run the tasks of several tables' batches."""
        return land_works_on_spark(self.session, works)

    def reset(self) -> None:
        """Drop a dead session; the next batch starts another."""
        if self._session is not None and not is_alive(self._session):
            self.close()

    def close(self) -> None:
        """Release the session."""
        session, self._session = self._session, None
        if session is not None:
            self._give_back(session)


def is_alive(session: SparkSession) -> bool:
    """Tell whether a session still runs jobs: most failures are of a task and not of the JVM."""
    try:
        session.range(1).count()
    except Exception:  # a dead JVM answers with whatever its gateway raises
        return False
    return True


def stop_session(session: SparkSession) -> None:
    """Stop a session that may be dead."""
    try:
        session.stop()
    except Exception as error:  # a dead JVM answers with whatever its gateway raises
        log.debug("the Spark session had already ended: %s", error)


def run_load(
    settings: LoadSettings,
    *,
    make_session: Callable[[], SparkSession] | None = None,
    give_back: Callable[[SparkSession], None] = stop_session,
    on_batch: Callable[[BatchReport], None] = lambda report: None,
    should_stop: Callable[[], bool] = lambda: False,
    observers: Sequence[LoadObserver] = (),
) -> None:
    """Load, and restart from the table's ledger after temporary errors.

    A table named with ``{topic}`` is a table for each topic, all loaded by one job. Without
    ``make_session`` everything runs in this process; ``give_back`` is called with a session that is
    not needed any more or is dead. Raises FATAL errors and FullDiskError at once, and the last
    error when there is no progress in five attempts; with ``follow`` and once the load has begun,
    not for errors that pass by themselves (:func:`may_pass`): brokers that are unreachable for an
    hour do not end it, and a broker that refuses the load does. ``observers`` are told how it goes.
    """
    runner = None if make_session is None else SparkRunner(make_session, give_back)
    watching = LoadObservers(observers)

    def told(report: BatchReport) -> None:
        on_batch(report)
        watching.batch(report)

    attempts = _Attempts(settings, told, should_stop)
    watching.started()
    try:
        with offering(None if runner is None else runner.started):
            _run(settings, runner, attempts, watching, should_stop)
    except BaseException as error:
        watching.ended(error, stopped=False)
        raise
    else:
        watching.ended(None, stopped=should_stop())
    finally:
        if runner is not None:
            runner.close()


def _run(
    settings: LoadSettings,
    runner: SparkRunner | None,
    attempts: _Attempts,
    watching: LoadObservers,
    should_stop: Callable[[], bool],
) -> None:
    while True:
        try:
            _loader(settings, runner, attempts.progressed, attempts.rejected).run(
                attempts.has_to_stop
            )
        except FATAL:
            raise
        except Exception as error:  # Spark, its gateway and the network each have their own
            pause = attempts.failed(error)
            log.warning("the load restarts in %.0f s: %s", pause, _first_line(error))
            watching.restarted(error)
            if runner is not None:
                runner.reset()
            _sleep(pause, should_stop)
        else:
            return


class _Attempts:
    """Counts the restarts of a load."""

    def __init__(
        self,
        settings: LoadSettings,
        on_batch: Callable[[BatchReport], None],
        should_stop: Callable[[], bool],
    ) -> None:
        self._follows = settings.follow
        self._table = settings.table
        self._on_batch = on_batch
        self._should_stop = should_stop
        self._failures = 0
        self._has_begun = False
        self.rejected: Counter[str] = Counter()
        """Dead letters that were committed since the start, of each topic where each has a table,
        else of "". Loads count them as they commit: a round may raise that has committed some.
        """

    def progressed(self, report: BatchReport) -> None:
        self._failures = 0
        self._on_batch(report)

    def has_to_stop(self) -> bool:
        """Tell a load whether to stop; called once its table exists."""
        self._has_begun = True
        return self._should_stop()

    def failed(self, error: Exception) -> float:
        """Return the seconds until the next attempt; raise the error after the last one."""
        no_room = of_a_full_disk(error, self._table)
        if no_room is not None:
            raise no_room from error
        self._failures += 1
        is_patient = self._follows and self._has_begun and may_pass(error)
        is_enough = not is_patient and self._failures >= _ATTEMPTS_WITHOUT_PROGRESS
        is_of_the_place = not self._has_begun and _is_of_a_path(error)
        if is_enough or is_of_the_place or self._should_stop() or _is_fatal(error):
            raise error
        doublings = min(self._failures - 1, 10)
        return min(_FIRST_PAUSE_S * float(2**doublings), _LONGEST_PAUSE_S)


def _loader(
    settings: LoadSettings,
    runner: SparkRunner | None,
    on_batch: Callable[[BatchReport], None],
    rejected: Counter[str],
) -> Loader | FanOut:
    parallelism = cores if runner is None else runner.parallelism
    inherit = inherit_nothing if runner is None else runner.inherit
    if settings.table.is_per_topic:
        works = land_works_locally if runner is None else runner.run_works
        return FanOut(
            settings,
            works,
            on_batch=on_batch,
            parallelism=parallelism,
            inherit=inherit,
            rejected=rejected,
        )
    if settings.query is None:
        run = runner or local_runner
        return Loader(
            settings,
            run,
            on_batch=on_batch,
            parallelism=parallelism,
            inherit=inherit,
            rejected=rejected,
        )
    if runner is None:
        raise ConfigError("a query needs Spark")
    from millstream.spark.lakehouse.transform import Transform

    transform = Transform(
        runner.session,
        load_source(settings.source),
        settings.query,
        parallelism=settings.parallelism or runner.parallelism(),
    )
    return Loader(settings, runner, on_batch=on_batch, transform=transform)


def may_pass(error: Exception) -> bool:
    """Tell whether an error passes by itself: brokers are away, a leader is elected, another load
    has committed. Of an error in a Spark worker there is nothing but its text.
    """
    if is_retriable(error) or isinstance(error, _PASSING):
        return True
    if _is_of_a_store(error):
        return True
    if isinstance(error, MillstreamError):
        return False
    return any(f"{kind.__name__}:" in str(error) for kind in (*_PASSING, *_UNREACHABLE))


def _is_of_a_path(error: Exception) -> bool:
    """Tell whether the system refuses the path of the table, which it will do again."""
    return isinstance(error, OSError) and error.errno in _OF_A_PATH


def _is_of_a_store(error: Exception) -> bool:
    """Tell whether an object store or a catalogue did not answer. Libraries raise OSError without
    a number of the system, or a number that says no more than that input or output failed.
    """
    if isinstance(error, OSError):
        is_plain = not isinstance(error, (FileNotFoundError, FileExistsError, PermissionError))
        return is_plain and error.errno in (None, errno.EIO)
    return type(error).__name__ in _OF_CATALOGUES


def _is_fatal(error: Exception) -> bool:
    """Tell whether a Spark worker failed with a permanent error, by its text, because Spark passes
    on nothing else. An invalid query is permanent too.
    """
    if any(kind.__name__ == "AnalysisException" for kind in type(error).__mro__):
        return True
    return any(f"{kind.__name__}:" in str(error) for kind in FATAL)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _sleep(seconds: float, should_stop: Callable[[], bool]) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not should_stop():
        time.sleep(0.1)
