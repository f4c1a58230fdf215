"""Lines that strangers cause are counted, and those that are left out are told of."""

from __future__ import annotations

import logging
import pkgutil
from collections.abc import Iterator
from importlib import import_module

import pytest
from tests.unit.runtime.coordinator_site import HandClock

from millstream import net
from millstream.runtime.log_limit import LIMITED, Kind, LineCounts, LogLimit

NAME = "tests.limited"
KIND = Kind(NAME, logging.INFO, "refused %s")
log = logging.getLogger(NAME)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def limit(clock: HandClock) -> Iterator[LogLimit]:
    made = LogLimit(clock, [NAME], lines_per_second=3)
    made.attach()
    yield made
    made.detach()


def test_so_many_of_a_kind_are_admitted_and_the_others_counted() -> None:
    counts = LineCounts(2, now_ms=0)
    other = KIND._replace(text="closed %s")
    assert [counts.admits(KIND, 0), counts.admits(KIND, 1), counts.admits(KIND, 2)] == [1, 1, 0]
    assert counts.admits(other, 3)  # another kind is not displaced
    assert counts.has_left_out
    assert not counts.admits(KIND, 5_000)  # until somebody has told of it
    assert counts.end(5_000) == ({KIND: 2}, 5_000)
    assert not counts.has_left_out
    assert counts.admits(KIND, 5_000)


def test_a_second_without_a_line_too_many_begins_anew() -> None:
    counts = LineCounts(2, now_ms=0)
    assert all(counts.admits(KIND, now_ms) for now_ms in (0, 500, 1_000, 1_999, 2_000))
    assert counts.end(2_000) == ({}, 0)


def test_ten_thousand_refusals_write_few_lines_and_none_is_forgotten(
    clock: HandClock, limit: LogLimit, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        for number in range(10_000):
            log.info("refused %s", number)
        clock.advance(1_000)
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "refused 0",
        "refused 1",
        "refused 2",
        "9997 more lines of this kind were left out in 1.0 s: refused %s",
    ]
    with caplog.at_level(logging.INFO):
        log.info("refused %s", "again")
    assert caplog.records[-1].getMessage() == "refused again"


def test_what_is_left_out_at_the_end_is_told(
    limit: LogLimit, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        for number in range(5):
            log.info("refused %s", number)
        limit.detach()
        log.info("refused %s", "afterwards")
    assert "2 more lines" in caplog.records[-2].getMessage()
    assert caplog.records[-1].getMessage() == "refused afterwards"


def test_errors_and_what_was_asked_for_are_always_written(
    limit: LogLimit, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        for number in range(10):
            log.error("broken %s", number)
            log.debug("allowed %s", number)
    assert len(caplog.records) == 20


def test_every_module_that_writes_of_connections_is_limited() -> None:
    """Loggers are named by their modules: one that moves must not leave its limit behind."""
    ours = [name for name in LIMITED if name.startswith("millstream.")]
    for name in ours:
        assert isinstance(import_module(name).log, logging.Logger)
    writing = {
        module.name
        for module in pkgutil.iter_modules(net.__path__, "millstream.net.")
        if hasattr(import_module(module.name), "log")
    }
    # Whoever watches a broker, and the other brokers of its machine, are no strangers.
    known = {"millstream.net.http_server", "millstream.net.local_socket"}
    assert writing - known == {name for name in ours if name.startswith("millstream.net.")}
