"""Values of one scrape, and their text in Prometheus's format, in slices.

A family is a metric of the catalogue with its samples. The text is made by prometheus-client, of a
few hundred samples at a time: a broker with thousands of partitions serves clients in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric

from millstream.server.metrics.catalogue import Kind, MetricName
from millstream.server.metrics.histogram import Histogram

SLICE_SAMPLES: Final = 250
"""Samples whose text is made at once: about a millisecond."""
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(slots=True)
class Family:
    """One metric with the values of its labels, which are given in the order of the catalogue."""

    metric: MetricName
    samples: list[tuple[str, dict[str, str], float]] = field(default_factory=list)

    def add(self, value: float, *labels: str) -> None:
        """Add one sample."""
        named = dict(zip(self.metric.labels, labels, strict=True))
        self.samples.append((self.metric.name, named, value))

    def add_histogram(self, histogram: Histogram, *labels: str) -> None:
        """Add the buckets, the sum and the count of one histogram."""
        name = self.metric.name
        named = dict(zip(self.metric.labels, labels, strict=True))
        for bound, count in histogram.cumulative():
            self.samples.append((f"{name}_bucket", {**named, "le": bound}, count))
        self.samples.append((f"{name}_sum", named, histogram.sum))
        self.samples.append((f"{name}_count", named, histogram.count))


def gauge(metric: MetricName, value: float) -> Family:
    """Return the family of a metric without labels."""
    family = Family(metric)
    family.add(value)
    return family


class _One:
    """A part of a metric, as a collector of prometheus-client."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return (self._metric,)


def text_of(family: Family) -> Iterator[bytes]:
    """Yield the text of a family in slices, which together are what the library would write."""
    name = family.metric.name
    if family.metric.kind is Kind.COUNTER:
        name = name.removesuffix("_total")
    yield from sliced(name, family.metric.help, family.metric.kind.value, family.samples)


def sliced(
    name: str, help_: str, kind: str, samples: Sequence[tuple[str, dict[str, str], float]]
) -> Iterator[bytes]:
    """Yield the text of some samples of one name, in slices."""
    for start in range(0, len(samples), SLICE_SAMPLES):
        metric = Metric(name, help_, kind)
        for sample_name, labels, value in samples[start : start + SLICE_SAMPLES]:
            metric.add_sample(sample_name, labels, value)
        text = written(metric)
        if start:  # what the metric is stands before its first sample alone
            text = b"".join(
                line for line in text.splitlines(keepends=True) if not line.startswith(b"# ")
            )
        yield text


def written(metric: Metric) -> bytes:
    """Return the text of a metric of prometheus-client."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_One(metric))
    return generate_latest(registry)
