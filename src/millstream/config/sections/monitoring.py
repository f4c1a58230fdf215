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
        "The address of `metrics.port`. Whoever can reach it may read all metrics: names of "
        "topics, groups and clients are among them. Empty for every address.",
        kafka=False,
    )
    metrics_partitions_enable: bool = boolean(
        "metrics.partitions.enable",
        False,
        "Whether offsets, sizes and replicas are told for each partition too, and not for each "
        "topic alone: five series for each replica of the broker.",
        mode=CLUSTER_WIDE,
        kafka=False,
    )
    metrics_groups_enable: bool = boolean(
        "metrics.groups.enable",
        True,
        "Whether the lag of consumer groups is told. Their coordinator asks the leaders of their "
        "partitions how far the logs reach, at most every five seconds, while it is scraped.",
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
        "The least severe messages that the broker writes into its own log. `serve --log-level` "
        "sets it.",
        kafka=False,
    )
    slow_request_log_ms: int = int64(
        "slow.request.log.ms",
        -1,
        at_least(-1),
        "Requests that take so many milliseconds are named in the broker's log, with where the "
        "time went; −1 for none. A fetch counts without the time that it may wait for records.",
        mode=CLUSTER_WIDE,
        kafka=False,
    )
    telemetry_max_bytes: int = int32(
        "telemetry.max.bytes",
        1_048_576,
        at_least(1),
        "The largest push of metrics in bytes, compressed or not, that is taken of a client.",
    )
