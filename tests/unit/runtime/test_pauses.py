from __future__ import annotations

import pytest
from tests.unit.runtime.coordinator_site import HandClock

from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.runtime.pauses import at_most, pause


def test_a_pause_ends_when_it_is_over() -> None:
    clock = HandClock()
    waiting = pause(clock, 100)
    clock.advance(99)
    assert not waiting.done
    clock.advance(1)
    assert waiting.done


def test_work_that_ends_in_time_tells_its_result() -> None:
    clock = HandClock()
    work: Deferred[int] = Deferred()
    waiting = at_most(clock, work, 100)
    work.complete(7)
    clock.advance(200)
    assert waiting.result() == 7
    assert at_most(clock, Deferred.of(8), 100).result() == 8


def test_work_that_fails_in_time_fails() -> None:
    work: Deferred[int] = Deferred()
    waiting = at_most(HandClock(), work, 100)
    work.fail(KafkaError(ErrorCode.NOT_CONTROLLER))
    with pytest.raises(KafkaError):
        waiting.result()


def test_work_that_takes_longer_is_not_waited_for() -> None:
    clock = HandClock()
    work: Deferred[int] = Deferred()
    waiting = at_most(clock, work, 100)
    clock.advance(100)
    assert waiting.result() is None
    work.complete(7)
    assert waiting.result() is None
