"""What tests ask of `metrics.port`: a free port, the answers, the samples of a scrape."""

from __future__ import annotations

import http.client
import socket

from prometheus_client.parser import text_string_to_metric_families

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def get(port: int, path: str) -> tuple[int, str]:
    """Return the status and the text of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def parsed(text: str) -> Samples:
    """Return every sample of a scrape by its name and labels; names come once."""
    found: Samples = {}
    families = set()
    for family in text_string_to_metric_families(text):
        assert family.name not in families, f"{family.name} comes twice"
        families.add(family.name)
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found, f"{key} comes twice"
            found[key] = sample.value
    return found


def scrape(port: int) -> Samples:
    """Return every sample of a scrape of a broker."""
    status, text = get(port, "/metrics")
    assert status == 200
    return parsed(text)


def value(samples: Samples, name: str, **labels: str) -> float:
    """Return one value; 0 where there is no such sample."""
    return samples.get((f"millstream_{name}", frozenset(labels.items())), 0.0)
