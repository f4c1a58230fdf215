"""Asks brokers which of the leaders that they follow do not answer them (DescribeFetchers)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

from millstream.controller.reachability import ReachabilityReports
from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import KafkaError
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.describe_fetchers import (
    DescribeFetchersRequest,
    DescribeFetchersResponse,
)
from millstream.runtime.controlling.controller_state import ControllerState

TIMEOUT_MS: Final = 500.0

Send = Callable[[BrokerId, Request, float], Deferred[Response]]


class FetcherStates:
    """Implements ``broker_reports.AskFetchers``. ``local`` answers for this broker."""

    def __init__(
        self,
        state: ControllerState,
        broker_id: BrokerId,
        send: Send,
        local: Callable[[], Collection[BrokerId]],
    ) -> None:
        self._state = state
        self._broker_id = broker_id
        self._send = send
        self._local = local

    def ask(self, brokers: Iterable[BrokerId]) -> Deferred[ReachabilityReports]:
        """Return what the brokers answer; one that gives no answer in time is left out."""
        return spawn(self._ask(tuple(brokers)))

    async def _ask(self, brokers: tuple[BrokerId, ...]) -> ReachabilityReports:
        request = DescribeFetchersRequest(controller_epoch=self._state.context.controller_epoch)
        asked = [
            (each, self._send(each, request, TIMEOUT_MS))
            for each in brokers
            if each != self._broker_id
        ]
        found: dict[BrokerId, frozenset[BrokerId]] = {}
        if self._broker_id in brokers:
            found[self._broker_id] = frozenset(self._local())
        for each, answer in asked:
            try:
                response = await answer
            except KafkaError:
                continue
            assert isinstance(response, DescribeFetchersResponse)
            if not response.error_code:
                found[each] = frozenset(map(BrokerId, response.unreachable_leaders))
        return ReachabilityReports(found)
