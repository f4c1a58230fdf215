"""The numbers taken from a run, with their units. 1 MB is 10^6 bytes."""

from __future__ import annotations

from bench.pairs import Metric

REQUESTS_PER_S = Metric("requests/s", lambda report: report.requests / report.seconds)
RECORDS_PER_S = Metric("records/s", lambda report: report.records / report.seconds)
MB_PER_S = Metric("MB/s", lambda report: report.moved_bytes / report.seconds / 1e6)
CPU_PER_REQUEST = Metric(
    "µs CPU/request", lambda report: report.broker_cpu_s / report.requests * 1e6, digits=1
)
CPU_PER_MB = Metric(
    "ms CPU/MB", lambda report: report.broker_cpu_s / report.moved_bytes * 1e9, digits=3
)
# How busy the load itself was, in cores: near 1 the load is the limit and not the broker.
LOAD_CORES = Metric("cores", lambda report: report.load_cpu_s / report.seconds, digits=2)
