"""Puts the meter of requests around handlers while metrics or the log of slow requests are wanted.

A broker without either loads no code of it, and its handlers are called as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millstream.config.broker import BrokerConfig
from millstream.handlers.request import Reply, RequestContext
from millstream.runtime.services import Services

if TYPE_CHECKING:
    from millstream.server.metrics.request_meter import RequestMeter

Handle = Callable[[Services, RequestContext, Any], Reply]


class MonitoringSwitch:
    """Follows the settings. ``on_switched`` is called when handlers are to be chosen anew."""

    def __init__(self, services: Services, on_switched: Callable[[], None]) -> None:
        self._on_switched = on_switched
        self.meter: RequestMeter | None = None
        """The meter, once there was one: its counts only grow."""
        self._is_on = False
        services.config.on_change(self._changed)
        self._switch(services.config.current)

    def around(self, key: int, handle: Handle) -> Handle:
        """Return the handler of an API, with the meter around it where it is on."""
        return self.meter.around(key, handle) if self._is_on and self.meter is not None else handle

    def _changed(self, before: BrokerConfig, after: BrokerConfig) -> None:
        if before.slow_request_log_ms != after.slow_request_log_ms:
            self._switch(after)
            self._on_switched()

    def _switch(self, config: BrokerConfig) -> None:
        slow_ms = config.slow_request_log_ms
        self._is_on = bool(config.metrics_port) or slow_ms >= 0
        if not self._is_on:
            return
        from millstream.server.metrics.request_meter import OFF, RequestMeter

        if self.meter is None:
            self.meter = RequestMeter()
        self.meter.slow_s = OFF if slow_ms < 0 else slow_ms / 1_000
