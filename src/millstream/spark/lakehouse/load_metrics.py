"""The progress of loads as metrics for Prometheus, served by the load itself.

==========================================  =========  ===================================
name (labels load, table)                   type       what
==========================================  =========  ===================================
millstream_load_rows_total                  counter    rows in the table
millstream_load_dead_letters_total          counter    records that could not be read
millstream_load_read_bytes_total            counter    bytes of records that were read
millstream_load_written_bytes_total         counter    bytes of the table's new files
millstream_load_files_total                 counter    the table's new files
millstream_load_batches_total               counter    commits
millstream_load_restarts_total              counter    new attempts after temporary errors
millstream_load_batch_seconds               histogram  from the plan of a batch to its commit
millstream_load_offsets_behind              gauge      offsets that the table lacks
millstream_load_lag_seconds                 gauge      age of the newest row, if it lacks any
millstream_load_seconds_to_go               gauge      until it lacks none; NaN: it does not gain
millstream_load_last_commit_timestamp_seconds  gauge   when a batch was last committed
millstream_load_running                     gauge      1 until the load ends
==========================================  =========  ===================================

Gauges are those of the last batch: alert on the time of the last commit, too.
"""

from __future__ import annotations

import math
import time
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from millstream.model.errors import ConfigError
from millstream.spark.lakehouse.load_observers import LoadObserver
from millstream.spark.lakehouse.pace import Pace

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from millstream.spark.lakehouse.batches import BatchReport

_LABELS: Final = ("load", "table")
_BUCKETS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class MetricsServer:
    """Serves the metrics of the loads of this process at ``/metrics``.

    ConfigError where it cannot listen, or where the extra ``[metrics]`` is not installed. With port
    0 the system picks one: see ``port``.
    """

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        try:
            from prometheus_client import CollectorRegistry, start_http_server
            from prometheus_client.process_collector import ProcessCollector
        except ImportError:
            raise ConfigError(
                "metrics need prometheus-client: pip install 'millstream[metrics]'"
            ) from None
        self.registry: CollectorRegistry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._families = _Families(self.registry)
        try:
            self._server, self._thread = start_http_server(port, host, self.registry)
        except OSError as error:
            raise ConfigError(
                f"metrics: cannot listen on {host}:{port}: {error.strerror or error}"
            ) from error
        self.port: int = self._server.server_port

    def load(self, name: str, table: str) -> LoadMetrics:
        """Return the metrics of one load."""
        return LoadMetrics(self._families, name, table)

    def close(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class _Families:
    def __init__(self, registry: CollectorRegistry) -> None:
        from prometheus_client import Counter, Gauge, Histogram

        def counter(name: str, what: str) -> Counter:
            return Counter(f"millstream_load_{name}", what, _LABELS, registry=registry)

        def gauge(name: str, what: str) -> Gauge:
            return Gauge(f"millstream_load_{name}", what, _LABELS, registry=registry)

        self.rows = counter("rows", "Rows in the table.")
        self.dead_letters = counter("dead_letters", "Records that could not be read.")
        self.read_bytes = counter("read_bytes", "Bytes of records that were read.")
        self.written_bytes = counter("written_bytes", "Bytes of the table's new files.")
        self.files = counter("files", "The table's new files.")
        self.batches = counter("batches", "Commits.")
        self.restarts = counter("restarts", "New attempts after temporary errors.")
        self.batch_seconds = Histogram(
            "millstream_load_batch_seconds",
            "From the plan of a batch to its commit.",
            _LABELS,
            registry=registry,
            buckets=_BUCKETS,
        )
        self.behind = gauge("offsets_behind", "Offsets that the table lacks.")
        self.lag = gauge("lag_seconds", "Age of the newest row, if the table lacks any.")
        self.to_go = gauge("seconds_to_go", "Until the table lacks nothing; NaN: it does not gain.")
        self.committed = gauge("last_commit_timestamp_seconds", "When a batch was last committed.")
        self.running = gauge("running", "1 until the load ends.")


class LoadMetrics(LoadObserver):
    """Counts what one load does."""

    def __init__(self, families: _Families, name: str, table: str) -> None:
        self._labels = (name, table)
        self._pace = Pace()
        self._families = families
        for each in (families.rows, families.dead_letters, families.batches, families.restarts):
            each.labels(*self._labels)  # shown as 0 before the first batch

    def started(self) -> None:
        """Show that the load runs."""
        self._families.running.labels(*self._labels).set(1)

    def batch(self, report: BatchReport) -> None:
        """Count a batch."""
        families, labels = self._families, self._labels
        self._pace.add(report, time.monotonic())
        families.rows.labels(*labels).inc(report.rows)
        families.dead_letters.labels(*labels).inc(report.dead_letters)
        families.read_bytes.labels(*labels).inc(report.read_bytes)
        families.written_bytes.labels(*labels).inc(report.written_bytes)
        families.files.labels(*labels).inc(report.files)
        families.batches.labels(*labels).inc()
        families.batch_seconds.labels(*labels).observe(report.seconds)
        families.behind.labels(*labels).set(report.behind)
        families.committed.labels(*labels).set(time.time())
        families.lag.labels(*labels).set(_or_nan(report.lag_seconds))
        families.to_go.labels(*labels).set(_or_nan(self._pace.seconds_to_go))

    def restarted(self, error: Exception) -> None:
        """Count a new attempt."""
        self._families.restarts.labels(*self._labels).inc()

    def ended(self, error: BaseException | None, *, stopped: bool) -> None:
        """Show that the load has ended."""
        self._families.running.labels(*self._labels).set(0)


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
