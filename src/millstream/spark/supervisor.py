"""Restarts a streaming query after a failure that may be temporary.

The planner of a Python source is a process of its own. When it is killed, Spark ends the query
without a cause; the checkpoint has everything needed to continue.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

_FATAL: Final = ("ConfigError:", "DataLossError:", "SupersededError:", "AnalysisException")
"""One of them: another driver runs the query, and the two would keep superseding each other."""

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0
_HEALTHY_S: Final = 60.0


def supervise(
    start: Callable[[], StreamingQuery],
    *,
    should_stop: Callable[[], bool] = lambda: False,
    attempts: int = 10,
) -> None:
    """Run the query that ``start`` starts until it ends or ``should_stop`` returns True.

    When it fails it is started again, after a pause that doubles; wrong options and lost data are
    raised at once, and any failure after ``attempts`` of them with less than a minute in between.
    """
    failures = 0
    while True:
        query = start()
        started = time.monotonic()
        try:
            while not query.awaitTermination(1):
                if should_stop():
                    query.stop()
                    return
        except Exception as error:  # Spark's errors have no base class worth naming
            if time.monotonic() - started > _HEALTHY_S:
                failures = 0
            failures += 1
            if failures >= attempts or any(name in str(error) for name in _FATAL):
                raise
            pause = min(_FIRST_PAUSE_S * 2 ** (failures - 1), _LONGEST_PAUSE_S)
            log.warning("query %s restarts in %.0f s: %s", query.name, pause, error)
            time.sleep(pause)
        else:
            return
