"""Statistics of a client at an interval, as librdkafka's ``statistics.interval.ms`` tells them.

Nothing is scheduled unless both settings are set. What is told are the client's own metrics.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias, cast

from millstream.client.core.loop import ClientLoop, TimerHandle

_log = logging.getLogger("millstream.client")

Statistics: TypeAlias = dict[str, Any]
"""``type`` (producer, consumer, share consumer), ``client_id``, ``time`` (ms since 1970), and
``metrics``: values by group and name.
"""


class _Settings(Protocol):
    @property
    def client_id(self) -> str: ...
    @property
    def statistics_interval_ms(self) -> float: ...
    @property
    def statistics_callback(self) -> object: ...


class StatisticsReports:
    """Calls the user's function on the client's loop, until it is stopped."""

    def __init__(
        self,
        loop: ClientLoop,
        settings: _Settings,
        kind: str,
        metrics: Callable[[], Mapping[tuple[str, str], float]],
    ) -> None:
        self._loop = loop
        self._kind = kind
        self._client_id = settings.client_id
        self._metrics = metrics
        self._interval_ms = settings.statistics_interval_ms
        self._callback = cast("Callable[[Statistics], object] | None", settings.statistics_callback)
        self._timer: TimerHandle | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Tell from now on, if that is wanted; on the loop. The first time is an interval later."""
        if self._callback is not None and self._interval_ms > 0:
            self._schedule()

    def stop(self) -> None:
        """Tell nothing more."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self) -> None:
        if not self._is_stopped:
            self._timer = self._loop.call_at(self._loop.now_ms() + self._interval_ms, self._tell)

    def _tell(self) -> None:
        metrics: dict[str, dict[str, float]] = {}
        for (group, name), value in self._metrics().items():
            metrics.setdefault(group, {})[name] = value
        try:
            assert self._callback is not None
            self._callback(
                {
                    "type": self._kind,
                    "client_id": self._client_id,
                    "time": self._loop.wall_clock_ms(),
                    "metrics": metrics,
                }
            )
        except Exception:
            _log.exception("statistics.callback of %s failed", self._client_id)
        self._schedule()
