"""The clock of a cluster under test, which the test advances."""

from __future__ import annotations

from concurrent.futures import Future
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from millstream.testing.errors import TestBrokerError
from millstream.testing.host_process import wait_for

if TYPE_CHECKING:
    from millstream.testing.kafka import Kafka


class Clock:
    """What the brokers take for the time: that of the machine, and how far it was advanced."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self.ahead_ms = 0.0

    @property
    def ahead(self) -> timedelta:
        """How far it was advanced in all."""
        return timedelta(milliseconds=self.ahead_ms)

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> None:
        """Let so much time pass for all brokers at once. What came due has run when this returns:
        retention, sessions and time-outs of groups, transactions, locks of share groups, tokens.

        One jump, in which a periodic duty runs once. Connections, leases and sessions between
        brokers, clients and the store have real time and notice nothing.
        """
        by_ms = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        milliseconds = by_ms.total_seconds() * 1000
        if milliseconds <= 0:
            raise TestBrokerError("time passes forwards: give days, hours, minutes or seconds")
        kafka = self._kafka
        kafka.is_bent = True
        running = [each for each in kafka.brokers if each.is_running]
        paused = [each.id for each in running if each.process.is_paused]
        if paused:
            raise TestBrokerError(f"broker {paused[0]} is paused: resume it before time passes")
        self.ahead_ms += milliseconds
        answers: list[tuple[int, Future[Any]]] = []
        for each in running:
            channel = each.process.channel
            if channel is not None:
                answers.append((each.id, channel.ask("advance", by_ms=milliseconds)))
        for broker_id, answer in answers:
            wait_for(answer, f"broker {broker_id} did not take the time")
