"""Gives leaderships back to preferred replicas from time to time.

Every ``leader.imbalance.check.interval.seconds`` the controller looks whether more than
``leader.imbalance.per.broker.percentage`` of the partitions that prefer a broker are led by others.
Kafka: ``AutoPreferredReplicaLeaderElection``.
"""

from __future__ import annotations

import logging

from millstream.model.clock import Clock, TimerHandle
from millstream.model.deferred import Deferred
from millstream.model.errors import MillstreamError
from millstream.runtime.controlling.controller_state import ControllerState
from millstream.runtime.controlling.leader_elections import LeaderElections

log = logging.getLogger(__name__)


class PreferredLeaders:
    """The timer of these elections; it runs on every broker and acts on the controller only."""

    def __init__(self, clock: Clock, state: ControllerState, elections: LeaderElections) -> None:
        self._clock = clock
        self._state = state
        self._elections = elections
        self._timer: TimerHandle | None = None

    def start(self) -> None:
        """Look in one interval from now, and so on."""
        seconds = self._state.config.current.leader_imbalance_check_interval_seconds
        self._timer = self._clock.call_later(seconds * 1000, self._look)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        current = self._state.config.current
        if self._state.is_active and current.auto_leader_rebalance_enable:
            percentage = current.leader_imbalance_per_broker_percentage
            self._elections.rebalance(percentage).on_done(_log_failure)
        self.start()


def _log_failure(done: Deferred[None]) -> None:
    try:
        done.result()
    except MillstreamError as error:
        log.info("leaderships were not given back to preferred replicas: %s", error)
