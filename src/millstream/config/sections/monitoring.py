"""How a broker is watched: metrics, health, its own log, the metrics of its clients."""

from __future__ import annotations

from typing import Final

from millstream.config.definition import CLUSTER_WIDE, Config, boolean, int32, int64, string
from millstream.config.validators import OneOf, Range, at_least

TEXT: Final = "text"
JSON: Final = "json"
INFO: Final = "info"
LOG_LEVELS: Final = ("debug", INFO, "warning", "error")


class MonitoringSettings(Config):
    """Metrics for Prometheus, health for Kubernetes, the form and level of the log, and slow
    requests; see [monitoring.md](monitoring.md).
    """

    metrics_port: int = int32(
        "metrics.port",
        0,
        Range(0, 65_535),
        "The port on which `/metrics`, `/health/live` and `/health/ready` are served over HTTP; 0 "
        "for none.",
        kafka=False,
    )
    metrics_host: str = string(
        "metrics.host",
        "127.0.0.1",
        None,
        "The address of `metrics.port`; empty means all addresses. Everybody who can connect to "
        "it can read all metrics, including names of topics, groups and clients.",
        kafka=False,
    )
    metrics_partitions_enable: bool = boolean(
        "metrics.partitions.enable",
        False,
        "Whether offsets, sizes and replicas have series for each partition, not only for each "
        "topic: five series for each replica of the broker.",
        mode=CLUSTER_WIDE,
        kafka=False,
    )
    metrics_groups_enable: bool = boolean(
        "metrics.groups.enable",
        True,
        "Whether the lag of consumer groups is a metric. While metrics are scraped, the "
        "coordinator asks the leaders of their partitions for end offsets, at most every five "
        "seconds.",
        mode=CLUSTER_WIDE,
        kafka=False,
    )
    log_format: str = string(
        "log.format",
        TEXT,
        OneOf((TEXT, JSON)),
        "How the broker writes its own log: `text`, or `json`, an object on each line.",
        kafka=False,
    )
    log_level: str = string(
        "log.level",
        INFO,
        OneOf(LOG_LEVELS),
        "The least severe messages in the broker's own log. `serve --log-level` sets it.",
        kafka=False,
    )
    slow_request_log_ms: int = int64(
        "slow.request.log.ms",
        -1,
        at_least(-1),
        "Requests that take at least this many milliseconds are logged, with where the time was "
        "spent; −1 turns this off. For a fetch, the time for which it may wait for records is not "
        "counted.",
        mode=CLUSTER_WIDE,
        kafka=False,
    )
    telemetry_max_bytes: int = int32(
        "telemetry.max.bytes",
        1_048_576,
        at_least(1),
        "The largest push of metrics in bytes, compressed or not, that is accepted from a client.",
    )
