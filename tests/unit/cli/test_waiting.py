"""Who is waited for is told after some seconds, again every half minute, and when it is over."""

from __future__ import annotations

import pytest

from millstream.cli.waiting import Waiting
from millstream.client.settings import Address

BROKER = Address("kafka-1", 9092)


def test_a_broker_that_is_away_is_told_of(capfd: pytest.CaptureFixture[str]) -> None:
    away: list[Address] = []
    waiting = Waiting(lambda: away, lambda: 1234)

    def told_at(now: float) -> str:
        waiting.look(now)
        return capfd.readouterr().err

    assert told_at(0) == ""
    away.append(BROKER)
    assert told_at(10) == told_at(12.5) == ""
    first = told_at(13)
    assert first.startswith("millstream: waiting for kafka-1:9092 since ")
    assert first.endswith("; 1,234 records not acknowledged\n")
    assert told_at(20) == told_at(42) == ""
    assert told_at(43).startswith("millstream: waiting for kafka-1:9092 since ")
    away.clear()
    assert told_at(50) == "millstream: going on after 40.0 s\n"
    assert told_at(51) == ""


def test_a_short_absence_is_not_told_of(capfd: pytest.CaptureFixture[str]) -> None:
    away = [BROKER]
    waiting = Waiting(lambda: away)
    waiting.look(0)
    waiting.look(2)
    away.clear()
    waiting.look(4)
    away.append(BROKER)
    waiting.look(5)
    waiting.look(7)
    assert capfd.readouterr().err == ""
    waiting.look(8)
    assert "not acknowledged" not in capfd.readouterr().err
