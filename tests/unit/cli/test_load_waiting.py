"""Whom a load waits for is known between its attempts too."""

from __future__ import annotations

import pytest

from millstream.cli import load_waiting
from millstream.cli.load_waiting import LastOutOfReach
from millstream.client.settings import Address

BROKER = Address("kafka-1", 9092)


def test_a_load_waits_between_two_attempts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    now: list[Address] | None = None
    monkeypatch.setattr(load_waiting, "out_of_reach", lambda: now)
    away = LastOutOfReach()
    assert away() == []
    now = [BROKER]
    assert away() == [BROKER]
    now = None  # closed, for a pause
    assert away() == [BROKER]
    now = []
    assert away() == []
    now = None
    assert away() == []
