"""`metrics.port`: `/metrics`, `/health/live` and `/health/ready` of one broker.

A scrape is collected in steps of about a millisecond, between which the loop serves clients; one
scrape is collected at a time, for counters grow by what has happened since the one before.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import CollectorRegistry

from millstream.model.errors import ConfigError
from millstream.net.http_server import HttpAnswer, HttpServer, text_answer
from millstream.server.metrics.families import CONTENT_TYPE, Family, text_of, written

if TYPE_CHECKING:
    from millstream.config.broker import BrokerConfig
    from millstream.server.metrics.collector import Collector
    from millstream.server.metrics.health import Health


class MetricsEndpoint:
    """Serves the metrics and the health of a broker. ConfigError where it cannot listen."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: BrokerConfig,
        collector: Collector,
        health: Health,
    ) -> None:
        self._collector = collector
        self._health = health
        self._turn = asyncio.Lock()
        self._process = ProcessCollector(registry=None)
        self._garbage = GCCollector(registry=CollectorRegistry())
        host, port = config.metrics_host, config.metrics_port
        try:
            self._server = HttpServer(loop, host, port, self._respond)
        except OSError as error:
            raise ConfigError(
                f"metrics.port: cannot listen on {host or '*'}:{port}: {error.strerror}"
            ) from error

    def close(self) -> None:
        """Serve no more."""
        self._server.close()

    async def _respond(self, path: str) -> HttpAnswer:
        match path:
            case "/metrics":
                return HttpAnswer(200, CONTENT_TYPE, self._scrape())
            case "/health/live" | "/healthz" | "/livez":
                return text_answer(200, "alive")
            case "/health/ready" | "/readyz":
                reason = self._health.not_ready()
                return text_answer(503 if reason else 200, reason or "ready")
            case _:
                return text_answer(404, "there are /metrics, /health/live and /health/ready")

    async def _scrape(self) -> AsyncIterator[bytes]:
        families: list[Family] = []
        async with self._turn:
            for family in self._collector.collect():
                if family is None:
                    await asyncio.sleep(0)
                else:
                    families.append(family)
        for family in families:
            for piece in text_of(family):
                yield piece
                await asyncio.sleep(0)
        for metric in (*self._process.collect(), *self._garbage.collect()):
            yield written(metric)
