"""All families of one scrape of a broker, in the order of the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream import __version__
from millstream.model.deferred import Deferred
from millstream.model.errors import StorageError
from millstream.runtime.logs.log_cleaner import LogCleaner
from millstream.runtime.logs.log_maintenance import LogMaintenance
from millstream.runtime.services import Services
from millstream.server.metrics import catalogue
from millstream.server.metrics.families import Family, gauge
from millstream.server.metrics.health import Health
from millstream.server.metrics.histogram import Histogram
from millstream.server.metrics.lanes import MeasuredOffload
from millstream.server.metrics.loop_watch import LoopWatch
from millstream.server.metrics.of_clients import of_clients
from millstream.server.metrics.of_cluster import of_cluster
from millstream.server.metrics.of_groups import GroupMetrics
from millstream.server.metrics.of_logs import LogMetrics, Part
from millstream.server.metrics.request_meter import RequestMeter
from millstream.storage.files import Space

if TYPE_CHECKING:
    from millstream.net.listener import Listener
    from millstream.net.receive_budget import ReceiveBudget
    from millstream.runtime.authentication.listener_authentication import AuthenticationCounts
    from millstream.server.broker_tls import BrokerTls


@dataclass(frozen=True, slots=True)
class Edges:
    """The parts of a broker that its services do not have."""

    listeners: Sequence[Listener]
    budget: ReceiveBudget
    tls: BrokerTls | None
    authentications: AuthenticationCounts | None
    cleaner: LogCleaner
    maintenance: LogMaintenance
    meter: Callable[[], RequestMeter | None]


class Collector:
    """Reads a broker for a scrape. Until it has ``begun`` there is little to tell."""

    def __init__(self, health: Health, lanes: MeasuredOffload, loop_watch: LoopWatch) -> None:
        self._health = health
        self._lanes = lanes
        self._loop_watch = loop_watch
        self._services: Services | None = None
        self._edges: Edges | None = None
        self._logs: LogMetrics | None = None
        self._groups: GroupMetrics | None = None
        self._spaces: dict[str, Space] = {}
        self._is_measuring = False
        self._sending = {"records": Histogram(), "messages": Histogram()}
        self.started_s = 0.0

    def begin(self, services: Services, edges: Edges) -> None:
        """Tell of everything from now on: counters begin here."""
        self._services, self._edges = services, edges
        self.started_s = services.clock.now_ms() / 1_000
        self._logs = LogMetrics(services.partitions, services.metadata)
        self._groups = GroupMetrics(services)
        for _ in self._logs.collect(by_partition=False):
            pass
        self._measure_space(services)

    def sent(self, has_records: bool, seconds: float) -> None:
        """Count answers that a socket did not take at once and that are sent now."""
        self._sending["records" if has_records else "messages"].add(seconds)

    def collect(self) -> Part:
        """Yield every family, and None where others may be served."""
        yield gauge(catalogue.READY, not self._health.not_ready())
        yield from self._of_loop()
        yield from self._lanes.collect()
        services, edges = self._services, self._edges
        if services is None or edges is None or self._logs is None or self._groups is None:
            return
        config = services.config.current
        info = Family(catalogue.INFO)
        info.add(1, __version__, str(services.node.broker_id), services.metadata.cluster_id)
        yield info
        yield gauge(catalogue.START_TIME, self.started_s)
        yield None
        meter = edges.meter()
        if meter is not None:
            for totals in (meter.bytes_out, meter.replication_bytes_out):
                for name in [each for each in totals if services.metadata.topic(each) is None]:
                    del totals[name]
            yield from _of_requests(meter)
        sending = Family(catalogue.REQUEST_SENDING)
        for content, histogram in self._sending.items():
            sending.add_histogram(histogram, content)
        yield sending
        yield None
        yield from self._logs.collect(by_partition=config.metrics_partitions_enable)
        yield from of_cluster(services)
        yield None
        yield from self._groups.of_groups(with_lag=config.metrics_groups_enable)
        yield from self._groups.of_transactions()
        yield None
        yield from self._of_directories(services)
        yield from _of_upkeep(edges)
        yield from _of_connections(edges)
        yield gauge(catalogue.FETCH_SESSIONS, len(services.fetch_sessions))
        yield from _of_quotas(services)
        if services.telemetry is not None:
            yield from of_clients(services.telemetry)

    def _of_loop(self) -> Part:
        lag = Family(catalogue.LOOP_LAG)
        lag.add_histogram(self._loop_watch.lag)
        yield lag
        yield gauge(catalogue.LOOP_LONGEST, self._loop_watch.longest_step_s)

    def _of_directories(self, services: Services) -> Part:
        """Yield what is known of log directories. How full a volume is was asked at the scrape
        before, off the loop: a disk that hangs holds nobody up.
        """
        online, manager = Family(catalogue.DIRECTORY_ONLINE), services.log_manager
        for directory in manager.directories:
            online.add(1, directory)
        for directory in manager.offline_directories:
            online.add(0, directory)
        sizes, free = Family(catalogue.DIRECTORY_SIZE), Family(catalogue.DIRECTORY_FREE)
        for directory in manager.directories:
            space = self._spaces.get(directory)
            if space is not None:
                sizes.add(space.total_bytes, directory)
                free.add(space.usable_bytes, directory)
        yield from (online, sizes, free)
        self._measure_space(services)

    def _measure_space(self, services: Services) -> None:
        if self._is_measuring:
            return
        self._is_measuring = True
        manager, directories = services.log_manager, list(services.log_manager.directories)

        def measure() -> dict[str, Space]:
            found = {}
            for directory in directories:
                try:
                    found[directory] = manager.space(directory)
                except StorageError:  # whoever writes there finds out
                    continue
            return found

        def finish(outcome: Deferred[dict[str, Space]]) -> None:
            self._is_measuring = False
            self._spaces = outcome.result()

        services.offload.run("metrics", measure).on_done(finish)


def _of_requests(meter: RequestMeter) -> Part:
    counts, errors = Family(catalogue.REQUESTS), Family(catalogue.REQUEST_ERRORS)
    handler, waiting = Family(catalogue.REQUEST_HANDLER), Family(catalogue.REQUEST_WAITING)
    throttle = Family(catalogue.REQUEST_THROTTLE)
    for api in meter:
        counts.add(api.count, api.name)
        for name, count in sorted(api.errors.items()):
            errors.add(count, api.name, name)
        handler.add_histogram(api.handler, api.name)
        if api.waiting.count:
            waiting.add_histogram(api.waiting, api.name)
        if api.throttle_s:
            throttle.add(api.throttle_s, api.name)
    yield from (counts, errors, handler, waiting, throttle)
    yield None
    for metric, totals in (
        (catalogue.TOPIC_BYTES_OUT, meter.bytes_out),
        (catalogue.TOPIC_REPLICATION_OUT, meter.replication_bytes_out),
    ):
        family = Family(metric)
        for name, total in totals.items():
            family.add(total, name)
        yield family


def _of_upkeep(edges: Edges) -> Part:
    cleaner = edges.cleaner
    yield gauge(catalogue.RETENTION_SEGMENTS, edges.maintenance.deleted_segments)
    yield gauge(catalogue.CLEANER_RUNNING, len(cleaner.busy))
    yield gauge(catalogue.CLEANER_RUNS, cleaner.runs)
    yield gauge(catalogue.CLEANER_SECONDS, cleaner.run_ms / 1_000)
    yield gauge(catalogue.UNCLEANABLE, len(cleaner.uncleanable))


def _of_connections(edges: Edges) -> Part:
    connections = Family(catalogue.CONNECTIONS)
    accepted = Family(catalogue.CONNECTIONS_ACCEPTED)
    expiry = Family(catalogue.CERTIFICATE_EXPIRY)
    for listener in edges.listeners:
        connections.add(listener.connection_count, listener.name)
        accepted.add(listener.accepted, listener.name)
        tls = None if edges.tls is None else edges.tls.of(listener.name)
        if tls is not None:
            expiry.add(tls.not_after_s, listener.name)
    yield from (connections, accepted, expiry)
    counts = edges.authentications
    if counts is not None:
        family = Family(catalogue.AUTHENTICATIONS)
        family.add(counts.successful, "success")
        family.add(counts.failed, "failure")
        family.add(counts.failed_again, "reauthentication_failure")
        family.add(counts.expired_sessions, "expired")
        yield family
    yield gauge(catalogue.REQUEST_MEMORY, edges.budget.used_bytes)


def _of_quotas(services: Services) -> Part:
    family = Family(catalogue.QUOTA_CLIENTS)
    if services.quotas is not None:
        for kind, quotas in services.quotas.quotas.by_type.items():
            family.add(quotas.sensor_count, kind.value)
    yield family
