"""Everything that watches a broker with `metrics.port`, put together; nothing of it is loaded
without.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from typing import TYPE_CHECKING, Any

from millstream.model.errors import ConfigError
from millstream.server.metrics.health import Health, Phase

if TYPE_CHECKING:
    from millstream.config.broker import BrokerConfig
    from millstream.model.clock import Clock
    from millstream.net.connection import Connection
    from millstream.runtime.offload import Offload
    from millstream.runtime.services import Services
    from millstream.server.metrics.collector import Edges


class Monitor:
    """Serves metrics and health from its construction on: a broker that recovers its logs for
    minutes is alive meanwhile. ConfigError where it cannot listen.
    """

    def __init__(
        self, config: BrokerConfig, loop: AbstractEventLoop, clock: Clock, offload: Offload
    ) -> None:
        try:
            from millstream.server.metrics.endpoint import MetricsEndpoint
        except ImportError as error:
            raise ConfigError(
                "metrics.port needs prometheus-client: pip install 'millstream[metrics]'"
            ) from error
        from millstream.server.metrics.collector import Collector
        from millstream.server.metrics.lanes import MeasuredOffload
        from millstream.server.metrics.loop_watch import LoopWatch

        self._clock = clock
        self._health = Health()
        lanes = MeasuredOffload(offload)
        self.offload: Offload = lanes
        """The offload that the broker is to use: it is measured."""
        self._loop_watch = LoopWatch(clock)
        self._collector = Collector(self._health, lanes, self._loop_watch)
        self._endpoint = MetricsEndpoint(loop, config, self._collector, self._health)

    def new_connection(self, *arguments: Any, **options: Any) -> Connection:
        """Return a connection of which it is measured how long answers take to be sent."""
        from millstream.net.measured_connection import MeasuredConnection

        return MeasuredConnection(*arguments, on_sent=self._collector.sent, **options)

    def begin(self, services: Services, edges: Edges) -> None:
        """Tell of everything: the broker serves."""
        from millstream.runtime.telemetry.client_telemetry import ClientTelemetry

        services.telemetry = ClientTelemetry(services.metadata.entities, services.clock)
        self._collector.begin(services, edges)
        self._health.services = services
        self._health.phase = Phase.SERVING

    def stopping(self) -> None:
        """Say that the broker is not ready any more."""
        self._health.phase = Phase.STOPPING

    def close(self) -> None:
        """Serve no more."""
        self._loop_watch.stop()
        self._endpoint.close()
