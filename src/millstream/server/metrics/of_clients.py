"""Metrics that clients have pushed (KIP-714), under their own names.

``org.apache.kafka.producer.record.queue.time.avg`` is `kafka_client_producer_record_queue_…`,
with the client's id, its instance and the attributes that it gave as labels. All are gauges: what
a client calls a sum begins anew with it.
"""

from __future__ import annotations

import re
from typing import Final

from millstream.runtime.telemetry.client_telemetry import (
    MAX_SERIES_OF_A_CLIENT,
    MAX_TEXT,
    ClientTelemetry,
    instance_text,
)
from millstream.server.metrics import catalogue
from millstream.server.metrics.catalogue import Kind, MetricName
from millstream.server.metrics.families import Family, gauge
from millstream.server.metrics.of_logs import Part

_BEGINNING: Final = "org.apache.kafka."
_NO_NAME: Final = re.compile(r"[^a-zA-Z0-9_]")
_POINTS_AT_ONCE: Final = MAX_SERIES_OF_A_CLIENT


def of_clients(telemetry: ClientTelemetry) -> Part:
    """Yield the families of all clients, each name once."""
    pushes = Family(catalogue.TELEMETRY_PUSHES)
    pushes.add(telemetry.accepted, "accepted")
    pushes.add(telemetry.refused, "refused")
    yield pushes
    families: dict[str, Family] = {}
    known: set[tuple[str, frozenset[tuple[str, str]]]] = set()
    count = looked_at = 0
    for pushed in telemetry.pushed():
        count += 1
        client = pushed.client
        for (metric, attributes), value in pushed.points.items():
            name = f"kafka_client_{_name(metric.removeprefix(_BEGINNING))}"
            labels = {_name(key): text for key, text in attributes if _name(key)}
            labels["client_id"] = client.client_id[:MAX_TEXT]
            labels["client_instance_id"] = instance_text(client.instance_id)
            series = name, frozenset(labels.items())
            if series in known:  # names that differ in what a label cannot have
                continue
            known.add(series)
            family = families.get(name)
            if family is None:
                help_ = f"{metric}, as clients push it."
                family = families[name] = Family(MetricName(name, Kind.GAUGE, (), help_))
            family.samples.append((name, labels, value))
        looked_at += len(pushed.points)
        if looked_at >= _POINTS_AT_ONCE:
            looked_at = 0
            yield None
    yield gauge(catalogue.TELEMETRY_CLIENTS, count)
    yield from families.values()


def _name(text: str) -> str:
    """Return a text as a part of a name: names that begin with an underscore are Prometheus's."""
    return _NO_NAME.sub("_", text).lstrip("_0123456789")
