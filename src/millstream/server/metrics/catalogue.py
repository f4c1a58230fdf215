"""Every metric by name: its type, its labels, what it means, and what Apache Kafka calls it.

Names follow Prometheus's conventions: base units (seconds, bytes), ``_total`` for counters. The
table in docs/monitoring.md is made from here: ``python -m millstream.server.metrics.catalogue``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Kind(Enum):
    """The type of a metric, as the exposition format names it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class MetricName:
    """One metric. ``kafka`` is the MBean of Apache Kafka that says the same, or nearly; empty where
    there is none.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    kafka: str = ""


_METRICS: Final[list[tuple[str, MetricName]]] = []


def _define(
    section: str, kind: Kind, name: str, labels: str, help_: str, kafka: str = ""
) -> MetricName:
    metric = MetricName(f"millstream_{name}", kind, tuple(labels.split()), help_, kafka)
    _METRICS.append((section, metric))
    return metric


def _counter(section: str, name: str, labels: str, help_: str, kafka: str = "") -> MetricName:
    assert name.endswith("_total")
    return _define(section, Kind.COUNTER, name, labels, help_, kafka)


def _gauge(section: str, name: str, labels: str, help_: str, kafka: str = "") -> MetricName:
    return _define(section, Kind.GAUGE, name, labels, help_, kafka)


def _histogram(section: str, name: str, labels: str, help_: str, kafka: str = "") -> MetricName:
    return _define(section, Kind.HISTOGRAM, name, labels, help_, kafka)


INFO: Final = _gauge(
    "Broker",
    "info",
    "version broker_id cluster_id",
    "1, with the version, the broker's id and the cluster's id as labels.",
    "kafka.server:type=app-info",
)
START_TIME: Final = _gauge(
    "Broker",
    "start_time_seconds",
    "",
    "Time at which the broker began to start, in seconds since 1970.",
    "kafka.server:type=app-info,attribute=start-time-ms",
)
READY: Final = _gauge(
    "Broker",
    "ready",
    "",
    "1 while `/health/ready` answers 200.",
    "kafka.server:type=KafkaServer,name=BrokerState",
)

REQUESTS: Final = _counter(
    "Requests",
    "requests_total",
    "api",
    "Requests that were answered or started.",
    "kafka.network:type=RequestMetrics,name=RequestsPerSec",
)
REQUEST_ERRORS: Final = _counter(
    "Requests",
    "request_errors_total",
    "api error",
    "Errors in answers, one for each partition, group or resource with an error.",
    "kafka.network:type=RequestMetrics,name=ErrorsPerSec",
)
REQUEST_HANDLER: Final = _histogram(
    "Requests",
    "request_handler_seconds",
    "api",
    "Time in the handler until it answered or began to wait. For Produce and Fetch every 16th "
    "request is measured.",
    "kafka.network:type=RequestMetrics,name=LocalTimeMs",
)
REQUEST_WAITING: Final = _histogram(
    "Requests",
    "request_waiting_seconds",
    "api",
    "Waiting time of requests that were not answered at once: for a flush, for replicas, for "
    "records, for a rebalance.",
    "kafka.network:type=RequestMetrics,name=RemoteTimeMs",
)
REQUEST_SENDING: Final = _histogram(
    "Requests",
    "request_sending_seconds",
    "content",
    "Time until a client had received answers that its socket could not take at once: `records` "
    "(answers to Fetch) or `messages` (all others).",
    "kafka.network:type=RequestMetrics,name=ResponseSendTimeMs",
)
REQUEST_THROTTLE: Final = _counter(
    "Requests",
    "request_throttle_seconds_total",
    "api",
    "Throttle times in answers, because of quotas.",
    "kafka.network:type=RequestMetrics,name=ThrottleTimeMs",
)

TOPIC_BYTES_IN: Final = _counter(
    "Topics",
    "topic_bytes_in_total",
    "topic",
    "Bytes of batches appended to partitions that this broker leads.",
    "kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec",
)
TOPIC_RECORDS_IN: Final = _counter(
    "Topics",
    "topic_records_in_total",
    "topic",
    "Offsets assigned in partitions that this broker leads: records and transaction markers.",
    "kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec",
)
TOPIC_BYTES_OUT: Final = _counter(
    "Topics",
    "topic_bytes_out_total",
    "topic",
    "Bytes of batches sent to consumers.",
    "kafka.server:type=BrokerTopicMetrics,name=BytesOutPerSec",
)
TOPIC_REPLICATION_IN: Final = _counter(
    "Topics",
    "topic_replication_bytes_in_total",
    "topic",
    "Bytes of batches appended to follower replicas.",
    "kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesInPerSec",
)
TOPIC_REPLICATION_OUT: Final = _counter(
    "Topics",
    "topic_replication_bytes_out_total",
    "topic",
    "Bytes of batches sent to followers.",
    "kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesOutPerSec",
)
TOPIC_SIZE: Final = _gauge(
    "Topics",
    "topic_size_bytes",
    "topic",
    "Bytes of all segments of the topic's replicas on this broker.",
    "kafka.log:type=Log,name=Size",
)
TOPIC_SEGMENTS: Final = _gauge(
    "Topics",
    "topic_segments",
    "topic",
    "Segments of the topic's replicas on this broker.",
    "kafka.log:type=Log,name=NumLogSegments",
)
TOPIC_LSO_LAG: Final = _gauge(
    "Topics",
    "topic_last_stable_offset_lag",
    "topic",
    "The largest distance from the last stable offset to the high watermark, in partitions that "
    "this broker leads: records that an open transaction hides from readers with "
    "`read_committed`.",
    "kafka.cluster:type=Partition,name=LastStableOffsetLag",
)

PARTITION_START: Final = _gauge(
    "Partitions (`metrics.partitions.enable`)",
    "partition_log_start_offset",
    "topic partition",
    "The log start offset of this broker's replica.",
    "kafka.log:type=Log,name=LogStartOffset",
)
PARTITION_END: Final = _gauge(
    "Partitions (`metrics.partitions.enable`)",
    "partition_log_end_offset",
    "topic partition",
    "The offset that the next record gets.",
    "kafka.log:type=Log,name=LogEndOffset",
)
PARTITION_HIGH_WATERMARK: Final = _gauge(
    "Partitions (`metrics.partitions.enable`)",
    "partition_high_watermark",
    "topic partition",
    "The first offset that is not committed.",
)
PARTITION_SIZE: Final = _gauge(
    "Partitions (`metrics.partitions.enable`)",
    "partition_size_bytes",
    "topic partition",
    "Bytes of all segments.",
    "kafka.log:type=Log,name=Size",
)
PARTITION_IN_SYNC: Final = _gauge(
    "Partitions (`metrics.partitions.enable`)",
    "partition_in_sync_replicas",
    "topic partition",
    "In-sync replicas of a partition that this broker leads.",
    "kafka.cluster:type=Partition,name=InSyncReplicasCount",
)

PARTITIONS: Final = _gauge(
    "Replication",
    "partitions",
    "",
    "Replicas on this broker.",
    "kafka.server:type=ReplicaManager,name=PartitionCount",
)
LEADERS: Final = _gauge(
    "Replication",
    "leader_partitions",
    "",
    "Partitions that this broker leads.",
    "kafka.server:type=ReplicaManager,name=LeaderCount",
)
UNDER_REPLICATED: Final = _gauge(
    "Replication",
    "under_replicated_partitions",
    "",
    "Partitions led by this broker that have fewer in-sync replicas than replicas.",
    "kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions",
)
UNDER_MIN_ISR: Final = _gauge(
    "Replication",
    "under_min_isr_partitions",
    "",
    "Partitions led by this broker that have fewer in-sync replicas than `min.insync.replicas`: "
    "they refuse writes with acks=all.",
    "kafka.server:type=ReplicaManager,name=UnderMinIsrPartitionCount",
)
AT_MIN_ISR: Final = _gauge(
    "Replication",
    "at_min_isr_partitions",
    "",
    "Partitions led by this broker that have exactly `min.insync.replicas` in-sync replicas, and "
    "more replicas.",
    "kafka.server:type=ReplicaManager,name=AtMinIsrPartitionCount",
)
REASSIGNING: Final = _gauge(
    "Replication",
    "reassigning_partitions",
    "",
    "Partitions led by this broker that are being reassigned.",
    "kafka.server:type=ReplicaManager,name=ReassigningPartitions",
)
OFFLINE_REPLICAS: Final = _gauge(
    "Replication",
    "offline_replicas",
    "",
    "Replicas of this broker that cannot be served, because their log directory or their log has "
    "failed.",
    "kafka.server:type=ReplicaManager,name=OfflineReplicaCount",
)
REPLICA_LAG: Final = _gauge(
    "Replication",
    "replica_max_lag_records",
    "follower",
    "How many records a follower is behind, in the partition led by this broker where it is "
    "furthest behind.",
    "kafka.server:type=ReplicaFetcherManager,name=MaxLag",
)
ISR_SHRINKS: Final = _counter(
    "Replication",
    "isr_shrinks_total",
    "",
    "Replicas that left the ISR of a partition led by this broker.",
    "kafka.server:type=ReplicaManager,name=IsrShrinksPerSec",
)
ISR_EXPANDS: Final = _counter(
    "Replication",
    "isr_expands_total",
    "",
    "Replicas that joined the ISR of a partition led by this broker.",
    "kafka.server:type=ReplicaManager,name=IsrExpandsPerSec",
)
ELECTIONS: Final = _counter(
    "Replication",
    "leader_elections_total",
    "",
    "Leader elections in the whole cluster that this broker has learned of.",
    "kafka.controller:type=ControllerStats,name=ElectionFromControllerRateAndTimeMs",
)
UNCLEAN_ELECTIONS: Final = _counter(
    "Replication",
    "unclean_leader_elections_total",
    "",
    "Those whose new leader was neither in sync nor known to have all committed records.",
    "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec",
)

CONTROLLER_ACTIVE: Final = _gauge(
    "Controller",
    "controller_active",
    "",
    "1 on the broker that is the controller.",
    "kafka.controller:type=KafkaController,name=ActiveControllerCount",
)
CONTROLLER_KNOWN: Final = _gauge(
    "Controller",
    "controller_known",
    "",
    "1 while this broker knows a live controller.",
)
BROKERS: Final = _gauge(
    "Controller",
    "brokers",
    "",
    "Live brokers of the cluster that this broker knows.",
    "kafka.controller:type=KafkaController,name=ActiveBrokerCount",
)
TOPICS: Final = _gauge(
    "Controller",
    "topics",
    "",
    "Topics of the cluster.",
    "kafka.controller:type=KafkaController,name=GlobalTopicCount",
)
CLUSTER_PARTITIONS: Final = _gauge(
    "Controller",
    "cluster_partitions",
    "",
    "Partitions of the cluster.",
    "kafka.controller:type=KafkaController,name=GlobalPartitionCount",
)
OFFLINE_PARTITIONS: Final = _gauge(
    "Controller",
    "offline_partitions",
    "",
    "Partitions of the cluster without a live leader.",
    "kafka.controller:type=KafkaController,name=OfflinePartitionsCount",
)
NOT_PREFERRED: Final = _gauge(
    "Controller",
    "not_preferred_leaders",
    "",
    "Partitions of the cluster whose leader is not the preferred replica.",
    "kafka.controller:type=KafkaController,name=PreferredReplicaImbalanceCount",
)

GROUPS: Final = _gauge(
    "Groups",
    "groups",
    "state",
    "Groups coordinated by this broker, by state.",
    "kafka.server:type=group-coordinator-metrics,name=group-count",
)
GROUP_MEMBERS: Final = _gauge("Groups", "group_members", "group", "Members of a group.")
GROUP_REBALANCES: Final = _counter(
    "Groups",
    "group_rebalances_total",
    "group",
    "The generation or epoch of a group: each rebalance adds one.",
    "kafka.server:type=group-coordinator-metrics,name=group-completed-rebalance-count",
)
GROUP_OFFSET: Final = _gauge(
    "Groups",
    "group_committed_offset",
    "group topic partition",
    "The committed offset of a group.",
)
GROUP_LAG: Final = _gauge(
    "Groups",
    "group_lag_records",
    "group topic partition",
    "Offsets from the committed offset of a group to the high watermark.",
)
GROUP_LAG_SECONDS: Final = _gauge(
    "Groups",
    "group_lag_seconds",
    "group topic partition",
    "For how long the record after the committed offset has been readable, as seen by scrapes: "
    "too low by at most the time between two scrapes.",
)

TRANSACTIONS: Final = _gauge(
    "Transactions",
    "transactions",
    "state",
    "Transactional ids coordinated by this broker, by state of their transaction.",
    "kafka.server:type=transaction-coordinator-metrics",
)
OLDEST_TRANSACTION: Final = _gauge(
    "Transactions",
    "oldest_open_transaction_seconds",
    "",
    "For how long the oldest open transaction coordinated by this broker has been open.",
    "kafka.server:type=ReplicaManager,name=PartitionsWithLateTransactionsCount",
)

DIRECTORY_ONLINE: Final = _gauge(
    "Logs",
    "log_directory_online",
    "directory",
    "1 for a log directory that is online, 0 for one that has failed.",
    "kafka.log:type=LogManager,name=LogDirectoryOffline",
)
DIRECTORY_SIZE: Final = _gauge(
    "Logs", "log_directory_size_bytes", "directory", "Size of the volume of a log directory."
)
DIRECTORY_FREE: Final = _gauge(
    "Logs", "log_directory_free_bytes", "directory", "Free space of that volume for the broker."
)
FLUSH: Final = _histogram(
    "Logs",
    "log_flush_seconds",
    "directory",
    "Time of an fsync round, which all writes before it share.",
    "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
)
RETENTION_SEGMENTS: Final = _counter(
    "Logs",
    "log_retention_segments_total",
    "",
    "Segments that retention has deleted.",
)
CLEANER_RUNNING: Final = _gauge("Logs", "log_cleaner_running", "", "Logs that are being compacted.")
CLEANER_RUNS: Final = _counter(
    "Logs",
    "log_cleaner_runs_total",
    "",
    "Logs that were compacted.",
    "kafka.log:type=LogCleaner,name=cleaner-recopy-percent",
)
CLEANER_SECONDS: Final = _counter(
    "Logs",
    "log_cleaner_seconds_total",
    "",
    "Time spent on compaction.",
    "kafka.log:type=LogCleaner,name=max-clean-time-secs",
)
UNCLEANABLE: Final = _gauge(
    "Logs",
    "log_uncleanable_partitions",
    "",
    "Logs that cannot be compacted and are skipped.",
    "kafka.log:type=LogCleanerManager,name=uncleanable-partitions-count",
)

LOOP_LAG: Final = _histogram(
    "Loop and lanes",
    "loop_lag_seconds",
    "",
    "How late timers of the event loop are, because another step was running.",
    "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent",
)
LOOP_LONGEST: Final = _gauge(
    "Loop and lanes",
    "loop_longest_step_seconds",
    "",
    "The longest delay in the last minute or two.",
)
LANE_TASKS: Final = _counter(
    "Loop and lanes", "lane_tasks_total", "lane", "Tasks that a worker thread has completed."
)
LANE_QUEUE: Final = _gauge(
    "Loop and lanes",
    "lane_tasks_waiting",
    "lane",
    "Tasks that wait for a lane or run in it.",
    "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent",
)
LANE_SECONDS: Final = _counter(
    "Loop and lanes", "lane_seconds_total", "lane", "Time for which a lane was busy."
)
LANE_WAITED: Final = _counter(
    "Loop and lanes",
    "lane_wait_seconds_total",
    "lane",
    "Time for which tasks waited for their lane.",
)

CONNECTIONS: Final = _gauge(
    "Connections",
    "connections",
    "listener",
    "Open connections.",
    "kafka.server:type=socket-server-metrics,name=connection-count",
)
CONNECTIONS_ACCEPTED: Final = _counter(
    "Connections",
    "connections_accepted_total",
    "listener",
    "Accepted connections.",
    "kafka.server:type=socket-server-metrics,name=connection-creation-total",
)
AUTHENTICATIONS: Final = _counter(
    "Connections",
    "authentications_total",
    "outcome",
    "SASL authentications: `success`, `failure`, `reauthentication_failure`, `expired`.",
    "kafka.server:type=socket-server-metrics,name=failed-authentication-total",
)
CERTIFICATE_EXPIRY: Final = _gauge(
    "Connections",
    "tls_certificate_not_after_seconds",
    "listener",
    "Expiry time of a listener's certificate, in seconds since 1970.",
)

REQUEST_MEMORY: Final = _gauge(
    "Memory",
    "request_memory_bytes",
    "",
    "Memory of requests that have not been received completely (`queued.max.request.bytes`).",
    "kafka.network:type=SocketServer,name=MemoryPoolUsed",
)
FETCH_SESSIONS: Final = _gauge(
    "Memory",
    "fetch_sessions",
    "",
    "Fetch sessions that are kept.",
    "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions",
)
QUOTA_CLIENTS: Final = _gauge(
    "Quotas",
    "quota_clients",
    "quota",
    "Users and client ids whose usage is kept for a quota.",
    "kafka.server:type=Produce,user=*,client-id=*",
)


TELEMETRY_PUSHES: Final = _counter(
    "Clients' own metrics",
    "client_telemetry_pushes_total",
    "outcome",
    "Pushes of clients (KIP-714): `accepted` and `refused`.",
    "kafka.server:type=client-metrics",
)
TELEMETRY_CLIENTS: Final = _gauge(
    "Clients' own metrics",
    "client_telemetry_clients",
    "",
    "Clients whose metrics are kept.",
    "kafka.server:type=client-metrics,name=ClientMetricsInstanceCount",
)

PROCESS_UP: Final = _gauge(
    "Processes of one machine (`serve --brokers`)",
    "supervised_process_up",
    "process",
    "1 while a process of `serve --brokers` runs and listens.",
)
PROCESS_RESTARTS: Final = _counter(
    "Processes of one machine (`serve --brokers`)",
    "supervised_process_restarts_total",
    "process",
    "How often it was restarted.",
)


def metrics() -> tuple[MetricName, ...]:
    """Return every metric, in the order of the page."""
    return tuple(metric for _, metric in _METRICS)


def page() -> Iterator[str]:
    """Yield the tables of docs/monitoring.md."""
    last = ""
    for section, metric in _METRICS:
        if section != last:
            last = section
            yield f"\n### {section}\n"
            yield "| metric | type | labels | meaning | in Apache Kafka |"
            yield "|---|---|---|---|---|"
        labels = ", ".join(f"`{each}`" for each in metric.labels) or "—"
        kafka = f"`{metric.kafka}`" if metric.kafka else "—"
        yield f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.help} | {kafka} |"


if __name__ == "__main__":
    print("\n".join(page()))
